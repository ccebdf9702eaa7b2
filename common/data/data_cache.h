// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_DATA_CACHE_H_
#define HOLDFAST_COMMON_DATA_DATA_CACHE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/byte_sink.h"

namespace holdfast {

// A folder that keeps the unpacked or parsed contents of data files, so that
// they are made once for all processes of the host and mapped instead of kept
// in memory.
//
// An entry is a file named by a digest of everything that it was made from:
// changed sources make another file, and no entry becomes stale. The cache
// never removes entries; any of them may be deleted at any time to free space,
// because processes that have an entry mapped keep it until they end.
//
//   file    = header payload notes
//   header  = "HOLDFAST DATA 1\n" payload_size notes_size zero{32}
//   sizes   = 8 bytes each, little-endian
//   notes   = text of the code that made the entry
//
// A file is written as NAME.part, locked, and renamed once it is complete and
// synced. An unfinished file of a dead process is taken over by the next.
//
// Thread-safe.
class DataCache {
 public:
  // Identifies the sources of an entry.
  class Key {
   public:
    // `kind`, such as "csv", begins the file's name, and distinguishes entries
    // that are made in different ways from the same files.
    explicit Key(absl::string_view kind);

    void Add(absl::string_view text);
    // Adds the file's absolute path, its size and its time of modification.
    // Errors: those of the system.
    absl::Status AddFile(const std::string& path);

    // The name of the entry's file in the folder.
    std::string FileName() const;

   private:
    std::string kind_;
    // The text to be digested.
    std::string text_;
  };

  struct Entry {
    // The payload, at an address that is a multiple of 64.
    absl::Span<const uint8_t> bytes;
    std::string notes;
    // Keeps the bytes alive.
    std::shared_ptr<const void> owner;
  };

  // Writes the payload, and sets *notes.
  using Make =
      absl::FunctionRef<absl::Status(ByteSink* payload, std::string* notes)>;

  // Calls `tell` with lines for the log.
  // Errors: INVALID_ARGUMENT if there is no such folder.
  static absl::StatusOr<std::unique_ptr<DataCache>> Open(
      const std::string& folder, std::function<void(const std::string&)> tell);

  // Returns the entry, and makes it if it does not exist. If another process is
  // making it, waits until that process has finished or died.
  // Errors: those of `make`; RESOURCE_EXHAUSTED for a full disk, and other
  // errors of the system, with the folder and the way out; DATA_LOSS for an
  // incomplete file.
  absl::StatusOr<Entry> Get(const Key& key, Make make) const;

 private:
  DataCache(std::string folder, std::function<void(const std::string&)> tell)
      : folder_(std::move(folder)), tell_(std::move(tell)) {}

  // Errors: NOT_FOUND if there is no such file; DATA_LOSS.
  absl::StatusOr<Entry> Map(const std::string& path) const;

  const std::string folder_;
  const std::function<void(const std::string&)> tell_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATA_CACHE_H_

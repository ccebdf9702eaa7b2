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

// A folder that keeps what data files are unpacked or parsed to, so that it is
// made once for all processes of the host and mapped instead of kept in memory.
//
// An entry is a file, named after a digest of all that it was made of: other
// sources make another file, and nothing that is there becomes wrong. Entries
// are never removed here; whoever needs the room may remove any at any time, as
// processes that have one mapped keep it until they end.
//
//   file    = header payload notes
//   header  = "HOLDFAST DATA 1\n" payload_size notes_size zero{32}
//   sizes   = 8 bytes each, little-endian
//   notes   = text of whoever made the entry
//
// A file is written as NAME.part, locked, and renamed when it is whole and on
// the disk. One that a process left unfinished is taken over by the next.
//
// Thread-safe.
class DataCache {
 public:
  // What an entry is made of.
  class Key {
   public:
    // `kind` begins the file's name, and tells apart what is made differently
    // of the same files: "csv".
    explicit Key(absl::string_view kind);

    void Add(absl::string_view text);
    // The file's absolute path, its size and when it was last changed.
    // Errors: as the system says.
    absl::Status AddFile(const std::string& path);

    // Of the file in the folder.
    std::string FileName() const;

   private:
    std::string kind_;
    // What the digest is of.
    std::string text_;
  };

  struct Entry {
    // The payload, at an address that is a multiple of 64.
    absl::Span<const uint8_t> bytes;
    std::string notes;
    // Keeps the bytes.
    std::shared_ptr<const void> owner;
  };

  // Writes the payload, and sets *notes.
  using Make =
      absl::FunctionRef<absl::Status(ByteSink* payload, std::string* notes)>;

  // `tell` takes lines for the log.
  // Errors: INVALID_ARGUMENT where there is no such folder.
  static absl::StatusOr<std::unique_ptr<DataCache>> Open(
      const std::string& folder, std::function<void(const std::string&)> tell);

  // The entry, which is made unless it is there. Where another process is
  // making it, waits until that has finished or died. Errors: those of `make`;
  // RESOURCE_EXHAUSTED for a full disk and what else the system says, with the
  // folder and the way out; DATA_LOSS for a file that is not whole.
  absl::StatusOr<Entry> Get(const Key& key, Make make) const;

 private:
  DataCache(std::string folder, std::function<void(const std::string&)> tell)
      : folder_(std::move(folder)), tell_(std::move(tell)) {}

  // Errors: NOT_FOUND where there is none; DATA_LOSS.
  absl::StatusOr<Entry> Map(const std::string& path) const;

  const std::string folder_;
  const std::function<void(const std::string&)> tell_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_DATA_CACHE_H_

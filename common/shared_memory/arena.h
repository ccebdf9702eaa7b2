// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_SHARED_MEMORY_ARENA_H_
#define HOLDFAST_COMMON_SHARED_MEMORY_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/shared_memory/sealed_file.h"

namespace holdfast {

// Memory in sealed files, handed out in pieces. A piece is reused when the last
// reference to it is dropped, because fresh pages cost more than the update
// that fills them. Each piece is contiguous, in one file.
//
// The arena keeps as many pieces of each size as were in use at the same time,
// never more, until Renew says that other sizes follow. The files are released
// when both the arena and the last piece are gone.
//
// Thread-safe, as are the references, which may outlive the arena.
class SharedArena {
 public:
  struct Options {
    // The name of the files in /proc/PID/maps.
    std::string name;
    // The minimum size of a file, rounded up to whole huge pages. Memory is
    // allocated by the system only when pieces are taken.
    size_t file_bytes = size_t{256} << 20;
  };
  explicit SharedArena(Options options);

  // Returns a piece of `bytes` bytes (at least 1), aligned to 64, or to
  // kHugePageBytes if it is at least that long; its contents are unspecified.
  // As much of the piece as fills whole huge pages is in huge pages, if the
  // system can make them.
  // Errors: those of SealedFile::Create.
  absl::StatusOr<std::shared_ptr<char>> Take(size_t bytes);

  // Like Take, for callers whose sizes differ from call to call: the piece has
  // the next power of two of bytes, so that few sizes of pieces are kept.
  absl::StatusOr<std::shared_ptr<char>> TakeAtLeast(size_t bytes);

  // Says that pieces of other sizes may be needed from now on. The memory of
  // existing pieces, once they are no longer in use, is reused for pieces of
  // any size that fits.
  void Renew();

  // The location of memory in the arena: the file's number, from 1, and the
  // offset.
  struct Place {
    uint32_t file = 0;
    uint64_t offset = 0;

    friend bool operator==(const Place& a, const Place& b) {
      return a.file == b.file && a.offset == b.offset;
    }
  };
  // The Place of the memory [data, data + size), or nullopt if not all of it is
  // in one file of the arena. Does not wait for a call of Take that takes long.
  std::optional<Place> Find(const void* data, size_t size) const;

  // The arena's files in order, the first being number 1. Existing files are
  // never replaced.
  std::vector<std::shared_ptr<const SealedFile>> files() const;

  // The number of bytes of all pieces, in use or spare.
  int64_t bytes() const;

  // Sets a function that Take calls, holding no locks, if no suitable piece is
  // spare. The function may drop references to pieces that are no longer
  // needed. Must be called before the first Take.
  void set_reclaim(std::function<void()> reclaim);
  // Calls that function, if there is one.
  void Reclaim();

  // Whether this system makes huge pages of shared memory on request; the first
  // call finds out by trying. With small pages an update is a fifth to a third
  // slower; so without huge pages, values are in private memory and are not
  // lent.
  static bool HugePagesWork();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_ARENA_H_

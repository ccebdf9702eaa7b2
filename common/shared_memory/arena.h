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

// Memory in sealed files, used again when the last reference to it goes: fresh
// pages cost more than the update that fills them. Each piece of memory is
// contiguous, in one file.
//
// Of each size it keeps as many pieces as were in use at one time, never more,
// until it is told that other sizes follow; files go with the arena and the
// last piece of any.
//
// Thread-safe, as are the references, which may outlive the arena.
class SharedArena {
 public:
  struct Options {
    // For /proc/PID/maps.
    std::string name;
    // Of one file, at least: whole huge pages. Memory is taken from the system
    // as pieces are, not before.
    size_t file_bytes = size_t{256} << 20;
  };
  explicit SharedArena(Options options);

  // `bytes` (at least 1) at a multiple of 64, or of kHugePageBytes where it is
  // as long as one; what it says is not specified. A piece of at least
  // kHugePageBytes lies in huge pages as far as it is whole ones, where the
  // system can make them.
  // Errors: those of SealedFile::Create.
  absl::StatusOr<std::shared_ptr<char>> Take(size_t bytes);

  // Pieces of other sizes may be wanted from now on: those that there are
  // serve, once they are spare, for pieces of any size that fit.
  void Renew();

  // Where memory of the arena is: file, from 1, and offset.
  struct Place {
    uint32_t file = 0;
    uint64_t offset = 0;

    friend bool operator==(const Place& a, const Place& b) {
      return a.file == b.file && a.offset == b.offset;
    }
  };
  // Of [data, data + size); nullopt: it is not in one file of the arena. Takes
  // no lock that Take holds for long.
  std::optional<Place> Find(const void* data, size_t size) const;

  // Its files, in order, the first being number 1: those that there are are
  // never replaced.
  std::vector<std::shared_ptr<const SealedFile>> files() const;

  // Of all its pieces, those in use and the spare ones.
  int64_t bytes() const;

  // To be called, without locks, when a piece is wanted and none is spare:
  // somebody may know of references that can go. Before the first Take.
  void set_reclaim(std::function<void()> reclaim);

  // Whether this system makes huge pages of shared memory when asked. Tried
  // once, by the first call. Over small pages an update is a fifth to a third
  // slower: without them, values lie in private memory, and are not lent.
  static bool HugePagesWork();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_ARENA_H_

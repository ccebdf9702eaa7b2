// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_SHARED_MEMORY_SEALED_FILE_H_
#define HOLDFAST_COMMON_SHARED_MEMORY_SEALED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace holdfast {

// Owns a file descriptor, and closes it on destruction. Movable.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// The size of a huge page. Updates are faster if values are in whole huge
// pages.
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Memory of this process that others may map: a memfd whose size can no longer
// change. It is initially zero, is not inherited by a fork, and is not part of
// a core dump.
//
// Immutable except for its bytes, which the owner must synchronize.
class SealedFile {
 public:
  // The processes that may write.
  enum class Writers {
    // This process, through data(). Others cannot make a writable mapping,
    // however they get the descriptor.
    kOwner,
    // Every process that has the descriptor.
    kAll,
  };

  // `size` is rounded up to whole pages; a file of at least kHugePageBytes is
  // mapped at a multiple of kHugePageBytes. `name` appears in
  // /proc/PID/maps.
  // Errors: RESOURCE_EXHAUSTED or UNAVAILABLE, with the name of the system call
  // that failed.
  static absl::StatusOr<std::unique_ptr<SealedFile>> Create(
      const std::string& name, size_t size, Writers writers);
  ~SealedFile();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

  // Puts the bytes [offset, offset + size), which must be whole huge pages,
  // into huge pages. The bytes do not change; all of their pages are allocated
  // afterwards. Returns whether it succeeded.
  bool MakeHuge(size_t offset, size_t size) const;

 private:
  SealedFile() = default;

  UniqueFd fd_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// A file that another process has sent, mapped as long as this object lives,
// whatever happens to the other process.
class PeerFile {
 public:
  enum class Access { kRead, kReadWrite };

  // `size` is the size that the peer has stated.
  // Errors: INVALID_ARGUMENT when `fd` is not a memfd of that size that is
  // sealed against shrinking and growing, or cannot be mapped.
  static absl::StatusOr<std::unique_ptr<PeerFile>> Map(const UniqueFd& fd,
                                                       size_t size,
                                                       Access access);
  ~PeerFile();

  // The file's bytes. They may be written only with Access::kReadWrite.
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  PeerFile() = default;

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_SEALED_FILE_H_

#ifndef HOLDFAST_COMMON_SHARED_MEMORY_SEALED_FILE_H_
#define HOLDFAST_COMMON_SHARED_MEMORY_SEALED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace holdfast {

// A file descriptor that is closed with its owner. Movable.
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

// A page of the size that an update wants: values lie in whole ones where they
// can.
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Memory of this process that others may map: a memfd whose size cannot change
// any more. Zeros at first. Not inherited by a fork, nor part of a core dump.
//
// Immutable but for its bytes; those are the owner's business.
class SealedFile {
 public:
  // Who may write.
  enum class Writers {
    // This process, by data(). For others no writable mapping can be made, in
    // whatever way they come to the descriptor.
    kOwner,
    // Whoever has the descriptor.
    kAll,
  };

  // `size` is rounded up to whole pages; one of at least kHugePageBytes is
  // mapped at a multiple of that. `name` is for /proc/PID/maps.
  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE, with the system call.
  static absl::StatusOr<std::unique_ptr<SealedFile>> Create(
      const std::string& name, size_t size, Writers writers);
  ~SealedFile();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

  // Has [offset, offset + size), whole huge pages, lie in such. The bytes stay
  // as they are; all of them have memory afterwards. Whether it could be done.
  bool MakeHuge(size_t offset, size_t size) const;

 private:
  SealedFile() = default;

  UniqueFd fd_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// A file that another process has sent, mapped for as long as this object
// lives, whatever becomes of the other.
class PeerFile {
 public:
  enum class Access { kRead, kReadWrite };

  // `size`: as told by the peer.
  // Errors: INVALID_ARGUMENT when it is not a memfd of that size that is sealed
  // against shrinking and growing, or cannot be mapped.
  static absl::StatusOr<std::unique_ptr<PeerFile>> Map(const UniqueFd& fd,
                                                       size_t size,
                                                       Access access);
  ~PeerFile();

  // To be written with Access::kReadWrite alone.
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  PeerFile() = default;

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_SHARED_MEMORY_SEALED_FILE_H_

// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/sealed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

// Headers may be older than the kernel.
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace holdfast {
namespace {

// The kernel's limit for a memfd's name.
constexpr size_t kMaxNameBytes = 249;
// statfs.f_type of tmpfs, to which memfds belong.
constexpr int64_t kTmpfs = 0x01021994;

absl::Status Error(absl::string_view call, absl::string_view name, size_t size,
                   int error) {
  const std::string text =
      absl::StrCat("shared memory \"", name, "\" of ", size, " bytes: ", call,
                   ": ", strerror(error));
  switch (error) {
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

int MakeMemfd(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Without MFD_NOEXEC_SEAL some kernels warn about, or refuse, a file that
  // could be executed; older kernels do not know the flag.
  const int fd = memfd_create(name.c_str(), kFlags | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) return fd;
  return memfd_create(name.c_str(), kFlags);
}

// Maps the whole file, at a multiple of kHugePageBytes if it is at least that
// long, because huge pages must be aligned. Returns null and sets errno on
// failure.
char* MapShared(int fd, size_t size, int protection) {
  const size_t align = size < kHugePageBytes ? 1 : kHugePageBytes;
  if (size > std::numeric_limits<size_t>::max() - align) {
    errno = ENOMEM;
    return nullptr;
  }
  // Reserves address space only; its aligned part is then mapped to the file.
  const size_t reserved = size + (align - 1);
  void* const space =
      mmap(nullptr, reserved, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
  if (space == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(space);
  const size_t before =
      (align - reinterpret_cast<uintptr_t>(begin) % align) % align;
  char* const data = begin + before;
  if (mmap(data, size, protection, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    const int error = errno;
    munmap(space, reserved);
    errno = error;
    return nullptr;
  }
  const size_t page = sysconf(_SC_PAGESIZE);
  char* const end = data + (size + page - 1) / page * page;
  char* const reserved_end = begin + (reserved + page - 1) / page * page;
  if (before > 0) munmap(begin, before);
  if (end < reserved_end) munmap(end, reserved_end - end);
  // A forked child would keep the memory, and a core dump would include it.
  madvise(data, size, MADV_DONTFORK);
  madvise(data, size, MADV_DONTDUMP);
  return data;
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<SealedFile>> SealedFile::Create(
    const std::string& name, size_t size, Writers writers) {
  const size_t page = sysconf(_SC_PAGESIZE);
  size = std::max<size_t>(size, 1);
  if (size > static_cast<size_t>(std::numeric_limits<off_t>::max()) - page) {
    return Error("ftruncate", name, size, EFBIG);
  }
  size = (size + page - 1) / page * page;
  auto file = std::unique_ptr<SealedFile>(new SealedFile);
  file->fd_ = UniqueFd(MakeMemfd(name.substr(0, kMaxNameBytes)));
  if (!file->fd_.valid()) return Error("memfd_create", name, size, errno);
  if (ftruncate(file->fd(), static_cast<off_t>(size)) != 0) {
    return Error("ftruncate", name, size, errno);
  }
  file->data_ = MapShared(file->fd(), size, PROT_READ | PROT_WRITE);
  if (file->data_ == nullptr) return Error("mmap", name, size, errno);
  file->size_ = size;
  // If the system gives huge pages on request (madvise), it now does so by
  // itself.
  if (size >= kHugePageBytes) madvise(file->data_, size, MADV_HUGEPAGE);
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  // Our own mapping is exempt, because it already exists.
  if (writers == Writers::kOwner) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(file->fd(), F_ADD_SEALS, seals) != 0) {
    return Error("fcntl(F_ADD_SEALS)", name, size, errno);
  }
  return file;
}

SealedFile::~SealedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

bool SealedFile::MakeHuge(size_t offset, size_t size) const {
  CHECK(offset % kHugePageBytes == 0 && size % kHugePageBytes == 0 &&
        offset <= size_ && size <= size_ - offset)
      << offset << " + " << size << " of " << size_;
  if (size == 0) return true;
  // madvise rejects a range without any page. A read allocates one, and does
  // not interfere with concurrent writes by others.
  for (size_t at = offset; at < offset + size; at += kHugePageBytes) {
    static_cast<void>(*static_cast<const volatile char*>(data_ + at));
  }
  return madvise(data_ + offset, size, MADV_COLLAPSE) == 0;
}

absl::StatusOr<std::unique_ptr<PeerFile>> PeerFile::Map(const UniqueFd& fd,
                                                        size_t size,
                                                        Access access) {
  const auto error = [size](auto... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("a peer's file of ", size, " bytes: ", what...));
  };
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return error("fcntl(F_GET_SEALS): ", strerror(errno));
  // If the file shrank, reads past its end would kill this process with SIGBUS.
  if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0) {
    return error("it is not sealed against shrinking and growing");
  }
  // A hole in a hugetlbfs file would do the same when the pool of huge pages is
  // empty.
  struct statfs file_system;
  if (fstatfs(fd.get(), &file_system) != 0) {
    return error("fstatfs: ", strerror(errno));
  }
  if (file_system.f_type != kTmpfs) return error("it is not on tmpfs");
  struct stat stat;
  if (fstat(fd.get(), &stat) != 0) return error("fstat: ", strerror(errno));
  if (size == 0 || stat.st_size < 0 ||
      static_cast<uint64_t>(stat.st_size) != size) {
    return error("it has ", stat.st_size);
  }
  auto file = std::unique_ptr<PeerFile>(new PeerFile);
  file->data_ =
      MapShared(fd.get(), size,
                access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE);
  if (file->data_ == nullptr) return error("mmap: ", strerror(errno));
  file->size_ = size;
  return file;
}

PeerFile::~PeerFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace holdfast

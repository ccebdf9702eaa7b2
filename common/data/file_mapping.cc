// SPDX-License-Identifier: Apache-2.0
#include "common/data/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

absl::StatusOr<std::shared_ptr<const FileMapping>> FileMapping::Open(
    const std::string& path) {
  const auto error = [&path](int number) {
    return absl::ErrnoToStatus(number,
                               absl::StrCat("cannot read \"", path, "\""));
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(errno);
  const absl::Cleanup close_it = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return error(errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read \"", path, "\": not a regular file"));
  }
  std::shared_ptr<FileMapping> mapping(new FileMapping);
  if (info.st_size == 0) return mapping;
  void* const data =
      mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, /*offset=*/0);
  if (data == MAP_FAILED) return error(errno);
  mapping->data_ = static_cast<const uint8_t*>(data);
  mapping->size_ = info.st_size;
  return mapping;
}

FileMapping::~FileMapping() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace holdfast

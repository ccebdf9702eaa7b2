// SPDX-License-Identifier: Apache-2.0
#include "common/data/unpacked_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// Deflate expands one byte to at most 1032 (at best, two bits give 258 bytes).
constexpr int64_t kGreatestInflation = 1032;

}  // namespace

absl::StatusOr<std::unique_ptr<UnpackedFile>> UnpackedFile::Open(
    const std::string& path, absl::string_view kind) {
  std::unique_ptr<UnpackedFile> file(new UnpackedFile(path, kind));
  HOLDFAST_RETURN_IF_ERROR(file->Init());
  return file;
}

UnpackedFile::~UnpackedFile() {
  if (gzip_) inflateEnd(&inflate_);
  if (file_ != nullptr) std::fclose(file_);
}

absl::StatusOr<size_t> UnpackedFile::Read(uint8_t* data, size_t size) {
  absl::StatusOr<size_t> n =
      gzip_ ? ReadGzip(data, size) : ReadPlain(data, size);
  if (n.ok()) offset_ += *n;
  return n;
}

std::string UnpackedFile::Failure() const {
  return absl::StrCat("cannot read ", kind_, " file \"", path_, "\"");
}

absl::Status UnpackedFile::Error(absl::StatusCode code, int64_t offset,
                                 absl::string_view what) const {
  return absl::Status(
      code, absl::StrCat(Failure(), ": at byte ", offset,
                         gzip_ ? " of the unpacked data" : "", ": ", what));
}

int64_t UnpackedFile::greatest_size() const {
  return gzip_ ? file_size_ * kGreatestInflation : file_size_;
}

absl::Status UnpackedFile::Init() {
  file_ = std::fopen(path_.c_str(), "rb");
  if (file_ == nullptr) return SystemError(errno);
  struct stat info;
  if (fstat(fileno(file_), &info) != 0) return SystemError(errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Failure(), ": not a regular file"));
  }
  file_size_ = info.st_size;
  HOLDFAST_RETURN_IF_ERROR(Fill());
  if (!AtGzipMember()) return absl::OkStatus();
  // 15: the largest window; 16: a gzip header and trailer, checked.
  if (inflateInit2(&inflate_, 15 + 16) != Z_OK) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Failure(), ": no memory to unpack it"));
  }
  gzip_ = true;
  return absl::OkStatus();
}

absl::Status UnpackedFile::SystemError(int error) const {
  return absl::ErrnoToStatus(error, Failure());
}

absl::Status UnpackedFile::Fill() {
  if (begin_ < end_) return absl::OkStatus();
  begin_ = 0;
  end_ = std::fread(chunk_.data(), 1, chunk_.size(), file_);
  file_offset_ += end_;
  if (end_ == 0 && std::ferror(file_)) return SystemError(errno);
  return absl::OkStatus();
}

bool UnpackedFile::AtGzipMember() const {
  return end_ - begin_ >= 2 && chunk_[begin_] == 0x1f &&
         chunk_[begin_ + 1] == 0x8b;
}

absl::StatusOr<size_t> UnpackedFile::ReadPlain(uint8_t* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    if (begin_ == end_ && size - done >= chunk_.size()) {
      const size_t n = std::fread(data + done, 1, size - done, file_);
      if (n < size - done && std::ferror(file_)) return SystemError(errno);
      file_offset_ += n;
      return done + n;
    }
    HOLDFAST_RETURN_IF_ERROR(Fill());
    const size_t n = std::min(size - done, end_ - begin_);
    if (n == 0) break;
    std::memcpy(data + done, chunk_.data() + begin_, n);
    begin_ += n;
    done += n;
  }
  return done;
}

absl::StatusOr<size_t> UnpackedFile::ReadGzip(uint8_t* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    HOLDFAST_RETURN_IF_ERROR(Fill());
    if (between_members_) {
      if (begin_ == end_) break;
      // A magic split by the chunk's end shows up as damage in inflate() below.
      if (chunk_[begin_] != 0x1f) {
        return GzipError(done, "bytes after the end of the gzip data");
      }
      inflateReset(&inflate_);
      between_members_ = false;
    }
    if (begin_ == end_) {
      return GzipError(done, "the gzip data end early; the file is truncated");
    }
    inflate_.next_in = chunk_.data() + begin_;
    inflate_.avail_in = end_ - begin_;
    inflate_.next_out = data + done;
    inflate_.avail_out = std::min(size - done, size_t{1} << 30);
    const uInt out_before = inflate_.avail_out;
    const int result = inflate(&inflate_, Z_NO_FLUSH);
    begin_ = end_ - inflate_.avail_in;
    done += out_before - inflate_.avail_out;
    if (result == Z_STREAM_END) {
      between_members_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return GzipError(
          done,
          absl::StrCat("the gzip data are damaged (",
                       inflate_.msg != nullptr ? inflate_.msg : zError(result),
                       ")"));
    }
  }
  return done;
}

absl::Status UnpackedFile::GzipError(size_t done,
                                     absl::string_view what) const {
  return Error(absl::StatusCode::kDataLoss, offset_ + done,
               absl::StrCat(what, " (byte ", file_offset(), " of the file)"));
}

}  // namespace holdfast

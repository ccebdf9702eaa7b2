#include "worker/input/idx.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {
namespace {

constexpr size_t kChunk = 64 << 10;
constexpr uint8_t kUnsignedByte = 0x08;
// Deflate makes at most 1032 bytes of one (258 bytes from two bits at best).
constexpr int64_t kGreatestInflation = 1032;

// A file's bytes in order, unpacked if it is gzip.
class UnpackedFile {
 public:
  static absl::StatusOr<std::unique_ptr<UnpackedFile>> Open(
      const std::string& path) {
    std::unique_ptr<UnpackedFile> file(new UnpackedFile(path));
    if (absl::Status status = file->Init(); !status.ok()) return status;
    return file;
  }

  ~UnpackedFile() {
    if (gzip_) inflateEnd(&inflate_);
    if (file_ != nullptr) std::fclose(file_);
  }

  UnpackedFile(const UnpackedFile&) = delete;
  UnpackedFile& operator=(const UnpackedFile&) = delete;

  // Fills `data` with the next `size` bytes and returns how many there were:
  // fewer than asked only at the end, which in a gzip file means that all its
  // checksums hold.
  absl::StatusOr<size_t> Read(uint8_t* data, size_t size) {
    absl::StatusOr<size_t> n =
        gzip_ ? ReadGzip(data, size) : ReadPlain(data, size);
    if (n.ok()) offset_ += *n;
    return n;
  }

  // An error about the byte at `offset` of the unpacked data.
  absl::Status Error(absl::StatusCode code, int64_t offset,
                     absl::string_view what) const {
    return absl::Status(
        code,
        absl::StrCat("cannot read IDX file \"", path_, "\": at byte ", offset,
                     gzip_ ? " of the unpacked data" : "", ": ", what));
  }

  // Bytes read so far, unpacked.
  int64_t offset() const { return offset_; }

  // The most that can be in the file, unpacked.
  int64_t greatest_size() const {
    return gzip_ ? file_size_ * kGreatestInflation : file_size_;
  }

 private:
  explicit UnpackedFile(const std::string& path) : path_(path) {}

  absl::Status Init() {
    file_ = std::fopen(path_.c_str(), "rb");
    if (file_ == nullptr) return SystemError(errno);
    struct stat info;
    if (fstat(fileno(file_), &info) != 0) return SystemError(errno);
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot read IDX file \"", path_, "\": not a regular file"));
    }
    file_size_ = info.st_size;
    if (absl::Status status = Fill(); !status.ok()) return status;
    if (!AtGzipMember()) return absl::OkStatus();
    // 15: the largest window; 16: a gzip header and trailer, checked.
    if (inflateInit2(&inflate_, 15 + 16) != Z_OK) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot read IDX file \"", path_, "\": no memory to unpack it"));
    }
    gzip_ = true;
    return absl::OkStatus();
  }

  absl::Status SystemError(int error) const {
    return absl::ErrnoToStatus(
        error, absl::StrCat("cannot read IDX file \"", path_, "\""));
  }

  // Reads the next chunk once all of the last is used. Leaves none at the end.
  absl::Status Fill() {
    if (begin_ < end_) return absl::OkStatus();
    begin_ = 0;
    end_ = std::fread(chunk_.data(), 1, chunk_.size(), file_);
    file_offset_ += end_;
    if (end_ == 0 && std::ferror(file_)) return SystemError(errno);
    return absl::OkStatus();
  }

  bool AtGzipMember() const {
    return end_ - begin_ >= 2 && chunk_[begin_] == 0x1f &&
           chunk_[begin_ + 1] == 0x8b;
  }

  absl::StatusOr<size_t> ReadPlain(uint8_t* data, size_t size) {
    size_t done = 0;
    while (done < size) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      const size_t n = std::min(size - done, end_ - begin_);
      if (n == 0) break;
      std::memcpy(data + done, chunk_.data() + begin_, n);
      begin_ += n;
      done += n;
    }
    return done;
  }

  absl::StatusOr<size_t> ReadGzip(uint8_t* data, size_t size) {
    size_t done = 0;
    while (done < size) {
      if (absl::Status status = Fill(); !status.ok()) return status;
      if (between_members_) {
        if (begin_ == end_) break;
        // A magic cut by the chunk's end shows up as damage in inflate() below.
        if (chunk_[begin_] != 0x1f) {
          return GzipError(done, "bytes behind the end of the gzip data");
        }
        inflateReset(&inflate_);
        between_members_ = false;
      }
      if (begin_ == end_) {
        return GzipError(done,
                         "the gzip data end early; the file is truncated");
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
            absl::StrCat(
                "the gzip data are damaged (",
                inflate_.msg != nullptr ? inflate_.msg : zError(result), ")"));
      }
    }
    return done;
  }

  // `done`: unpacked bytes beyond offset().
  absl::Status GzipError(size_t done, absl::string_view what) const {
    return Error(absl::StatusCode::kDataLoss, offset_ + done,
                 absl::StrCat(what, " (byte ", file_offset_ - (end_ - begin_),
                              " of the file)"));
  }

  const std::string path_;
  std::FILE* file_ = nullptr;
  int64_t file_size_ = 0;
  int64_t offset_ = 0;

  // What of the file is not used yet: chunk_[begin_, end_).
  std::array<uint8_t, kChunk> chunk_;
  size_t begin_ = 0;
  size_t end_ = 0;
  // Of the chunk's end.
  int64_t file_offset_ = 0;

  bool gzip_ = false;
  // A member has ended and the next, if any, has not begun.
  bool between_members_ = false;
  z_stream inflate_ = {};
};

}  // namespace

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions) {
  absl::StatusOr<std::unique_ptr<UnpackedFile>> opened =
      UnpackedFile::Open(path);
  if (!opened.ok()) return opened.status();
  UnpackedFile& file = **opened;
  const auto invalid = [&](int64_t offset, absl::string_view what) {
    return file.Error(absl::StatusCode::kInvalidArgument, offset, what);
  };
  const auto data_loss = [&](int64_t offset, absl::string_view what) {
    return file.Error(absl::StatusCode::kDataLoss, offset, what);
  };

  std::array<uint8_t, 4> word;
  absl::StatusOr<size_t> n = file.Read(word.data(), word.size());
  if (!n.ok()) return n.status();
  if (*n < word.size()) {
    return data_loss(*n, "the file ends within the magic number");
  }
  if (word[0] != 0 || word[1] != 0) {
    return invalid(0, absl::StrCat("not an IDX file: it begins with 0x",
                                   absl::Hex(word[0], absl::kZeroPad2), " 0x",
                                   absl::Hex(word[1], absl::kZeroPad2),
                                   " instead of two zeros"));
  }
  if (word[2] != kUnsignedByte) {
    return invalid(2, absl::StrCat("values have type 0x",
                                   absl::Hex(word[2], absl::kZeroPad2),
                                   ", wanted are unsigned bytes (0x08)"));
  }
  if (word[3] != dimensions) {
    return invalid(
        3, absl::StrCat("the array has ", word[3], " dimensions, wanted are ",
                        dimensions, "; images have 3 and labels 1"));
  }

  IdxArray array;
  // Below the file's greatest size, so that products cannot overflow.
  int64_t num_values = 1;
  for (int i = 0; i < dimensions; ++i) {
    const int64_t offset = file.offset();
    n = file.Read(word.data(), word.size());
    if (!n.ok()) return n.status();
    if (*n < word.size()) {
      return data_loss(offset + *n, "the file ends within the dimensions");
    }
    const uint32_t size = uint32_t{word[0]} << 24 | uint32_t{word[1]} << 16 |
                          uint32_t{word[2]} << 8 | uint32_t{word[3]};
    if (size == 0) {
      return invalid(offset, absl::StrCat("dimension ", i, " is 0"));
    }
    if (size > file.greatest_size() / num_values) {
      return data_loss(
          offset,
          absl::StrCat("dimension ", i, " is ", size,
                       ", so the array would be longer than the file can hold; "
                       "the file is truncated, or this number damaged"));
    }
    num_values *= size;
    array.shape.push_back(size);
  }

  const int64_t begin = file.offset();
  array.values.resize(num_values);
  n = file.Read(array.values.data(), array.values.size());
  if (!n.ok()) return n.status();
  if (static_cast<int64_t>(*n) < num_values) {
    return data_loss(begin + *n,
                     absl::StrCat("the file ends early: an array of ",
                                  absl::StrJoin(array.shape, " x "),
                                  " bytes has to end at ", begin + num_values));
  }
  n = file.Read(word.data(), 1);
  if (!n.ok()) return n.status();
  if (*n > 0) {
    return data_loss(begin + num_values,
                     absl::StrCat("bytes behind the end of the array (",
                                  absl::StrJoin(array.shape, " x "), ")"));
  }
  return array;
}

std::string IdxHeader(const std::vector<int64_t>& shape) {
  std::string header = {0, 0, kUnsignedByte, static_cast<char>(shape.size())};
  for (int64_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      header.push_back(static_cast<char>(size >> shift & 0xff));
    }
  }
  return header;
}

}  // namespace holdfast

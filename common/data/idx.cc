// SPDX-License-Identifier: Apache-2.0
#include "common/data/idx.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/data/file_mapping.h"
#include "common/data/unpacked_file.h"

namespace holdfast {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
// The number of bytes unpacked at a time.
constexpr int64_t kPieceBytes = 1 << 20;

std::optional<ElementType> TypeOf(uint8_t code) {
  switch (code) {
    case kUnsignedByte:
      return ElementType::kUint8;
    case 0x09:
      return ElementType::kInt8;
    case 0x0b:
      return ElementType::kInt16;
    case 0x0c:
      return ElementType::kInt32;
    case 0x0d:
      return ElementType::kFloat32;
    case 0x0e:
      return ElementType::kFloat64;
    default:
      return std::nullopt;
  }
}

std::string Header(uint8_t type, const std::vector<int64_t>& shape) {
  std::string header = {0, 0, static_cast<char>(type),
                        static_cast<char>(shape.size())};
  for (int64_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      header.push_back(static_cast<char>(size >> shift & 0xff));
    }
  }
  return header;
}

}  // namespace

absl::StatusOr<TypedArray> ReadIdx(const std::string& path,
                                   const ReadingOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto opened, UnpackedFile::Open(path, "IDX"));
  UnpackedFile& file = *opened;
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
  const std::optional<ElementType> type = TypeOf(word[2]);
  if (!type.has_value()) {
    return invalid(2, absl::StrCat("values have type 0x",
                                   absl::Hex(word[2], absl::kZeroPad2),
                                   ", which is not among those of IDX: 0x08, "
                                   "0x09, 0x0b, 0x0c, 0x0d, 0x0e"));
  }
  if (word[3] == 0) return invalid(3, "the array has no dimensions");

  TypedArray array;
  array.type = *type;
  array.big_endian = true;
  array.place = absl::StrCat("\"", path, "\"");
  const uint8_t type_code = word[2];
  const int dimensions = word[3];
  // Kept below the file's maximum size, so that products cannot overflow.
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
                       "the file is truncated, or this number is damaged"));
    }
    num_values *= size;
    array.shape.push_back(size);
  }
  array.header = Header(type_code, array.shape);

  const int64_t begin = file.offset();
  const std::string description = absl::StrCat(
      absl::StrJoin(array.shape, " x "), " ", TypeName(array.type));
  int64_t num_bytes = 0;
  const bool overflow =
      __builtin_mul_overflow(num_values, TypeSize(*type), &num_bytes);
  const auto ends_early = [&](int64_t offset) {
    return data_loss(
        offset, absl::StrCat("the file ends early: an array of ", description,
                             " has to end at byte ", begin + num_bytes));
  };
  const auto bytes_behind = [&] {
    return data_loss(
        begin + num_bytes,
        absl::StrCat("bytes after the end of the array (", description, ")"));
  };
  if (overflow || num_bytes > file.greatest_size()) {
    return ends_early(file.is_gzip() ? begin : file.file_size());
  }
  if (!file.is_gzip()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
    const absl::Span<const uint8_t> bytes = mapping->bytes();
    const int64_t size = bytes.size();
    if (size < begin + num_bytes) return ends_early(size);
    if (size > begin + num_bytes) return bytes_behind();
    array.bytes = bytes.subspan(begin);
    array.owner = mapping;
    array.mapped = true;
    return array;
  }
  if (options.progress != nullptr) {
    options.progress->Begin(array.place, file.file_size());
  }
  const auto unpacked =
      Unpack(options, "idx", path, array.header, [&](ByteSink* values) {
        std::vector<uint8_t> piece(std::min(num_bytes, kPieceBytes));
        int64_t done = 0;
        while (done < num_bytes) {
          const int64_t file_offset = file.file_offset();
          const size_t asked = std::min<size_t>(piece.size(), num_bytes - done);
          HOLDFAST_ASSIGN_OR_RETURN(const auto n,
                                    file.Read(piece.data(), asked));
          done += n;
          if (n < asked) return ends_early(begin + done);
          absl::Status status = values->Append({piece.data(), asked});
          if (!status.ok()) return status;
          if (options.progress != nullptr) {
            options.progress->Add(file.file_offset() - file_offset);
          }
        }
        HOLDFAST_ASSIGN_OR_RETURN(const auto more, file.Read(piece.data(), 1));
        return more > 0 ? bytes_behind() : absl::OkStatus();
      });
  if (!unpacked.ok()) return unpacked.status();
  array.bytes = unpacked->bytes;
  array.owner = unpacked->owner;
  array.mapped = unpacked->mapped;
  return array;
}

std::string IdxHeader(const std::vector<int64_t>& shape) {
  return Header(kUnsignedByte, shape);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/data/npy.h"

#include <zip.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/data/file_mapping.h"
#include "re2/re2.h"

namespace holdfast {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
// After the magic: two bytes of version, and two or four of length.
constexpr size_t kVersionEnd = 8;

struct TypeCode {
  absl::string_view code;
  ElementType type;
};
// The type codes after the byte order.
constexpr TypeCode kTypes[] = {
    {"b1", ElementType::kUint8},   {"u1", ElementType::kUint8},
    {"i1", ElementType::kInt8},    {"u2", ElementType::kUint16},
    {"i2", ElementType::kInt16},   {"u4", ElementType::kUint32},
    {"i4", ElementType::kInt32},   {"u8", ElementType::kUint64},
    {"i8", ElementType::kInt64},   {"f4", ElementType::kFloat32},
    {"f8", ElementType::kFloat64},
};

absl::Status Error(absl::StatusCode code, absl::string_view place,
                   absl::string_view what) {
  return absl::Status(
      code, absl::StrCat("cannot read NumPy array ", place, ": ", what));
}

// Parses the dictionary of the header, as written by Python.
absl::Status ParseHeader(absl::string_view header, TypedArray* array) {
  const auto invalid = [&](absl::string_view what) {
    return Error(absl::StatusCode::kInvalidArgument, array->place, what);
  };
  const re2::StringPiece text(header.data(), header.size());
  std::string descr, order, dimensions;
  if (!RE2::PartialMatch(text, R"('descr': *'([^']*)')", &descr)) {
    return invalid(
        "it is not a plain array of numbers (its type has fields); save each "
        "field as an array of its own");
  }
  if (!RE2::PartialMatch(text, R"('fortran_order': *(True|False))", &order) ||
      !RE2::PartialMatch(text, R"('shape': *\(([0-9, ]*)\))", &dimensions)) {
    return invalid("its header lacks fortran_order or shape");
  }
  if (order == "True") {
    return invalid(
        "it is in Fortran order; save numpy.ascontiguousarray(array)");
  }
  bool known = false;
  for (const TypeCode& each : kTypes) {
    if (descr.size() != 3 || descr.substr(1) != each.code) continue;
    array->type = each.type;
    known = true;
  }
  if (!known) {
    return invalid(absl::StrCat(
        "its type is \"", absl::CEscape(descr),
        "\"; supported are bool, integers, float32 and float64: save "
        "array.astype(...)"));
  }
  array->big_endian = descr[0] == '>';
  for (const absl::string_view part :
       absl::StrSplit(dimensions, ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size)) return invalid("its shape is damaged");
    if (size == 0) {
      return invalid(
          absl::StrCat("its shape is (", dimensions, "): it is empty"));
    }
    array->shape.push_back(size);
  }
  if (array->shape.empty()) {
    return invalid(
        "it is a single number; the first dimension is that of the "
        "examples");
  }
  return absl::OkStatus();
}

// Fills in everything but the owner and the place, which is set already.
absl::Status Parse(absl::Span<const uint8_t> file, TypedArray* array) {
  const absl::string_view text(reinterpret_cast<const char*>(file.data()),
                               file.size());
  const auto data_loss = [&](absl::string_view what) {
    return Error(absl::StatusCode::kDataLoss, array->place, what);
  };
  if (!absl::StartsWith(text, kMagic.substr(0, text.size()))) {
    return Error(
        absl::StatusCode::kInvalidArgument, array->place,
        absl::StartsWith(text, "PK")
            ? "it is an archive; name one of its arrays: \"FILE.npz:NAME\""
            : "it is not a .npy file; save it with numpy.save");
  }
  constexpr absl::string_view kEndsInHeader = "the file ends within its header";
  if (file.size() < kVersionEnd) return data_loss(kEndsInHeader);
  const int version = file[kMagic.size()];
  if (version < 1 || version > 3) {
    return Error(absl::StatusCode::kInvalidArgument, array->place,
                 absl::StrCat("it has version ", version,
                              " of the format; supported are 1 to 3"));
  }
  const size_t begin = kVersionEnd + (version == 1 ? 2 : 4);
  if (file.size() < begin) return data_loss(kEndsInHeader);
  size_t header_size = 0;
  for (size_t i = begin; i-- > kVersionEnd;) {
    header_size = header_size << 8 | file[i];
  }
  if (header_size > file.size() - begin) return data_loss(kEndsInHeader);
  HOLDFAST_RETURN_IF_ERROR(ParseHeader(text.substr(begin, header_size), array));

  const size_t values = begin + header_size;
  int64_t bytes = TypeSize(array->type);
  bool overflow = false;
  for (const int64_t size : array->shape) {
    overflow = overflow || __builtin_mul_overflow(bytes, size, &bytes);
  }
  const int64_t there = file.size() - values;
  if (overflow || bytes > there) {
    return data_loss(absl::StrCat("the file ends early: (",
                                  absl::StrJoin(array->shape, ", "), ") ",
                                  TypeName(array->type), " take more than the ",
                                  there, " bytes after the header"));
  }
  if (bytes < there) {
    return data_loss(
        absl::StrCat(there - bytes, " bytes after the end of the array"));
  }
  array->bytes = file.subspan(values);
  array->header =
      absl::StrCat("npy ", array->big_endian ? ">" : "<", TypeName(array->type),
                   " ", absl::StrJoin(array->shape, ","), "\n");
  return absl::OkStatus();
}

// Writes the bytes of array `name` of the archive at `path`.
absl::Status UnpackMember(const std::string& path, const std::string& name,
                          const std::string& place, ReadingProgress* progress,
                          ByteSink* bytes) {
  int code = 0;
  zip_t* const archive = zip_open(path.c_str(), ZIP_RDONLY, &code);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const absl::Cleanup finish = [&error] { zip_error_fini(&error); };
    if (code == ZIP_ER_NOENT) {
      return Error(absl::StatusCode::kNotFound, place, "there is no such file");
    }
    return Error(absl::StatusCode::kInvalidArgument, place,
                 zip_error_strerror(&error));
  }
  const absl::Cleanup close = [archive] { zip_discard(archive); };
  const auto damaged = [&] {
    return Error(absl::StatusCode::kDataLoss, place, zip_strerror(archive));
  };
  const std::string member = name + ".npy";
  zip_stat_t info;
  if (zip_stat(archive, member.c_str(), 0, &info) != 0) {
    std::vector<std::string> names;
    for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
      const char* const entry = zip_get_name(archive, i, 0);
      if (entry == nullptr) continue;
      names.emplace_back(absl::StripSuffix(entry, ".npy"));
    }
    return Error(absl::StatusCode::kNotFound, place,
                 absl::StrCat("the archive has no such array; it has ",
                              absl::StrJoin(names, ", ")));
  }
  if ((info.valid & ZIP_STAT_SIZE) == 0 ||
      info.size > std::numeric_limits<int64_t>::max()) {
    return damaged();
  }
  zip_file_t* const file = zip_fopen(archive, member.c_str(), 0);
  if (file == nullptr) return damaged();
  const absl::Cleanup close_file = [file] { zip_fclose(file); };
  if (progress != nullptr) {
    progress->Begin(place, static_cast<int64_t>(info.size));
  }
  // Reads the actual contents, whatever size the archive claims.
  std::vector<uint8_t> piece(1 << 20);
  for (zip_uint64_t done = 0; done < info.size;) {
    const zip_int64_t n =
        zip_fread(file, piece.data(),
                  std::min<zip_uint64_t>(piece.size(), info.size - done));
    if (n <= 0) {
      return Error(absl::StatusCode::kDataLoss, place,
                   n < 0 ? zip_file_strerror(file) : "the archive ends early");
    }
    absl::Status status = bytes->Append({piece.data(), static_cast<size_t>(n)});
    if (!status.ok()) return status;
    if (progress != nullptr) progress->Add(n);
    done += n;
  }
  // Reading beyond the last byte verifies the checksum.
  uint8_t more;
  if (zip_fread(file, &more, 1) < 0) {
    return Error(absl::StatusCode::kDataLoss, place, zip_file_strerror(file));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TypedArray> ReadNpy(const std::string& path,
                                   const ReadingOptions& options) {
  constexpr absl::string_view kArchive = ".npz:";
  TypedArray array;
  array.place = absl::StrCat("\"", path, "\"");
  absl::Span<const uint8_t> file;
  const size_t archive = absl::string_view(path).rfind(kArchive);
  if (archive != absl::string_view::npos) {
    const std::string name = path.substr(archive + kArchive.size());
    const std::string file_path = path.substr(0, archive + kArchive.size() - 1);
    const auto unpacked =
        Unpack(options, "npz", file_path, name, [&](ByteSink* bytes) {
          return UnpackMember(file_path, name, array.place, options.progress,
                              bytes);
        });
    if (!unpacked.ok()) return unpacked.status();
    file = unpacked->bytes;
    array.owner = unpacked->owner;
    array.mapped = unpacked->mapped;
  } else {
    HOLDFAST_ASSIGN_OR_RETURN(const auto mapping, FileMapping::Open(path));
    file = mapping->bytes();
    array.owner = mapping;
    array.mapped = true;
  }
  HOLDFAST_RETURN_IF_ERROR(Parse(file, &array));
  return array;
}

}  // namespace holdfast

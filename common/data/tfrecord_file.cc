// SPDX-License-Identifier: Apache-2.0
#include "common/data/tfrecord_file.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/data/tfrecord_frame.h"

namespace holdfast {
namespace {

using ::google::protobuf::io::CodedInputStream;

constexpr int64_t kHeader = kTfRecordHeaderBytes;
constexpr int64_t kTrailer = kTfRecordTrailerBytes;

uint64_t Length(const uint8_t* record) {
  uint64_t length = 0;
  CodedInputStream::ReadLittleEndian64FromArray(record, &length);
  return length;
}

uint32_t Mask(const uint8_t* at) {
  uint32_t mask = 0;
  CodedInputStream::ReadLittleEndian32FromArray(at, &mask);
  return mask;
}

absl::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace

absl::StatusOr<TfRecordReader> TfRecordReader::Open(
    const std::string& path, const ReadingOptions& options) {
  HOLDFAST_ASSIGN_OR_RETURN(auto file,
                            ReadFileBytes(path, "TFRecord", options));
  return TfRecordReader(path, std::move(file));
}

absl::StatusOr<bool> TfRecordReader::Next(Record* record) {
  const absl::Span<const uint8_t> bytes = file_.bytes;
  const int64_t left = static_cast<int64_t>(bytes.size()) - next_;
  if (left == 0) return false;
  const uint8_t* const begin = bytes.data() + next_;
  if (left < kHeader) {
    return NextError(absl::StatusCode::kDataLoss,
                     "the file ends within the record's length; it is "
                     "truncated");
  }
  if (TfRecordMask(Text(begin, 8)) != Mask(begin + 8)) {
    if (records_ == 0) {
      return NextError(absl::StatusCode::kInvalidArgument,
                       "not a TFRecord file: it does not begin with a length "
                       "and its checksum; decompress it first if it is "
                       "compressed by anything but gzip");
    }
    return NextError(absl::StatusCode::kDataLoss,
                     "the checksum of the record's length is wrong, and no "
                     "further record can be found: the file is damaged; get "
                     "it again");
  }
  const uint64_t length = Length(begin);
  if (left < kHeader + kTrailer ||
      length > static_cast<uint64_t>(left - kHeader - kTrailer)) {
    return NextError(
        absl::StatusCode::kDataLoss,
        absl::StrCat("the file ends early: the record takes ", length,
                     " bytes and its checksum, and there are ", left - kHeader,
                     "; it is truncated"));
  }
  record->offset = next_;
  record->data = Text(begin + kHeader, length);
  record->intact = TfRecordMask(record->data) == Mask(begin + kHeader + length);
  offset_ = next_;
  next_ += kHeader + static_cast<int64_t>(length) + kTrailer;
  ++records_;
  return true;
}

absl::Status TfRecordReader::Error(absl::StatusCode code,
                                   absl::string_view what) const {
  return ErrorAt(code, records_ - 1, offset_, what);
}

absl::Status TfRecordReader::NextError(absl::StatusCode code,
                                       absl::string_view what) const {
  return ErrorAt(code, records_, next_, what);
}

absl::Status TfRecordReader::ErrorAt(absl::StatusCode code, int64_t record,
                                     int64_t offset,
                                     absl::string_view what) const {
  return absl::Status(
      code,
      absl::StrCat("cannot read TFRecord file \"", path_, "\": record ", record,
                   " (from 0), at byte ", offset,
                   file_.is_gzip ? " of the unpacked data" : "", ": ", what));
}

void TfRecordIndex::AddFile(const std::string& path, const FileBytes& file) {
  files_.push_back({path, file, records()});
}

const TfRecordIndex::File& TfRecordIndex::FileOf(int64_t record) const {
  // The first file that begins after `record`; the file before it has the
  // record.
  const auto behind = std::upper_bound(
      files_.begin(), files_.end(), record,
      [](int64_t record, const File& file) { return record < file.first; });
  return *std::prev(behind);
}

absl::StatusOr<absl::string_view> TfRecordIndex::Read(int64_t record) const {
  const File& file = FileOf(record);
  const int64_t offset = offsets_[record];
  const absl::Span<const uint8_t> bytes = file.file.bytes;
  const uint8_t* const begin = bytes.data() + offset;
  const uint64_t length = Length(begin);
  if (length > bytes.size() - offset - kHeader - kTrailer) {
    return absl::DataLossError(
        absl::StrCat("\"", file.path,
                     "\" was changed while it was read; to change data under "
                     "a running job write another file and rename it"));
  }
  return Text(begin + kHeader, length);
}

std::string TfRecordIndex::Place(int64_t record) const {
  const File& file = FileOf(record);
  return absl::StrCat("record ", record - file.first, " (from 0) of \"",
                      file.path, "\"");
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/encoding.h"

#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/crc32c.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace holdfast {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

namespace {

constexpr size_t kMostMessageBytes = std::numeric_limits<int32_t>::max();

}  // namespace

void AppendFixed32(uint32_t value, std::string* bytes) {
  uint8_t encoded[4];
  CodedOutputStream::WriteLittleEndian32ToArray(value, encoded);
  bytes->append(reinterpret_cast<const char*>(encoded), sizeof(encoded));
}

void AppendFixed64(uint64_t value, std::string* bytes) {
  uint8_t encoded[8];
  CodedOutputStream::WriteLittleEndian64ToArray(value, encoded);
  bytes->append(reinterpret_cast<const char*>(encoded), sizeof(encoded));
}

uint32_t Fixed32At(const char* bytes) {
  uint32_t value;
  CodedInputStream::ReadLittleEndian32FromArray(
      reinterpret_cast<const uint8_t*>(bytes), &value);
  return value;
}

uint64_t Fixed64At(const char* bytes) {
  uint64_t value;
  CodedInputStream::ReadLittleEndian64FromArray(
      reinterpret_cast<const uint8_t*>(bytes), &value);
  return value;
}

absl::StatusOr<std::string> EncodeMessage(
    const google::protobuf::MessageLite& message) {
  if (message.ByteSizeLong() > kMostMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(message.GetTypeName(), " of ", message.ByteSizeLong(),
                     " bytes: protobuf's limit is 2 GiB"));
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeWithCachedSizes(&coded);
  }
  return bytes;
}

absl::Status CheckMagic(absl::string_view path, absl::string_view bytes,
                        absl::string_view magic) {
  const absl::string_view found = bytes.substr(0, kMagicBytes);
  if (found == magic) return absl::OkStatus();
  constexpr size_t kKind = kMagicBytes - 2;
  if (found.substr(0, kKind) == magic.substr(0, kKind)) {
    return absl::DataLossError(absl::StrCat(
        path, ": has format version \"", absl::CHexEscape(found.substr(kKind)),
        "\"; this program reads \"", magic.substr(kKind), "\""));
  }
  return absl::DataLossError(
      absl::StrCat(path, ": has \"", absl::CHexEscape(found), "\" where \"",
                   magic, "\" should be"));
}

absl::Status ReadExactly(ReadableFile* file, absl::string_view path,
                         uint64_t offset, uint64_t size, char* into) {
  const absl::Status read = file->Read(offset, size, into);
  if (!absl::IsOutOfRange(read)) return read;
  return absl::DataLossError(
      absl::StrCat(path, ": has become shorter than byte ", offset + size));
}

absl::Status ReadMessage(ReadableFile* file, absl::string_view path,
                         uint64_t offset, uint64_t size, uint32_t crc32c,
                         google::protobuf::MessageLite* message) {
  if (size > kMostMessageBytes) {
    return absl::DataLossError(absl::StrCat(
        path, ": a ", message->GetTypeName(), " cannot have ", size, " bytes"));
  }
  std::string bytes(size, '\0');
  HOLDFAST_RETURN_IF_ERROR(ReadExactly(file, path, offset, size, &bytes[0]));
  const uint32_t found = Crc32c(bytes);
  if (found != crc32c) {
    return absl::DataLossError(
        absl::StrFormat("%s: its %s has CRC32C %08x, expected %08x", path,
                        message->GetTypeName(), found, crc32c));
  }
  if (!message->ParseFromString(bytes)) {
    return absl::DataLossError(
        absl::StrCat(path, ": cannot parse ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

}  // namespace holdfast

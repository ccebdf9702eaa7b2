// SPDX-License-Identifier: Apache-2.0

// Encodings common to the files of a checkpoint directory
// (docs/formats/checkpoint.md): a magic, little-endian numbers, and messages
// with a CRC32C. Private to the library.
#ifndef HOLDFAST_COMMON_CHECKPOINT_ENCODING_H_
#define HOLDFAST_COMMON_CHECKPOINT_ENCODING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/file_system.h"
#include "google/protobuf/message_lite.h"

namespace holdfast {

// The length of a magic: six letters for the kind of file, and two digits for
// the format's version.
inline constexpr uint64_t kMagicBytes = 8;

// Suffix of a file that is being written.
inline constexpr absl::string_view kAsideSuffix = ".tmp";

void AppendFixed32(uint32_t value, std::string* bytes);
void AppendFixed64(uint64_t value, std::string* bytes);
uint32_t Fixed32At(const char* bytes);
uint64_t Fixed64At(const char* bytes);

// Serializes deterministically: equal messages give equal bytes.
// Errors: INVALID_ARGUMENT for 2 GiB or more, which protobuf cannot parse.
absl::StatusOr<std::string> EncodeMessage(
    const google::protobuf::MessageLite& message);

// Checks that `bytes` begin with `magic`.
// Errors: DATA_LOSS. The message says whether the bytes are another version of
// the format, or something else.
absl::Status CheckMagic(absl::string_view path, absl::string_view bytes,
                        absl::string_view magic);

// Fills `into` with the `size` bytes at `offset`, which exist according to the
// file's size.
// Errors: DATA_LOSS when the file has become shorter; those of the file system.
absl::Status ReadExactly(ReadableFile* file, absl::string_view path,
                         uint64_t offset, uint64_t size, char* into);
// Reads a message of `size` bytes.
// Errors: as ReadExactly; DATA_LOSS also when the checksum differs, or the
// bytes do not parse as the message.
absl::Status ReadMessage(ReadableFile* file, absl::string_view path,
                         uint64_t offset, uint64_t size, uint32_t crc32c,
                         google::protobuf::MessageLite* message);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_ENCODING_H_

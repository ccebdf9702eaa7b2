// SPDX-License-Identifier: Apache-2.0
#include "common/data/tfrecord_frame.h"

#include "common/checkpoint/crc32c.h"

namespace holdfast {
namespace {

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) {
    out->push_back(static_cast<char>(value >> (8 * i)));
  }
}

}  // namespace

uint32_t TfRecordMask(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

void AppendTfRecord(absl::string_view data, std::string* file) {
  std::string length;
  AppendLittleEndian(data.size(), 8, &length);
  file->append(length);
  AppendLittleEndian(TfRecordMask(length), 4, file);
  file->append(data.data(), data.size());
  AppendLittleEndian(TfRecordMask(data), 4, file);
}

}  // namespace holdfast

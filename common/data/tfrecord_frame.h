// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_TFRECORD_FRAME_H_
#define HOLDFAST_COMMON_DATA_TFRECORD_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

// A record of a TFRecord file, in the format of tf.data and TensorBoard:
//
//   record = length mask(length) data mask(data)
//   length = 8 bytes, little-endian: the length of data
//   mask   = 4 bytes, little-endian: with c the CRC-32C of the bytes,
//            (c rotated right by 15) + 0xa282ead8, modulo 2^32
constexpr size_t kTfRecordHeaderBytes = 12;
constexpr size_t kTfRecordTrailerBytes = 4;

// The `mask` of `bytes`, as defined above.
uint32_t TfRecordMask(absl::string_view bytes);

// Appends the record of `data`.
void AppendTfRecord(absl::string_view data, std::string* file);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_TFRECORD_FRAME_H_

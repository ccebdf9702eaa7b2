// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IDX_H_
#define HOLDFAST_COMMON_DATA_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/data/typed_array.h"
#include "common/data/unpack.h"

namespace holdfast {

// Reads the IDX file at `path`, plain or gzip (unpacked_file.h), the format in
// which LeCun, Cortes and Burges published MNIST:
//
//   file   = 0x00 0x00 type ndims size{ndims} value{product of sizes}
//   type   = 0x08 uint8 / 0x09 int8 / 0x0b int16 / 0x0c int32
//          / 0x0d float32 / 0x0e float64
//   ndims  = one byte, at least 1
//   size   = 4 bytes, big-endian
//   value  = as the type says, big-endian; row-major, the last dimension runs
//            fastest
//
// A plain file is mapped. A gzip file is unpacked (unpack.h); a size in its
// header that is larger than the file can contain is refused before memory is
// taken.
//
// Errors contain the file and the offset of the offending byte; for a gzip
// file, the offsets in the unpacked data and in the file itself:
//   NOT_FOUND, PERMISSION_DENIED, ...: those of the system.
//   INVALID_ARGUMENT: not IDX, of another type, or with an empty dimension.
//   DATA_LOSS: truncated, damaged (gzip checksums included), or with bytes
//     after the end.
//   Those of DataCache.
absl::StatusOr<TypedArray> ReadIdx(const std::string& path,
                                   const ReadingOptions& options = {});

// The bytes before the values in a plain IDX file of uint8 values of `shape`.
std::string IdxHeader(const std::vector<int64_t>& shape);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IDX_H_

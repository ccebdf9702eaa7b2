#ifndef HOLDFAST_WORKER_INPUT_IDX_H_
#define HOLDFAST_WORKER_INPUT_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// An array of bytes as an IDX file holds it, the format in which LeCun, Cortes
// and Burges published MNIST:
//
//   file   = 0x00 0x00 type ndims size{ndims} value{product of sizes}
//   type   = 0x08                 ; unsigned byte, the only type read here
//   ndims  = one byte
//   size   = 4 bytes, big-endian
//   value  = one byte; row-major, the last dimension runs fastest
struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
};

// Reads the IDX file at `path`, plain or gzip (RFC 1952, one member or
// several), with `dimensions` dimensions. What is in the file decides which it
// is, not its name. Takes no more memory than the file can fill.
//
// Errors name the file and the offset of the offending byte, in a gzip file
// that of the unpacked data and that in the file itself:
//   NOT_FOUND, PERMISSION_DENIED, ...: as the system says.
//   INVALID_ARGUMENT: not IDX, of another type or number of dimensions, or with
//     an empty dimension.
//   DATA_LOSS: truncated, damaged (checksums of gzip included), or with bytes
//     behind the end.
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions);

// The bytes before the values in the plain IDX file of an array of `shape`.
std::string IdxHeader(const std::vector<int64_t>& shape);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_IDX_H_

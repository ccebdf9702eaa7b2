// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_NPY_H_
#define HOLDFAST_COMMON_DATA_NPY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/data/typed_array.h"
#include "common/data/unpack.h"

namespace holdfast {

// Reads an array saved by NumPy (numpy.lib.format, versions 1 to 3): the file
// at `path`, which is mapped; or, if `path` is "FILE.npz:NAME", the array NAME
// of an archive, which is unpacked (unpack.h).
//
// Errors contain the file, and the array if it is in an archive:
//   NOT_FOUND, PERMISSION_DENIED, ...: those of the system; NOT_FOUND for an
//     array that the archive lacks, with the names of those that it has.
//   INVALID_ARGUMENT: not .npy, of a non-numeric type, in Fortran order,
//     without dimensions, or with an empty one.
//   DATA_LOSS: truncated, damaged, or with bytes after the end.
//   Those of DataCache.
absl::StatusOr<TypedArray> ReadNpy(const std::string& path,
                                   const ReadingOptions& options = {});

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_NPY_H_

#ifndef HOLDFAST_COMMON_DATA_NPY_H_
#define HOLDFAST_COMMON_DATA_NPY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/data/typed_array.h"
#include "common/data/unpack.h"

namespace holdfast {

// Reads an array that NumPy has saved (numpy.lib.format, versions 1 to 3): the
// file at `path`, which is mapped; or, where `path` is "FILE.npz:NAME", the
// array NAME of an archive, which is unpacked (unpack.h).
//
// Errors name the file, and the array where it is one of an archive:
//   NOT_FOUND, PERMISSION_DENIED, ...: as the system says; NOT_FOUND for an
//     array that the archive lacks, with those that it has.
//   INVALID_ARGUMENT: not .npy, of a type that is no number, in Fortran's
//     order, of no dimensions, or with an empty one.
//   DATA_LOSS: truncated, damaged, or with bytes behind the end.
//   Those of DataCache.
absl::StatusOr<TypedArray> ReadNpy(const std::string& path,
                                   const ReadingOptions& options = {});

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_NPY_H_

// SPDX-License-Identifier: Apache-2.0

// Common functions for writing NumPy files. Private to holdfast checkpoint.
#ifndef HOLDFAST_CLI_NPY_H_
#define HOLDFAST_CLI_NPY_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/file_system.h"

namespace holdfast {

// The header of a .npy file of version 1.0 (numpy.lib.format): the array's
// description as a Python literal, padded so that the elements begin at a
// multiple of 64 bytes. `type` is a NumPy type such as "<f4".
std::string NpyHeader(absl::string_view type, absl::Span<const int64_t> shape);

// Replaces the file `output` with what `write` appends, or leaves it unchanged
// if that fails.
absl::Status ReplaceFile(
    const std::string& output,
    absl::FunctionRef<absl::Status(WritableFile* file)> write);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_NPY_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_CHECKPOINT_EXPORT_H_
#define HOLDFAST_CLI_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/table_export.h"
#include "common/checkpoint/data_file.h"

namespace holdfast {

struct ExportOptions {
  // The file to write; an existing file is replaced. Its name determines its
  // format: FILE.safetensors, FILE.onnx, or .npz for any other name.
  std::string output;
  // Whether to export the slots of the optimizers as well.
  bool slots = false;
  // Only variables and tables whose names begin with one of these prefixes are
  // exported. Default: all are.
  std::vector<std::string> prefixes;
  // For .onnx: weights as 8-bit integers (OnnxOptions).
  bool int8 = false;
  // The memory in which values of a table are sorted, in bytes. With more
  // memory, large tables are read fewer times.
  uint64_t table_window_bytes = uint64_t{1} << 30;
};

// Writes variables as NumPy's .npz, a zip of .npy files without compression,
// which would hardly help; or as .safetensors.
// numpy.load(output)["dense/kernel"] is a variable's values,
// ["dense/kernel:slot0"] the first slot of its optimizer; names of variables do
// not contain colons. This takes a few MiB of memory. Tables are written to
// separate files (cli/table_export.h); if only tables are wanted, `output`
// itself is not written. If `output` ends with .onnx, writes the job's whole
// model (cli/onnx_model.h), which takes memory for all variables.
//
// Errors: INVALID_ARGUMENT when there is no such variable, or for options that
// cannot be combined; those of the reader and of MakeOnnxModel; UNAVAILABLE
// when the file cannot be written. After an error, an existing file is
// unchanged.
absl::Status ExportCheckpoint(CheckpointReader* reader,
                              const ExportOptions& options);

// Writes the changes that steps after `since_step` made to the tables chosen by
// `options` (cli/table_export.h). Only the options that apply to tables are
// used.
//
// Errors: INVALID_ARGUMENT when there is no such table, or the checkpoint is of
// an earlier step; FAILED_PRECONDITION when the rows removed since that step
// are not known; those of the reader and of the file system.
absl::StatusOr<std::vector<TableChanges>> ExportChanges(
    CheckpointReader* reader, const ExportOptions& options,
    uint64_t since_step);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHECKPOINT_EXPORT_H_

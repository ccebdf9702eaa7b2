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
  // The file to write, in place of one that is there: FILE.safetensors,
  // FILE.onnx, or a .npz by any other name.
  std::string output;
  // Slots of the optimizers too.
  bool slots = false;
  // Variables and tables whose name begins with one of these. Default: all.
  std::vector<std::string> prefixes;
  // Of .onnx: weights as 8-bit integers (OnnxOptions).
  bool int8 = false;
  // Memory for values of a table, in bytes. More reads a large one less often.
  uint64_t table_window_bytes = uint64_t{1} << 30;
};

// Writes variables as NumPy's .npz: a zip of .npy files, not compressed, as
// values hardly can be; or as .safetensors. numpy.load(output)["dense/kernel"]
// is a variable's values, ["dense/kernel:slot0"] the first slot of its
// optimizer; a colon is in no variable's name. The memory that it takes is a
// few MiB. Tables are written beside it (cli/table_export.h); no `output` is
// written where tables alone are wanted. Or writes the job's whole model as
// .onnx (cli/onnx_model.h), which takes memory for all variables.
//
// Errors: INVALID_ARGUMENT when there is no such variable, or options do not
// belong together; those of the reader and of MakeOnnxModel; UNAVAILABLE when
// the file cannot be written. After an error a file that was there is as it
// was.
absl::Status ExportCheckpoint(CheckpointReader* reader,
                              const ExportOptions& options);

// Writes, of the tables that `options` choose, what steps after `since_step`
// have changed (cli/table_export.h); of `options`, what is for tables counts.
//
// Errors: INVALID_ARGUMENT when there is no such table, or the checkpoint is of
// an earlier step; FAILED_PRECONDITION when what was removed is not known since
// that step; those of the reader and of the file system.
absl::StatusOr<std::vector<TableChanges>> ExportChanges(
    CheckpointReader* reader, const ExportOptions& options,
    uint64_t since_step);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_CHECKPOINT_EXPORT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_OFFLINE_PREDICTION_FILE_H_
#define HOLDFAST_WORKER_OFFLINE_PREDICTION_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/file_system.h"
#include "proto/job.pb.h"

namespace holdfast {

// How a model's outputs become the columns of a prediction file, according to
// the model's loss and the data's schema.
struct PredictionColumns {
  enum class Kind {
    // Softmax turns the outputs into probabilities, one for each class.
    kSoftmax,
    // Sigmoid turns each output into a probability; a single output becomes the
    // probability of class 1.
    kSigmoid,
    // The outputs themselves are the predictions.
    kNumbers,
  };
  Kind kind = Kind::kNumbers;
  // Whether the outputs predict a class.
  bool classes = false;
  // Indexed by output: the name of its class or target. Empty: classes and
  // targets have no names.
  std::vector<std::string> names;
  // Returns the name of the file that is this example. Null if examples are not
  // files.
  std::function<std::string(int64_t example)> file_of;
};

// Returns the columns for a job whose model has `num_outputs` outputs.
// `predict_class` is that of OutputSpec. The outputs of a registered model are
// kNumbers.
PredictionColumns ColumnsOf(const proto::Job& job, int64_t num_outputs,
                            bool predict_class);

// These return the header line of a prediction file, and the line of one
// example. The columns are `example`, counted from 0; `file`, if examples are
// files; `class`, by name if classes have names; and a column for each
// probability or number.
std::string PredictionHeader(const PredictionColumns& columns,
                             int64_t num_outputs);
std::string PredictionLine(const PredictionColumns& columns, int64_t example,
                           absl::Span<const float> outputs);

// Writes a CSV file of predictions. The file gets its name when it is complete.
//
// Thread-compatible.
class PredictionFile {
 public:
  // Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(
      const std::string& path, PredictionColumns columns, int64_t num_outputs);
  ~PredictionFile();

  // Adds a line for each of the next examples. `outputs` are their outputs,
  // row-major: [examples, outputs].
  absl::Status Add(absl::Span<const float> outputs);
  absl::Status Finish();

 private:
  PredictionFile(std::string path, PredictionColumns columns,
                 int64_t num_outputs, std::unique_ptr<WritableFile> file);
  absl::Status Flush();

  const std::string path_;
  const PredictionColumns columns_;
  const int64_t num_outputs_;
  std::unique_ptr<WritableFile> file_;
  bool finished_ = false;
  int64_t next_example_ = 0;
  std::string text_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_OFFLINE_PREDICTION_FILE_H_

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

// What a model's outputs mean, as its loss and the data's schema say.
struct PredictionColumns {
  enum class Kind {
    // Softmax makes probabilities of them, one for each class.
    kSoftmax,
    // Sigmoid does, each by itself; of a single one, that of class 1.
    kSigmoid,
    // They are the predictions.
    kNumbers,
  };
  Kind kind = Kind::kNumbers;
  // Whether the outputs tell classes apart.
  bool classes = false;
  // By output: the name of the class or target. Empty: they have none.
  std::vector<std::string> names;
  // The file that an example is. Null: they are no files.
  std::function<std::string(int64_t example)> file_of;
};

// Of a job whose model has so many outputs. A registered model's are numbers.
PredictionColumns ColumnsOf(const proto::Job& job, int64_t num_outputs,
                            bool predict_class);

// The first line of a file of predictions, and that of an example: `example`,
// from 0; `file`, where it is one; `class`, by name where it has one; and a
// column for each probability or number.
std::string PredictionHeader(const PredictionColumns& columns,
                             int64_t num_outputs);
std::string PredictionLine(const PredictionColumns& columns, int64_t example,
                           absl::Span<const float> outputs);

// Writes a CSV file of predictions, which has its name once it is whole.
//
// Thread-compatible.
class PredictionFile {
 public:
  // Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<PredictionFile>> Create(
      const std::string& path, PredictionColumns columns, int64_t num_outputs);
  ~PredictionFile();

  // Adds the examples whose outputs these are, [examples, outputs], row-major.
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

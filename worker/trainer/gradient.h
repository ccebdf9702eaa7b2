// The gradient of a batch, on its way from the model to the cluster.
#ifndef HOLDFAST_WORKER_TRAINER_GRADIENT_H_
#define HOLDFAST_WORKER_TRAINER_GRADIENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "worker/input/batch.h"
#include "worker/model/model.h"

namespace holdfast {

// Computes gradients of a job's batches and hands them to pushes.
//
// A gradient is, by place, that of a variable or, behind the variables, of the
// rows of a table.
//
// Thread-compatible.
class GradientComputer {
 public:
  struct Options {
    // Parts that a batch is computed in. More take less memory in the model;
    // from 2 on the gradient is summed in memory of its own.
    uint32_t micro_batches = 1;
    // Of the norm over all variables but those that are averaged. Absent: it is
    // not clipped.
    std::optional<float> max_global_norm;
  };

  // A gradient of its own memory, by variable and, behind those, by table; and
  // the ids of each table's rows.
  struct Kept {
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<uint64_t>> ids;
  };

  struct Result {
    // Behind the gradient. 0: there is nothing to give, and what was handed to
    // the push must not count.
    uint64_t examples = 0;
    // Mean over the examples.
    double loss = 0;
    // The gradient is to be multiplied by this.
    float clip_factor = 1;
    // What was not a finite number: "the loss", "a gradient". Empty: nothing.
    absl::string_view not_finite;
  };

  // `model` must outlive the computer.
  GradientComputer(Model* model, const Options& options);

  // Computes the gradient of the mean loss over `batch`, which may be empty, at
  // `at` and the batch's rows, and hands that of each variable and table to
  // `push` as soon as it is ready.
  //
  // A gradient lies in the push's own memory where there is some, in which the
  // model writes it if it can. What else the push was handed stays as it is
  // until the next call; with `keep`, whatever is computed next, as long as
  // nobody else touches `keep`. That is a copy of a gradient that is computed
  // in one part, which costs no copy otherwise. Errors: those of the model,
  // of Push::Add and of Push::AddRows.
  absl::StatusOr<Result> Compute(const Parameters& at, const Batch& batch,
                                 Cluster::Push* push, Kept* keep = nullptr);

 private:
  Model* const model_;
  const Options options_;
  // By variable, whether its gradient counts in the norm.
  std::vector<bool> is_in_norm_;
  std::vector<ModelTable> tables_;
  // Of micro-batches, where they are not to be kept and the push has no memory.
  Kept sums_;
  // Likewise, their ids.
  std::vector<TableBags> part_bags_;
  // By variable and table, of the gradient that is being computed.
  std::vector<double> squares_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_GRADIENT_H_

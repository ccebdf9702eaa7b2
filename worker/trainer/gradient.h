// SPDX-License-Identifier: Apache-2.0

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

// Computes the gradients of a job's batches and hands them to pushes.
//
// A gradient's index is that of its variable; the indices after the variables
// are for the rows of the tables.
//
// Thread-compatible.
class GradientComputer {
 public:
  struct Options {
    // The number of parts in which a batch is computed. More take less memory
    // in the model; from 2 on, the gradient is summed in separate memory.
    uint32_t micro_batches = 1;
    // The limit of the gradient's norm over all variables except moving
    // averages. Absent: the gradient is not clipped.
    std::optional<float> max_global_norm;
  };

  // A gradient in its own memory, indexed by variable and, after the variables,
  // by table; and the ids of each table's rows.
  struct Kept {
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<uint64_t>> ids;
  };

  struct Result {
    // The number of examples in the gradient. 0: there is nothing to
    // contribute, and what was handed to the push must not count.
    uint64_t examples = 0;
    // Mean over the examples.
    double loss = 0;
    // The factor by which the gradient must be multiplied.
    float clip_factor = 1;
    // What was not finite: "the loss", "a gradient". Empty: nothing.
    absl::string_view not_finite;
  };

  // `model` must outlive the computer.
  GradientComputer(Model* model, const Options& options);

  // Computes the gradient of the mean loss over `batch`, which may be empty, at
  // the values `at` and the batch's rows, and hands the gradient of each
  // variable and table to `push` as soon as it is ready.
  //
  // A gradient is in the push's own memory if the push has some; the model
  // writes it there if it can. Other gradients that the push was given stay
  // unchanged until the next call; with `keep`, as long as `keep` is not
  // touched, whatever is computed next. With `keep`, a gradient that is
  // computed in one part is copied, which it is not otherwise.
  // Errors: those of the model, of Push::Add and of Push::AddRows.
  absl::StatusOr<Result> Compute(const Parameters& at, const Batch& batch,
                                 Cluster::Push* push, Kept* keep = nullptr);

 private:
  Model* const model_;
  const Options options_;
  // Indexed by variable: whether its gradient counts in the norm.
  std::vector<bool> is_in_norm_;
  std::vector<ModelTable> tables_;
  // The sums over micro-batches, if there is no `keep` and the push has no
  // memory.
  Kept sums_;
  // The ids of the micro-batches.
  std::vector<TableBags> part_bags_;
  // Indexed by variable and table: the squared norms of the gradient that is
  // being computed.
  std::vector<double> squares_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_GRADIENT_H_

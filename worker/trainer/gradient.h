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
// The index of a gradient is the index of its variable. The indices after those
// of the variables are for the gradients of the tables' rows.
//
// Thread-compatible.
class GradientComputer {
 public:
  struct Options {
    // The number of parts in which a batch is computed. With more parts the
    // model takes less memory; with 2 or more, the gradient is summed in
    // separate memory.
    uint32_t micro_batches = 1;
    // The limit of the gradient's norm over all variables and tables except
    // moving averages. Absent: the gradient is not clipped.
    std::optional<float> max_global_norm;
  };

  // A copy of a whole gradient. `gradients` is indexed by variable and, after
  // the variables, by table; `ids` is indexed by table: the ids of its rows.
  struct Kept {
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<uint64_t>> ids;
  };

  struct Result {
    // The number of examples in the gradient. 0: there is nothing to
    // contribute, and the gradients that were handed to the push must not
    // count.
    uint64_t examples = 0;
    // The mean loss over the examples.
    double loss = 0;
    // The factor by which the gradient must be multiplied.
    float clip_factor = 1;
    // What was not finite: "the loss" or "a gradient". Empty: everything was
    // finite.
    absl::string_view not_finite;
  };

  // `model` must outlive the computer.
  GradientComputer(Model* model, const Options& options);

  // Whether Compute may be called while parameters are still arriving.
  bool awaits_parameters() const { return model_->AwaitsParameters(); }

  // Computes the gradient of the mean loss over `batch`, which may be empty, at
  // the values `at` of the variables and the rows in `batch`. Hands the
  // gradient of each variable and table to `push` as soon as it is ready.
  //
  // If the push has memory of its own for a gradient, the gradient ends there,
  // and the model writes it there directly if it can. The push refers to all
  // other gradients: they stay unchanged until the next call or, if `keep` is
  // not null, until the caller changes `keep`. If `keep` is not null, they are
  // copied to it, also if the batch is computed in one part.
  //
  // If `batch.arrival` is not null, values are read from `at` only after its
  // Await has returned OK for them. All have arrived before the first call of
  // `push`, and before this returns OK, unless the batch is empty.
  // Errors: those of the model, of Push::Add and of Push::AddRows.
  absl::StatusOr<Result> Compute(const Parameters& at, const Batch& batch,
                                 Cluster::Push* push, Kept* keep = nullptr);

 private:
  Model* const model_;
  const Options options_;
  // Indexed by variable: whether its gradient counts in the norm.
  std::vector<bool> is_in_norm_;
  std::vector<ModelTable> tables_;
  // The sums over micro-batches, if `keep` is null and the push has no memory
  // of its own.
  Kept sums_;
  // The ids of each micro-batch, indexed by micro-batch.
  std::vector<TableBags> part_bags_;
  // Indexed by gradient: the squared norms of the gradients that are being
  // computed.
  std::vector<double> squares_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_GRADIENT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_LOSSES_H_
#define HOLDFAST_WORKER_MODEL_LOSSES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"

namespace holdfast {

// The function of its outputs and their targets that a NetworkModel minimizes.
//
// Immutable, and so thread-safe.
class Loss {
 public:
  // Errors: INVALID_ARGUMENT when `config` names no loss.
  static absl::StatusOr<Loss> Create(const proto::Loss& config);

  // Returns the number of classes for a model with `num_outputs` outputs:
  // labels must be in [0, NumClasses).
  int64_t NumClasses(int64_t num_outputs) const {
    return num_outputs == 1 ? classes_of_one_output_ : num_outputs;
  }

  // Whether the targets may be values instead of labels.
  bool TakesValues() const { return takes_values_; }

  // Whether `num_outputs` outputs predict a class if the targets are labels.
  bool PredictsClass(int64_t num_outputs) const {
    return num_outputs > 1 || classes_of_one_output_ <= 2;
  }

  // Begins to compute the loss of `outputs` [examples, outputs] and, if
  // `gradient` is not null, the gradient of the mean loss with respect to the
  // outputs, by the backend's function of the same name. Does not wait. Errors:
  // those of the backend.
  absl::StatusOr<PendingLoss> Start(Backend* backend, ConstMatrix outputs,
                                    const Targets& targets,
                                    Matrix* gradient) const {
    return backend->StartLoss(function_, outputs, targets, gradient);
  }

 private:
  Loss(const LossFunction& function, int64_t classes_of_one_output,
       bool takes_values)
      : function_(function),
        classes_of_one_output_(classes_of_one_output),
        takes_values_(takes_values) {}

  LossFunction function_;
  int64_t classes_of_one_output_;
  bool takes_values_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LOSSES_H_

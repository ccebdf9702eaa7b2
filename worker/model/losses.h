#ifndef HOLDFAST_WORKER_MODEL_LOSSES_H_
#define HOLDFAST_WORKER_MODEL_LOSSES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"

namespace holdfast {

// What a NetworkModel makes small: a function of its outputs and of what they
// should be.
//
// Immutable, thus thread-safe.
class Loss {
 public:
  // Errors: INVALID_ARGUMENT when `config` tells of none.
  static absl::StatusOr<Loss> Create(const proto::Loss& config);

  // With so many outputs it takes labels from 0 to below this.
  int64_t NumClasses(int64_t num_outputs) const {
    return num_outputs == 1 ? classes_of_one_output_ : num_outputs;
  }

  // Whether the targets may be values in place of labels.
  bool TakesValues() const { return takes_values_; }

  // Whether so many outputs predict a class, where the targets are labels.
  bool PredictsClass(int64_t num_outputs) const {
    return num_outputs > 1 || classes_of_one_output_ <= 2;
  }

  // The loss of `outputs` [examples, outputs], and where `gradient` is not null
  // that of the mean loss by the outputs: the backend's function of the loss's
  // name, which is not waited for. Errors: those of the backend.
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

#ifndef HOLDFAST_WORKER_MODEL_LOSSES_H_
#define HOLDFAST_WORKER_MODEL_LOSSES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"

namespace holdfast {

// What a Sequential makes small: a function of its outputs and of what they
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
  bool TakesValues() const {
    return function_ != &Backend::SoftmaxCrossEntropy;
  }

  // The loss of `outputs` [examples, outputs], and where `gradient` is not null
  // that of the mean loss by the outputs: the backend's function of the loss's
  // name. Errors: those of the backend.
  absl::StatusOr<LossSums> Compute(Backend* backend, ConstMatrix outputs,
                                   const Targets& targets,
                                   Matrix* gradient) const {
    return (backend->*function_)(outputs, targets, gradient);
  }

 private:
  using Function = absl::StatusOr<LossSums> (Backend::*)(ConstMatrix outputs,
                                                         const Targets& targets,
                                                         Matrix* gradient);

  Loss(Function function, int64_t classes_of_one_output)
      : function_(function), classes_of_one_output_(classes_of_one_output) {}

  Function function_;
  int64_t classes_of_one_output_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_LOSSES_H_

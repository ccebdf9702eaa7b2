// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_PARAMETER_ARRIVAL_H_
#define HOLDFAST_WORKER_MODEL_PARAMETER_ARRIVAL_H_

#include <cstddef>

#include "absl/status/status.h"

namespace holdfast {

// The arrival of the parameters for one call of Model::ComputeGradients, some
// of which are still on their way from the ps (Batch::arrival).
//
// Used by the thread that calls the model.
class ParameterArrival {
 public:
  virtual ~ParameterArrival() = default;

  // Waits until the values of the variable at this index have arrived;
  // `parameters[variable]` then refers to them. Parameters arrive roughly in
  // the order of Model::Variables.
  // Errors: the values will not arrive in time, or those that have arrived are
  // of no use any more. The model must then return from ComputeGradients, with
  // this error or another one; the caller knows the reason.
  virtual absl::Status Await(size_t variable) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_PARAMETER_ARRIVAL_H_

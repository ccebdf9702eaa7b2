// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_CHECK_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "worker/input/batch.h"
#include "worker/model/model.h"

namespace holdfast {

// Compares the gradients of `model` at `parameters`, element by element, with
// central differences of the model's mean loss in training, (f(x + h) - f(x -
// h)) / 2 h. Compares the gradients of the table rows that the batch uses in
// the same way. Also checks that every trainable variable and each table gets
// exactly one gradient, of the right size. Meant for tests of models that have
// few parameters, at values away from kinks of the loss.
//
// Randomness in training is the same in every pass if it follows from
// `batch.positions`, as it should. Without positions nothing is random: the
// loss of Evaluate must then be that of training, and is compared too, unless
// some variables are moving averages, with which evaluation differs from
// training. The gradients of moving averages are not compared.
//
// The losses are computed in float32, so with h = `step` a difference has an
// error of about 1e-7 / h from rounding and h^2 from curvature: 1e-2 is a good
// step. Errors: FAILED_PRECONDITION, with the variable or table, the element
// and both values, if they differ by more than `tolerance`; those of the model.
absl::Status CheckGradients(Model* model,
                            std::vector<std::vector<float>> parameters,
                            Batch batch, float step = 1e-2f,
                            double tolerance = 2e-4);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_CHECK_H_

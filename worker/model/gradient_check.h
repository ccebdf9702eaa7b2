#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_CHECK_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "worker/input/batch.h"
#include "worker/model/model.h"

namespace holdfast {

// Compares the gradients of `model` at `parameters` with central differences of
// its mean loss in training, (f(x + h) - f(x - h)) / 2 h, element by element;
// likewise by the rows that the batch has of each table; and tests that every
// trainable variable and each table gets a gradient, once and of its size. For
// tests of models, with few parameters and away from kinks of the loss.
//
// What is random in training is the same in every pass, if it follows from
// `batch.positions` as it should. Without positions nothing is random: then
// Evaluate must find the same loss, too, unless some variables are averaged
// over steps, which are not compared either: batches are not evaluated as they
// are trained on.
//
// The losses come of float32, so that with h = `step` a difference is wrong by
// about 1e-7 / h for rounding and h^2 for curvature: 1e-2 is a good step.
// Errors: FAILED_PRECONDITION with the variable or table, the element and both
// values, where they differ by more than `tolerance`; those of the model.
absl::Status CheckGradients(Model* model,
                            std::vector<std::vector<float>> parameters,
                            Batch batch, float step = 1e-2f,
                            double tolerance = 2e-4);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_CHECK_H_

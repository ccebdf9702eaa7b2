// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_PRECISION_H_
#define HOLDFAST_WORKER_BACKEND_PRECISION_H_

namespace holdfast {

// The format to which the factors of products, in MatMul and in convolutions,
// are rounded: to the nearest value, ties to even; a float16 beyond 65504 is
// infinite. Products are summed in float32, and everything else is float32
// (Micikevicius et al. 2018), unless a backend also rounds activations
// (Backend::ReserveRounded).
enum class Precision { kFloat32, kBfloat16, kFloat16 };

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PRECISION_H_

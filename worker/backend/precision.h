#ifndef HOLDFAST_WORKER_BACKEND_PRECISION_H_
#define HOLDFAST_WORKER_BACKEND_PRECISION_H_

namespace holdfast {

// What the factors of products are rounded to, those of MatMul and of
// convolutions: to the nearest and of two to the even one; beyond 65504 float16
// is infinite. Products are summed in float32, and all else is float32
// (Micikevicius et al. 2018).
enum class Precision { kFloat32, kBfloat16, kFloat16 };

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PRECISION_H_

// SPDX-License-Identifier: Apache-2.0
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/gpu/device_under_test.h"
#include "tests/gpu/emulated_cudnn.h"
#include "tests/gpu/emulation.h"
#include "worker/backend/cuda/cublas.h"
#include "worker/backend/cuda/cuda_device_math.h"
#include "worker/backend/halves.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {
namespace {

std::function<void(std::function<void()>)> g_enqueue;

CBLAS_TRANSPOSE Transposition(cublasOperation_t operation) {
  return operation == CUBLAS_OP_T ? CblasTrans : CblasNoTrans;
}

cublasStatus_t Sgemm(cublasHandle_t, cublasOperation_t a_form,
                     cublasOperation_t b_form, int m, int n, int k,
                     const float* alpha, const float* a, int lda,
                     const float* b, int ldb, const float* beta, float* c,
                     int ldc) {
  // Like cuBLAS, it reads the factors during the call.
  g_enqueue([=, alpha = *alpha, beta = *beta] {
    cblas_sgemm(CblasColMajor, Transposition(a_form), Transposition(b_form), m,
                n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t SgemmStridedBatched(
    cublasHandle_t handle, cublasOperation_t a_form, cublasOperation_t b_form,
    int m, int n, int k, const float* alpha, const float* a, int lda,
    long long a_step, const float* b, int ldb, long long b_step,
    const float* beta, float* c, int ldc, long long c_step, int count) {
  for (int i = 0; i < count; ++i) {
    Sgemm(handle, a_form, b_form, m, n, k, alpha, a + i * a_step, lda,
          b + i * b_step, ldb, beta, c + i * c_step, ldc);
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Decodes 16-bit numbers, as defined by IEEE 754 or for bfloat16.
std::vector<float> Decode(const void* halves, int64_t size,
                          cudaDataType_t type) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t half = static_cast<const uint16_t*>(halves)[i];
    const int exponent = half >> 10 & 0x1f;
    const int fraction = half & 0x3ff;
    if (type == CUDA_R_16BF) {
      values[i] = halves::FromBits(half << 16);
    } else if (exponent == 31) {
      values[i] = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
      values[i] = std::ldexp(fraction, -24);
    } else {
      values[i] = std::ldexp(1024 + fraction, exponent - 25);
    }
    if (type != CUDA_R_16BF && (half & 0x8000) != 0) values[i] = -values[i];
  }
  return values;
}

cublasStatus_t GemmEx(cublasHandle_t, cublasOperation_t a_form,
                      cublasOperation_t b_form, int m, int n, int k,
                      const void* alpha, const void* a, cudaDataType_t a_type,
                      int lda, const void* b, cudaDataType_t b_type, int ldb,
                      const void* beta, void* c, cudaDataType_t c_type, int ldc,
                      cublasComputeType_t compute, cublasGemmAlgo_t) {
  // Either kind of halves is multiplied to float32 or to the same kind, to
  // which nothing is added here.
  const bool rounds = c_type != CUDA_R_32F;
  if (compute != CUBLAS_COMPUTE_32F || a_type != b_type ||
      (rounds && (c_type != a_type || *static_cast<const float*>(beta) != 0))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  g_enqueue([=, alpha = *static_cast<const float*>(alpha),
             beta = *static_cast<const float*>(beta)] {
    // Every column except the last extends to the beginning of the next.
    const auto size = [](int rows, int cols, int leading) {
      return cols == 0 ? 0 : int64_t{cols - 1} * leading + rows;
    };
    const std::vector<float> left = Decode(
        a, a_form == CUBLAS_OP_T ? size(k, m, lda) : size(m, k, lda), a_type);
    const std::vector<float> right = Decode(
        b, b_form == CUBLAS_OP_T ? size(n, k, ldb) : size(k, n, ldb), b_type);
    const auto multiply = [&](float beta, float* product) {
      cblas_sgemm(CblasColMajor, Transposition(a_form), Transposition(b_form),
                  m, n, k, alpha, left.data(), lda, right.data(), ldb, beta,
                  product, ldc);
    };
    if (!rounds) return multiply(beta, static_cast<float*>(c));
    std::vector<float> product(size(m, n, ldc));
    multiply(0, product.data());
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < m; ++i) {
        const int64_t at = int64_t{j} * ldc + i;
        static_cast<uint16_t*>(c)[at] = c_type == CUDA_R_16F
                                            ? halves::ToFloat16(product[at])
                                            : halves::ToBfloat16(product[at]);
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t GemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t a_form, cublasOperation_t b_form,
    int m, int n, int k, const void* alpha, const void* a,
    cudaDataType_t a_type, int lda, long long a_step, const void* b,
    cudaDataType_t b_type, int ldb, long long b_step, const void* beta, void* c,
    cudaDataType_t c_type, int ldc, long long c_step, int count,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  for (int i = 0; i < count; ++i) {
    const int64_t c_bytes = i * c_step * (c_type == CUDA_R_32F ? 4 : 2);
    const cublasStatus_t status = GemmEx(
        handle, a_form, b_form, m, n, k, alpha,
        static_cast<const uint16_t*>(a) + i * a_step, a_type, lda,
        static_cast<const uint16_t*>(b) + i * b_step, b_type, ldb, beta,
        static_cast<char*>(c) + c_bytes, c_type, ldc, compute, algorithm);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

absl::StatusOr<const Cublas*> LoadCublas() {
  constexpr auto kSuccess = CUBLAS_STATUS_SUCCESS;
  static const Cublas cublas = {
      .create = [](cublasHandle_t*) { return kSuccess; },
      .destroy = [](cublasHandle_t) { return kSuccess; },
      .set_stream = [](cublasHandle_t, cudaStream_t) { return kSuccess; },
      .set_workspace = [](cublasHandle_t, void*, size_t) { return kSuccess; },
      .set_math_mode = [](cublasHandle_t, cublasMath_t) { return kSuccess; },
      .set_atomics_mode = [](cublasHandle_t,
                             cublasAtomicsMode_t) { return kSuccess; },
      .sgemm_strided_batched = SgemmStridedBatched,
      .sgemm = Sgemm,
      .gemm_strided_batched_ex = GemmStridedBatchedEx,
      .gemm_ex = GemmEx,
      .get_status_string = [](cublasStatus_t) { return "an error"; }};
  return &cublas;
}

absl::Status CublasStatus(const Cublas&, cublasStatus_t status,
                          absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(what);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(
    const ProductOptions& products) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return absl::UnimplementedError("sanitizers do not support fibers");
#endif
  auto runtime = std::make_unique<HostRuntime>(HostRuntime::Options{.seed = 2});
  g_enqueue = [runtime = runtime.get()](std::function<void()> work) {
    runtime->Enqueue(StreamId::kCompute, std::move(work));
  };
  EmulateOn(g_enqueue);
  // Enough memory for one or two images at a time.
  auto math = CudaDeviceMath::Create(
      nullptr, 9,
      {.tf32 = products.tf32,
       .precision = products.precision,
       .activations = products.activations,
       .max_columns_bytes = 4000,
       .cudnn = products.cudnn ? EmulatedCudnn(g_enqueue) : nullptr});
  if (!math.ok()) return math.status();
  StreamBackend::Options options;
  options.name = "emulation";
  options.description.core = "the host, in emulation of a GPU";
  return std::make_unique<StreamBackend>(std::move(runtime), *std::move(math),
                                         std::move(options));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeDelayedDeviceUnderTest(
    const DelayOptions&) {
  return absl::UnimplementedError("the emulation is not delayed");
}

bool DeviceHasTheCpusBits() { return false; }

bool DeviceHasTwins() { return false; }

bool DeviceIsSlow() { return true; }

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUBLAS_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUBLAS_H_

#include <cublas_v2.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// The functions of cuBLAS that we call, which LoadCublas finds in the shared
// library: a worker must also start on machines without cuBLAS. The names are
// cuBLAS's own.
struct Cublas {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetWorkspace_v2) set_workspace;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasSetAtomicsMode) set_atomics_mode;
  decltype(&cublasSgemmStridedBatched) sgemm_strided_batched;
  decltype(&cublasSgemm_v2) sgemm;
  // cuBLAS overloads these in C++; these are the C functions.
  cublasStatus_t (*gemm_strided_batched_ex)(
      cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
      const void* alpha, const void* a, cudaDataType_t, int lda,
      long long a_step, const void* b, cudaDataType_t, int ldb,
      long long b_step, const void* beta, void* c, cudaDataType_t, int ldc,
      long long c_step, int batch, cublasComputeType_t, cublasGemmAlgo_t);
  cublasStatus_t (*gemm_ex)(cublasHandle_t, cublasOperation_t,
                            cublasOperation_t, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType_t,
                            int lda, const void* b, cudaDataType_t, int ldb,
                            const void* beta, void* c, cudaDataType_t, int ldc,
                            cublasComputeType_t, cublasGemmAlgo_t);
  decltype(&cublasGetStatusString) get_status_string;
};

// Returns the functions of cuBLAS. The first call loads the library, which
// stays loaded.
// Errors: FAILED_PRECONDITION, naming the places searched, when the library is
// not found, or is not the version that we were built for. Thread-safe.
absl::StatusOr<const Cublas*> LoadCublas();

// Converts cuBLAS's result of trying to do `what` to a Status: OK or INTERNAL.
absl::Status CublasStatus(const Cublas& cublas, cublasStatus_t status,
                          absl::string_view what);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUBLAS_H_

#include <cblas.h>

#include <algorithm>
#include <utility>

#include "tests/gpu/device_under_test.h"
#include "tests/gpu/emulation.h"
#include "worker/backend/cuda/cublas.h"
#include "worker/backend/cuda/cuda_device_math.h"
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
  // As cuBLAS does, it takes the factors while it is called.
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
      .get_status_string = [](cublasStatus_t) { return "an error"; }};
  return &cublas;
}

absl::Status CublasStatus(const Cublas&, cublasStatus_t, absl::string_view) {
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceUnderTest(bool tf32) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return absl::UnimplementedError("sanitizers do not know fibers");
#endif
  auto runtime = std::make_unique<HostRuntime>(HostRuntime::Options{.seed = 2});
  g_enqueue = [runtime = runtime.get()](std::function<void()> work) {
    runtime->Enqueue(StreamId::kCompute, std::move(work));
  };
  EmulateOn(g_enqueue);
  // An image or two at a time.
  auto math =
      CudaDeviceMath::Create(nullptr, 9, {.tf32 = tf32, .max_columns = 2000});
  if (!math.ok()) return math.status();
  StreamBackend::Options options;
  options.name = "emulation";
  options.description.core = "the host, in emulation of a GPU";
  return std::make_unique<StreamBackend>(std::move(runtime), *std::move(math),
                                         std::move(options));
}

bool DeviceHasTheCpusBits() { return false; }

bool DeviceHasTwins() { return false; }

bool DeviceIsSlow() { return true; }

}  // namespace holdfast

#ifndef HOLDFAST_WORKER_BACKEND_CPU_CPU_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/backend/backend.h"

namespace holdfast {

// The backend on the host's own cores: OpenBLAS for matrix products, plain
// loops for the rest. Its memory is the host's; nothing is copied, and every
// operation has ended when its call returns.
//
// Thread-compatible. OpenBLAS has one number of threads per process: it is that
// of the backend made last.
class CpuBackend final : public Backend {
 public:
  struct Options {
    // Threads within a matrix product. More are faster for large products, as
    // long as there are idle cores. Results are reproducible for a fixed number
    // only.
    int threads = 1;
  };

  // Errors: INVALID_ARGUMENT when `threads` is below 1 or above what OpenBLAS
  // was built for.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(Options options);

  Description Describe() const override;

  absl::Status Reserve(int64_t size, DeviceBuffer* buffer) override;
  absl::StatusOr<ConstMatrix> Upload(absl::Span<const float> host, int64_t rows,
                                     int64_t cols,
                                     DeviceBuffer* staging) override;
  absl::StatusOr<Download> StartDownload(ConstMatrix matrix) override;
  absl::StatusOr<bool> HasArrived(const Download& download) override;
  absl::Status Await(const Download& download) override;

  void MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
              Matrix c) override;
  void AddBias(ConstMatrix bias, Matrix y) override;
  void SumRows(ConstMatrix x, Matrix sums) override;
  void Relu(ConstMatrix x, Matrix y) override;
  void ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) override;
  void Tanh(ConstMatrix x, Matrix y) override;
  void TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) override;
  void Sigmoid(ConstMatrix x, Matrix y) override;
  void SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) override;
  void Dropout(ConstMatrix x, absl::Span<const int64_t> positions, uint64_t key,
               float rate, Matrix y) override;
  absl::StatusOr<LossSums> SoftmaxCrossEntropy(ConstMatrix logits,
                                               absl::Span<const int32_t> labels,
                                               Matrix* gradient) override;
  absl::StatusOr<LossSums> SigmoidCrossEntropy(ConstMatrix logits,
                                               absl::Span<const int32_t> labels,
                                               Matrix* gradient) override;
  absl::StatusOr<LossSums> MeanSquaredError(ConstMatrix outputs,
                                            absl::Span<const int32_t> labels,
                                            Matrix* gradient) override;

 private:
  explicit CpuBackend(Options options) : options_(options) {}

  const Options options_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_CPU_BACKEND_H_

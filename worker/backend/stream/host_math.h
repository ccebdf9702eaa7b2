// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_STREAM_HOST_MATH_H_
#define HOLDFAST_WORKER_BACKEND_STREAM_HOST_MATH_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/stream/device_math.h"
#include "worker/backend/stream/host_runtime.h"

namespace holdfast {

// The arithmetic of a fake device: each operation is work of a HostRuntime that
// calls another backend, whose memory must be the host's. So tests can expect
// the same bits from the fake device as from the other backend. Overwrites each
// workspace, so that tests notice if other data are kept there.
//
// Thread-compatible.
class HostMath final : public DeviceMath {
 public:
  // `runtime` and `backend` must outlive this object.
  HostMath(HostRuntime* runtime, Backend* backend)
      : runtime_(runtime), backend_(backend) {}

  absl::Status Custom(CustomOperation operation) override;
  int64_t ProductWorkspace(ConstMatrix a, ConstMatrix b) override;
  absl::Status MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                      bool add, Matrix c, float* workspace) override;
  int64_t RoundedCopy(int64_t) override { return 0; }
  bool RoundsActivations() const override {
    return backend_->RoundsActivations();
  }
  absl::Status AddBias(ConstMatrix bias, Matrix y) override;
  int64_t SumWorkspace(int64_t rows, int64_t cols) override;
  absl::Status SumRows(ConstMatrix x, Matrix sums, float* workspace) override;
  absl::Status SumSquares(ConstMatrix x, double* sum,
                          float* workspace) override;
  absl::Status Activate(Activation activation, ConstMatrix x,
                        Matrix y) override;
  absl::Status ActivationGradient(Activation activation, ConstMatrix y,
                                  ConstMatrix dy, Matrix dx) override;
  absl::Status Dropout(ConstMatrix x, const int64_t* positions, uint64_t key,
                       float rate, Matrix y) override;
  absl::Status Copy(ConstMatrix x, Matrix y) override;
  absl::Status Add(ConstMatrix a, ConstMatrix b, Matrix c) override;
  absl::Status Scale(float factor, ConstMatrix x, Matrix y) override;
  absl::Status AddScaled(float factor, ConstMatrix x, Matrix y) override;
  int64_t ConvolutionWorkspace(const Convolution& convolution,
                               int64_t images) override;
  absl::Status Convolve(const Convolution& convolution, ConstMatrix x,
                        ConstMatrix kernel, Matrix y,
                        float* workspace) override;
  absl::Status ConvolveKernelGradient(const Convolution& convolution,
                                      ConstMatrix x, ConstMatrix dy,
                                      Matrix kernel_gradient,
                                      float* workspace) override;
  absl::Status ConvolveInputGradient(const Convolution& convolution,
                                     ConstMatrix kernel, ConstMatrix dy,
                                     Matrix dx, float* workspace) override;
  absl::Status MaxPool(const Window& window, ConstMatrix x, Matrix y) override;
  int64_t MaxPoolGradientWorkspace(const Window& window,
                                   int64_t images) override;
  absl::Status MaxPoolGradient(const Window& window, ConstMatrix x,
                               ConstMatrix y, ConstMatrix dy, Matrix dx,
                               float* workspace) override;
  absl::Status AveragePool(const Window& window, ConstMatrix x,
                           Matrix y) override;
  absl::Status AveragePoolGradient(const Window& window, ConstMatrix dy,
                                   Matrix dx) override;
  absl::Status ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance,
                             float* workspace) override;
  absl::Status NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                ConstMatrix addend, bool relu,
                                Matrix y) override;
  absl::Status NormalizeColumnsGradient(ConstMatrix x, const ColumnNorm& norm,
                                        bool relu, ConstMatrix dy,
                                        Matrix dscale, Matrix doffset,
                                        Matrix dx, float* workspace) override;
  absl::Status NormalizeRows(ConstMatrix x, float epsilon, ConstMatrix scale,
                             ConstMatrix offset, Matrix moments,
                             Matrix y) override;
  absl::Status NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                     ConstMatrix moments, ConstMatrix dy,
                                     Matrix dscale, Matrix doffset, Matrix dx,
                                     float* workspace) override;
  absl::Status SumBags(const DeviceBags& bags, ConstMatrix rows,
                       Matrix y) override;
  absl::Status SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                               Matrix drows) override;
  absl::Status PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                            Matrix sums, Matrix y) override;
  absl::Status AddPairwiseBagsGradient(const DeviceBags& bags, ConstMatrix rows,
                                       ConstMatrix sums, ConstMatrix dy,
                                       Matrix drows) override;
  absl::Status DotPairs(ConstMatrix x, int64_t n, Matrix y) override;
  absl::Status DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                Matrix dx) override;
  absl::Status CopyColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                           int64_t to) override;
  absl::Status AddColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                          int64_t to) override;
  absl::Status Loss(const LossFunction& loss, ConstMatrix outputs,
                    const DeviceTargets& targets, Matrix gradient,
                    DeviceLossSums* sums, float* workspace) override;

 private:
  // Enqueues a call of work(backend_) that first overwrites the workspace.
  absl::Status Enqueue(std::function<void(Backend*)> work,
                       float* workspace = nullptr);

  HostRuntime* const runtime_;
  Backend* const backend_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_STREAM_HOST_MATH_H_

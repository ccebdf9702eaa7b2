// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/stream_backend.h"

#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// In values.
constexpr int64_t kLossSumsSize = sizeof(DeviceLossSums) / sizeof(float);

// The memory that an operation on bags touches: all their parts are in one
// block.
ConstMatrix MemoryOf(const DeviceBags& bags) {
  return {reinterpret_cast<const float*>(bags.offsets), 1, 1};
}

}  // namespace

StreamBackend::StreamBackend(std::unique_ptr<DeviceRuntime> runtime,
                             std::unique_ptr<DeviceMath> math, Options options)
    : description_(std::move(options.description)),
      runtime_(std::move(runtime)),
      math_(std::move(math)),
      streams_(runtime_.get(), std::move(options.name),
               std::move(options.pinned)) {}

void StreamBackend::SetTracer(Tracer* tracer) {
  Backend::SetTracer(tracer);
  streams_.SetTracer(tracer);
}

absl::StatusOr<Matrix> StreamBackend::ReserveFactor(int64_t rows, int64_t cols,
                                                    bool alone,
                                                    DeviceBuffer* buffer) {
  const int64_t size = rows * cols;
  const int64_t copy = math_->RoundedCopy(size);
  if (copy == 0) return Backend::ReserveFactor(rows, cols, alone, buffer);
  // The copy follows the values, at the alignment that products need.
  constexpr int64_t kAlignment = 64;
  const int64_t begin =
      alone ? 0 : (size + kAlignment - 1) / kAlignment * kAlignment;
  HOLDFAST_RETURN_IF_ERROR(Reserve(begin + copy, buffer));
  Matrix matrix = buffer->View(rows, cols);
  matrix.rounded = matrix.data + begin;
  matrix.rounded_alone = alone;
  return matrix;
}

absl::StatusOr<ConstMatrix> StreamBackend::Upload(absl::Span<const float> host,
                                                  int64_t rows, int64_t cols,
                                                  DeviceBuffer* staging) {
  HOLDFAST_RETURN_IF_ERROR(streams_.CopyIn(host.data(), host.size(), staging));
  return staging->View(rows, cols);
}

absl::Status StreamBackend::Custom(absl::Span<const ConstMatrix> touched,
                                   CustomOperation operation) {
  return streams_.Run(touched,
                      [&] { return math_->Custom(std::move(operation)); });
}

void StreamBackend::MatMul(Form form_a, ConstMatrix a, Form form_b,
                           ConstMatrix b, Matrix c) {
  streams_.Keep(Multiply(form_a, a, form_b, b, /*add=*/false, c));
}

void StreamBackend::AddMatMul(Form form_a, ConstMatrix a, Form form_b,
                              ConstMatrix b, Matrix c) {
  streams_.Keep(Multiply(form_a, a, form_b, b, /*add=*/true, c));
}

absl::Status StreamBackend::Multiply(Form form_a, ConstMatrix a, Form form_b,
                                     ConstMatrix b, bool add, Matrix c) {
  return streams_.Run(
      {a, b, c}, math_->ProductWorkspace(a, b),
      [&](float* memory) {
        return math_->MatMul(form_a, a, form_b, b, add, c, memory);
      },
      add ? "AddMatMul" : "MatMul");
}

void StreamBackend::AddBias(ConstMatrix bias, Matrix y) {
  streams_.Keep(
      streams_.Run({bias, y}, [&] { return math_->AddBias(bias, y); }));
}

void StreamBackend::SumRows(ConstMatrix x, Matrix sums) {
  streams_.Keep(streams_.Run(
      {x, sums}, math_->SumWorkspace(x.rows, x.cols),
      [&](float* memory) { return math_->SumRows(x, sums, memory); }));
}

void StreamBackend::SumSquares(ConstMatrix x, Matrix sum) {
  streams_.Keep(streams_.Run(
      {x, sum}, math_->SumWorkspace(x.rows, x.cols), [&](float* memory) {
        return math_->SumSquares(x, reinterpret_cast<double*>(sum.data),
                                 memory);
      }));
}

void StreamBackend::Relu(ConstMatrix x, Matrix y) {
  streams_.Keep(streams_.Run(
      {x, y}, [&] { return math_->Activate(Activation::kRelu, x, y); }));
}

void StreamBackend::ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  streams_.Keep(streams_.Run({y, dy, dx}, [&] {
    return math_->ActivationGradient(Activation::kRelu, y, dy, dx);
  }));
}

void StreamBackend::Tanh(ConstMatrix x, Matrix y) {
  streams_.Keep(streams_.Run(
      {x, y}, [&] { return math_->Activate(Activation::kTanh, x, y); }));
}

void StreamBackend::TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  streams_.Keep(streams_.Run({y, dy, dx}, [&] {
    return math_->ActivationGradient(Activation::kTanh, y, dy, dx);
  }));
}

void StreamBackend::Sigmoid(ConstMatrix x, Matrix y) {
  streams_.Keep(streams_.Run(
      {x, y}, [&] { return math_->Activate(Activation::kSigmoid, x, y); }));
}

void StreamBackend::SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  streams_.Keep(streams_.Run({y, dy, dx}, [&] {
    return math_->ActivationGradient(Activation::kSigmoid, y, dy, dx);
  }));
}

void StreamBackend::Dropout(ConstMatrix x, absl::Span<const int64_t> positions,
                            uint64_t key, float rate, Matrix y) {
  const absl::StatusOr<ConstMatrix> copied =
      streams_.CopySmall(positions.data(), positions.size() * sizeof(int64_t));
  if (!copied.ok()) return streams_.Keep(copied.status());
  streams_.Keep(streams_.Run({x, *copied, y}, [&] {
    return math_->Dropout(x, reinterpret_cast<const int64_t*>(copied->data),
                          key, rate, y);
  }));
}

void StreamBackend::Copy(ConstMatrix x, Matrix y) {
  streams_.Keep(streams_.Run({x, y}, [&] { return math_->Copy(x, y); }));
}

void StreamBackend::Add(ConstMatrix a, ConstMatrix b, Matrix c) {
  streams_.Keep(streams_.Run({a, b, c}, [&] { return math_->Add(a, b, c); }));
}

void StreamBackend::Scale(float factor, ConstMatrix x, Matrix y) {
  streams_.Keep(
      streams_.Run({x, y}, [&] { return math_->Scale(factor, x, y); }));
}

void StreamBackend::AddScaled(float factor, ConstMatrix x, Matrix y) {
  streams_.Keep(
      streams_.Run({x, y}, [&] { return math_->AddScaled(factor, x, y); }));
}

absl::Status StreamBackend::Convolve(const Convolution& convolution,
                                     ConstMatrix x, ConstMatrix kernel,
                                     Matrix y) {
  return streams_.Run(
      {x, kernel, y}, math_->ConvolutionWorkspace(convolution, x.rows),
      [&](float* memory) {
        return math_->Convolve(convolution, x, kernel, y, memory);
      });
}

absl::Status StreamBackend::ConvolveKernelGradient(
    const Convolution& convolution, ConstMatrix x, ConstMatrix dy,
    Matrix kernel_gradient) {
  return streams_.Run({x, dy, kernel_gradient},
                      math_->ConvolutionWorkspace(convolution, x.rows),
                      [&](float* memory) {
                        return math_->ConvolveKernelGradient(
                            convolution, x, dy, kernel_gradient, memory);
                      });
}

absl::Status StreamBackend::ConvolveInputGradient(
    const Convolution& convolution, ConstMatrix kernel, ConstMatrix dy,
    Matrix dx) {
  return streams_.Run({kernel, dy, dx},
                      math_->ConvolutionWorkspace(convolution, dx.rows),
                      [&](float* memory) {
                        return math_->ConvolveInputGradient(convolution, kernel,
                                                            dy, dx, memory);
                      });
}

void StreamBackend::MaxPool(const Window& window, ConstMatrix x, Matrix y) {
  streams_.Keep(
      streams_.Run({x, y}, [&] { return math_->MaxPool(window, x, y); }));
}

void StreamBackend::MaxPoolGradient(const Window& window, ConstMatrix x,
                                    ConstMatrix y, ConstMatrix dy, Matrix dx) {
  streams_.Keep(streams_.Run(
      {x, y, dy, dx}, math_->MaxPoolGradientWorkspace(window, x.rows),
      [&](float* memory) {
        return math_->MaxPoolGradient(window, x, y, dy, dx, memory);
      }));
}

void StreamBackend::AveragePool(const Window& window, ConstMatrix x, Matrix y) {
  streams_.Keep(
      streams_.Run({x, y}, [&] { return math_->AveragePool(window, x, y); }));
}

void StreamBackend::AveragePoolGradient(const Window& window, ConstMatrix dy,
                                        Matrix dx) {
  streams_.Keep(streams_.Run(
      {dy, dx}, [&] { return math_->AveragePoolGradient(window, dy, dx); }));
}

void StreamBackend::ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance) {
  streams_.Keep(
      streams_.Run({x, mean, variance}, math_->SumWorkspace(x.rows, x.cols),
                   [&](float* memory) {
                     return math_->ColumnMoments(x, mean, variance, memory);
                   }));
}

void StreamBackend::NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                     ConstMatrix addend, bool relu, Matrix y) {
  streams_.Keep(streams_.Run(
      {x, norm.mean, norm.variance, norm.scale, norm.offset, addend, y},
      [&] { return math_->NormalizeColumns(x, norm, addend, relu, y); }));
}

void StreamBackend::NormalizeColumnsGradient(ConstMatrix x,
                                             const ColumnNorm& norm, bool relu,
                                             ConstMatrix dy, Matrix dscale,
                                             Matrix doffset, Matrix dx) {
  streams_.Keep(
      streams_.Run({x, norm.mean, norm.variance, norm.scale, norm.offset, dy,
                    dscale, doffset, dx},
                   math_->SumWorkspace(x.rows, x.cols), [&](float* memory) {
                     return math_->NormalizeColumnsGradient(
                         x, norm, relu, dy, dscale, doffset, dx, memory);
                   }));
}

void StreamBackend::NormalizeRows(ConstMatrix x, float epsilon,
                                  ConstMatrix scale, ConstMatrix offset,
                                  Matrix moments, Matrix y) {
  streams_.Keep(streams_.Run({x, scale, offset, moments, y}, [&] {
    return math_->NormalizeRows(x, epsilon, scale, offset, moments, y);
  }));
}

void StreamBackend::NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                          ConstMatrix moments, ConstMatrix dy,
                                          Matrix dscale, Matrix doffset,
                                          Matrix dx) {
  streams_.Keep(
      streams_.Run({x, scale, moments, dy, dscale, doffset, dx},
                   math_->SumWorkspace(x.rows, x.cols), [&](float* memory) {
                     return math_->NormalizeRowsGradient(
                         x, scale, moments, dy, dscale, doffset, dx, memory);
                   }));
}

absl::StatusOr<DeviceBags> StreamBackend::UploadBags(const Bags& bags,
                                                     BagsBuffer* staging) {
  // Each part is aligned so that a warp's reads coalesce.
  constexpr int64_t kAlignment = 32;
  absl::InlinedVector<OrderedStreams::Source, 6> sources;
  int64_t size = 0;
  const auto add = [&](auto part) {
    if (part.empty()) return int64_t{0};
    const int64_t offset = (size + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t count = static_cast<int64_t>(part.size());
    sources.push_back({part.data(), count, offset});
    size = offset + count;
    return offset;
  };
  const int64_t rows = add(bags.rows);
  const int64_t of_uses = add(bags.bags);
  const int64_t weights = add(bags.weights);
  const int64_t offsets = add(bags.offsets);
  const int64_t uses = add(bags.uses);
  const int64_t begins = add(bags.begins);
  HOLDFAST_RETURN_IF_ERROR(streams_.CopyIn(sources, size, staging));
  const float* const memory = staging->View(1, size).data;
  const auto at = [&](int64_t offset) {
    return reinterpret_cast<const uint32_t*>(memory + offset);
  };
  DeviceBags made;
  made.rows = at(rows);
  made.bags = at(of_uses);
  made.weights = bags.weights.empty() ? nullptr : memory + weights;
  made.offsets = at(offsets);
  made.uses = at(uses);
  made.begins = at(begins);
  made.num_uses = static_cast<int64_t>(bags.rows.size());
  made.num_bags = bags.num_bags();
  made.num_rows = bags.num_rows();
  return made;
}

void StreamBackend::SumBags(const DeviceBags& bags, ConstMatrix rows,
                            Matrix y) {
  streams_.Keep(streams_.Run({MemoryOf(bags), rows, y},
                             [&] { return math_->SumBags(bags, rows, y); }));
}

void StreamBackend::SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                                    Matrix drows) {
  streams_.Keep(streams_.Run({MemoryOf(bags), dy, drows}, [&] {
    return math_->SumBagsGradient(bags, dy, drows);
  }));
}

void StreamBackend::PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                                 Matrix sums, Matrix y) {
  streams_.Keep(streams_.Run({MemoryOf(bags), rows, sums, y}, [&] {
    return math_->PairwiseBags(bags, rows, sums, y);
  }));
}

void StreamBackend::AddPairwiseBagsGradient(const DeviceBags& bags,
                                            ConstMatrix rows, ConstMatrix sums,
                                            ConstMatrix dy, Matrix drows) {
  streams_.Keep(streams_.Run({MemoryOf(bags), rows, sums, dy, drows}, [&] {
    return math_->AddPairwiseBagsGradient(bags, rows, sums, dy, drows);
  }));
}

void StreamBackend::DotPairs(ConstMatrix x, int64_t n, Matrix y) {
  streams_.Keep(streams_.Run({x, y}, [&] { return math_->DotPairs(x, n, y); }));
}

void StreamBackend::DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                     Matrix dx) {
  streams_.Keep(streams_.Run(
      {x, dy, dx}, [&] { return math_->DotPairsGradient(x, n, dy, dx); }));
}

void StreamBackend::CopyColumns(ConstMatrix x, int64_t from, int64_t count,
                                Matrix y, int64_t to) {
  streams_.Keep(streams_.Run(
      {x, y}, [&] { return math_->CopyColumns(x, from, count, y, to); }));
}

void StreamBackend::AddColumns(ConstMatrix x, int64_t from, int64_t count,
                               Matrix y, int64_t to) {
  streams_.Keep(streams_.Run(
      {x, y}, [&] { return math_->AddColumns(x, from, count, y, to); }));
}

absl::StatusOr<PendingLoss> StreamBackend::StartLoss(const LossFunction& loss,
                                                     ConstMatrix outputs,
                                                     const Targets& targets,
                                                     Matrix* gradient) {
  const bool are_values = !targets.values.empty();
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto copied,
      are_values ? streams_.CopySmall(targets.values.data(),
                                      targets.values.size() * sizeof(float))
                 : streams_.CopySmall(targets.labels.data(),
                                      targets.labels.size() * sizeof(int32_t)));
  ConstMatrix weights;
  if (!targets.weights.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto copied_weights,
        streams_.CopySmall(targets.weights.data(),
                           targets.weights.size() * sizeof(float)));
    weights = copied_weights;
  }
  DeviceTargets on_device;
  if (are_values) {
    on_device.values = copied.data;
  } else {
    on_device.labels = reinterpret_cast<const int32_t*>(copied.data);
  }
  on_device.weights = weights.data;
  absl::Status status = Reserve(kLossSumsSize, &loss_sums_);
  if (!status.ok()) return status;
  const Matrix sums = loss_sums_.View(1, kLossSumsSize);
  const Matrix dz = gradient != nullptr ? *gradient : Matrix{};
  status = streams_.Run(
      {outputs, copied, weights, dz, sums},
      math_->SumWorkspace(outputs.rows, outputs.cols),
      [&](float* memory) {
        return math_->Loss(loss, outputs, on_device, dz,
                           reinterpret_cast<DeviceLossSums*>(sums.data),
                           memory);
      },
      "Loss");
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto download, StartDownload(sums));
  PendingLoss made;
  made.download = download;
  made.tells_correct = !are_values && (!loss.is_distance() || outputs.cols > 1);
  made.tells_errors = loss.is_distance();
  return made;
}

absl::StatusOr<LossSums> StreamBackend::ReadLoss(const PendingLoss& loss) {
  HOLDFAST_RETURN_IF_ERROR(Await(loss.download));
  DeviceLossSums made;
  std::memcpy(&made, loss.download.values.data(), sizeof(made));
  LossSums sums;
  sums.loss = made.loss;
  if (loss.tells_correct) sums.correct = static_cast<int64_t>(made.correct);
  if (loss.tells_errors) {
    sums.absolute_error = made.absolute_error;
    sums.squared_error = made.squared_error;
  }
  return sums;
}

absl::StatusOr<LossSums> StreamBackend::Loss(const LossFunction& loss,
                                             ConstMatrix outputs,
                                             const Targets& targets,
                                             Matrix* gradient) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto started,
                            StartLoss(loss, outputs, targets, gradient));
  HOLDFAST_ASSIGN_OR_RETURN(const auto sums, ReadLoss(started));
  // The device is idle.
  HOLDFAST_RETURN_IF_ERROR(streams_.CollectTrace());
  return sums;
}

absl::StatusOr<LossSums> StreamBackend::SoftmaxCrossEntropy(
    ConstMatrix logits, const Targets& targets, Matrix* gradient) {
  return Loss({LossKind::kSoftmaxCrossEntropy}, logits, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::SigmoidCrossEntropy(
    ConstMatrix logits, const Targets& targets, Matrix* gradient) {
  return Loss({LossKind::kSigmoidCrossEntropy}, logits, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::MeanSquaredError(ConstMatrix outputs,
                                                         const Targets& targets,
                                                         Matrix* gradient) {
  return Loss({LossKind::kMeanSquaredError}, outputs, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::MeanAbsoluteError(
    ConstMatrix outputs, const Targets& targets, Matrix* gradient) {
  return Loss({LossKind::kMeanAbsoluteError}, outputs, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::Huber(ConstMatrix outputs,
                                              const Targets& targets,
                                              float delta, Matrix* gradient) {
  return Loss({LossKind::kHuber, delta}, outputs, targets, gradient);
}

}  // namespace holdfast

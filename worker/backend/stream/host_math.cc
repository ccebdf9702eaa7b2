// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/host_math.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace holdfast {
namespace {

// The size of the workspace of every operation that has one, in float32 values.
constexpr int64_t kWorkspace = 100;

absl::StatusOr<LossSums> Compute(const LossFunction& loss, Backend* backend,
                                 ConstMatrix outputs, const Targets& targets,
                                 Matrix* gradient) {
  switch (loss.kind) {
    case LossKind::kSoftmaxCrossEntropy:
      return backend->SoftmaxCrossEntropy(outputs, targets, gradient);
    case LossKind::kSigmoidCrossEntropy:
      return backend->SigmoidCrossEntropy(outputs, targets, gradient);
    case LossKind::kMeanAbsoluteError:
      return backend->MeanAbsoluteError(outputs, targets, gradient);
    case LossKind::kHuber:
      return backend->Huber(outputs, targets, loss.delta, gradient);
    case LossKind::kMeanSquaredError:
      break;
  }
  return backend->MeanSquaredError(outputs, targets, gradient);
}

// Whether all indices are in range: they are not if the bags were not copied in
// time.
bool AreBags(const DeviceBags& bags) {
  const auto are_below = [](const uint32_t* numbers, int64_t count,
                            int64_t limit) {
    return std::all_of(numbers, numbers + count,
                       [limit](uint32_t number) { return number < limit; });
  };
  return are_below(bags.rows, bags.num_uses, bags.num_rows) &&
         are_below(bags.bags, bags.num_uses, bags.num_bags) &&
         are_below(bags.uses, bags.num_uses, bags.num_uses) &&
         are_below(bags.offsets, bags.num_bags + 1, bags.num_uses + 1) &&
         are_below(bags.begins, bags.num_rows + 1, bags.num_uses + 1);
}

void Spoil(Matrix matrix) {
  std::fill_n(matrix.data, matrix.size(),
              std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

absl::Status HostMath::Enqueue(std::function<void(Backend*)> work,
                               float* workspace) {
  runtime_->Enqueue(StreamId::kCompute,
                    [work = std::move(work), workspace, backend = backend_] {
                      if (workspace != nullptr) {
                        std::fill_n(workspace, kWorkspace,
                                    std::numeric_limits<float>::quiet_NaN());
                      }
                      work(backend);
                    });
  return absl::OkStatus();
}

absl::Status HostMath::Custom(CustomOperation operation) {
  // When this work is done, the call that enqueued it has returned, so an error
  // cannot be returned.
  return Enqueue([operation = std::move(operation)](Backend*) {
    operation(std::nullopt).IgnoreError();
  });
}

int64_t HostMath::ProductWorkspace(ConstMatrix a, ConstMatrix b) {
  return kWorkspace;
}

absl::Status HostMath::MatMul(Form form_a, ConstMatrix a, Form form_b,
                              ConstMatrix b, bool add, Matrix c,
                              float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        if (add) {
          backend->AddMatMul(form_a, a, form_b, b, c);
        } else {
          backend->MatMul(form_a, a, form_b, b, c);
        }
      },
      workspace);
}

absl::Status HostMath::AddBias(ConstMatrix bias, Matrix y) {
  return Enqueue([=](Backend* backend) { backend->AddBias(bias, y); });
}

int64_t HostMath::SumWorkspace(int64_t rows, int64_t cols) {
  return kWorkspace;
}

absl::Status HostMath::SumRows(ConstMatrix x, Matrix sums, float* workspace) {
  return Enqueue([=](Backend* backend) { backend->SumRows(x, sums); },
                 workspace);
}

absl::Status HostMath::SumSquares(ConstMatrix x, double* sum,
                                  float* workspace) {
  const Matrix memory = {reinterpret_cast<float*>(sum), 1, 2};
  return Enqueue([=](Backend* backend) { backend->SumSquares(x, memory); },
                 workspace);
}

absl::Status HostMath::Activate(Activation activation, ConstMatrix x,
                                Matrix y) {
  return Enqueue([=](Backend* backend) {
    switch (activation) {
      case Activation::kRelu:
        return backend->Relu(x, y);
      case Activation::kTanh:
        return backend->Tanh(x, y);
      case Activation::kSigmoid:
        return backend->Sigmoid(x, y);
    }
  });
}

absl::Status HostMath::ActivationGradient(Activation activation, ConstMatrix y,
                                          ConstMatrix dy, Matrix dx) {
  return Enqueue([=](Backend* backend) {
    switch (activation) {
      case Activation::kRelu:
        return backend->ReluGradient(y, dy, dx);
      case Activation::kTanh:
        return backend->TanhGradient(y, dy, dx);
      case Activation::kSigmoid:
        return backend->SigmoidGradient(y, dy, dx);
    }
  });
}

absl::Status HostMath::Dropout(ConstMatrix x, const int64_t* positions,
                               uint64_t key, float rate, Matrix y) {
  return Enqueue([=](Backend* backend) {
    backend->Dropout(x, absl::MakeConstSpan(positions, x.rows), key, rate, y);
  });
}

absl::Status HostMath::Copy(ConstMatrix x, Matrix y) {
  return Enqueue([=](Backend* backend) { backend->Copy(x, y); });
}

absl::Status HostMath::Add(ConstMatrix a, ConstMatrix b, Matrix c) {
  return Enqueue([=](Backend* backend) { backend->Add(a, b, c); });
}

absl::Status HostMath::Scale(float factor, ConstMatrix x, Matrix y) {
  return Enqueue([=](Backend* backend) { backend->Scale(factor, x, y); });
}

absl::Status HostMath::AddScaled(float factor, ConstMatrix x, Matrix y) {
  return Enqueue([=](Backend* backend) { backend->AddScaled(factor, x, y); });
}

int64_t HostMath::ConvolutionWorkspace(const Convolution& convolution,
                                       int64_t images) {
  return kWorkspace;
}

absl::Status HostMath::Convolve(const Convolution& convolution, ConstMatrix x,
                                ConstMatrix kernel, Matrix y,
                                float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        backend->Convolve(convolution, x, kernel, y).IgnoreError();
      },
      workspace);
}

absl::Status HostMath::ConvolveKernelGradient(const Convolution& convolution,
                                              ConstMatrix x, ConstMatrix dy,
                                              Matrix kernel_gradient,
                                              float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        backend->ConvolveKernelGradient(convolution, x, dy, kernel_gradient)
            .IgnoreError();
      },
      workspace);
}

absl::Status HostMath::ConvolveInputGradient(const Convolution& convolution,
                                             ConstMatrix kernel, ConstMatrix dy,
                                             Matrix dx, float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        backend->ConvolveInputGradient(convolution, kernel, dy, dx)
            .IgnoreError();
      },
      workspace);
}

absl::Status HostMath::MaxPool(const Window& window, ConstMatrix x, Matrix y) {
  return Enqueue([=](Backend* backend) { backend->MaxPool(window, x, y); });
}

int64_t HostMath::MaxPoolGradientWorkspace(const Window& window,
                                           int64_t images) {
  return kWorkspace;
}

absl::Status HostMath::MaxPoolGradient(const Window& window, ConstMatrix x,
                                       ConstMatrix y, ConstMatrix dy, Matrix dx,
                                       float* workspace) {
  return Enqueue(
      [=](Backend* backend) { backend->MaxPoolGradient(window, x, y, dy, dx); },
      workspace);
}

absl::Status HostMath::AveragePool(const Window& window, ConstMatrix x,
                                   Matrix y) {
  return Enqueue([=](Backend* backend) { backend->AveragePool(window, x, y); });
}

absl::Status HostMath::AveragePoolGradient(const Window& window, ConstMatrix dy,
                                           Matrix dx) {
  return Enqueue(
      [=](Backend* backend) { backend->AveragePoolGradient(window, dy, dx); });
}

absl::Status HostMath::ColumnMoments(ConstMatrix x, Matrix mean,
                                     Matrix variance, float* workspace) {
  return Enqueue(
      [=](Backend* backend) { backend->ColumnMoments(x, mean, variance); },
      workspace);
}

absl::Status HostMath::NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                        ConstMatrix addend, bool relu,
                                        Matrix y) {
  return Enqueue([=](Backend* backend) {
    backend->NormalizeColumns(x, norm, addend, relu, y);
  });
}

absl::Status HostMath::NormalizeColumnsGradient(ConstMatrix x,
                                                const ColumnNorm& norm,
                                                bool relu, ConstMatrix dy,
                                                Matrix dscale, Matrix doffset,
                                                Matrix dx, float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        backend->NormalizeColumnsGradient(x, norm, relu, dy, dscale, doffset,
                                          dx);
      },
      workspace);
}

absl::Status HostMath::NormalizeRows(ConstMatrix x, float epsilon,
                                     ConstMatrix scale, ConstMatrix offset,
                                     Matrix moments, Matrix y) {
  return Enqueue([=](Backend* backend) {
    backend->NormalizeRows(x, epsilon, scale, offset, moments, y);
  });
}

absl::Status HostMath::NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                             ConstMatrix moments,
                                             ConstMatrix dy, Matrix dscale,
                                             Matrix doffset, Matrix dx,
                                             float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        backend->NormalizeRowsGradient(x, scale, moments, dy, dscale, doffset,
                                       dx);
      },
      workspace);
}

absl::Status HostMath::SumBags(const DeviceBags& bags, ConstMatrix rows,
                               Matrix y) {
  return Enqueue([=](Backend* backend) {
    if (!AreBags(bags)) return Spoil(y);
    backend->SumBags(bags, rows, y);
  });
}

absl::Status HostMath::SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                                       Matrix drows) {
  return Enqueue([=](Backend* backend) {
    if (!AreBags(bags)) return Spoil(drows);
    backend->SumBagsGradient(bags, dy, drows);
  });
}

absl::Status HostMath::PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                                    Matrix sums, Matrix y) {
  return Enqueue([=](Backend* backend) {
    if (!AreBags(bags)) {
      Spoil(sums);
      return Spoil(y);
    }
    backend->PairwiseBags(bags, rows, sums, y);
  });
}

absl::Status HostMath::AddPairwiseBagsGradient(const DeviceBags& bags,
                                               ConstMatrix rows,
                                               ConstMatrix sums, ConstMatrix dy,
                                               Matrix drows) {
  return Enqueue([=](Backend* backend) {
    if (!AreBags(bags)) return Spoil(drows);
    backend->AddPairwiseBagsGradient(bags, rows, sums, dy, drows);
  });
}

absl::Status HostMath::DotPairs(ConstMatrix x, int64_t n, Matrix y) {
  return Enqueue([=](Backend* backend) { backend->DotPairs(x, n, y); });
}

absl::Status HostMath::DotPairsGradient(ConstMatrix x, int64_t n,
                                        ConstMatrix dy, Matrix dx) {
  return Enqueue(
      [=](Backend* backend) { backend->DotPairsGradient(x, n, dy, dx); });
}

absl::Status HostMath::CopyColumns(ConstMatrix x, int64_t from, int64_t count,
                                   Matrix y, int64_t to) {
  return Enqueue(
      [=](Backend* backend) { backend->CopyColumns(x, from, count, y, to); });
}

absl::Status HostMath::AddColumns(ConstMatrix x, int64_t from, int64_t count,
                                  Matrix y, int64_t to) {
  return Enqueue(
      [=](Backend* backend) { backend->AddColumns(x, from, count, y, to); });
}

absl::Status HostMath::Loss(const LossFunction& loss, ConstMatrix outputs,
                            const DeviceTargets& targets, Matrix gradient,
                            DeviceLossSums* sums, float* workspace) {
  return Enqueue(
      [=](Backend* backend) {
        // Labels that were not copied in time must not be used as indices.
        for (int64_t i = 0; i < outputs.rows && targets.labels != nullptr;
             ++i) {
          const bool any = loss.is_distance() && outputs.cols == 1;
          const int64_t classes = std::max<int64_t>(outputs.cols, 2);
          const int32_t label = targets.labels[i];
          if (any || (label >= 0 && label < classes)) continue;
          *sums = {std::numeric_limits<double>::quiet_NaN(), -1, 0, 0};
          return;
        }
        Matrix dz = gradient;
        const auto span = [](const auto* first, int64_t size) {
          return absl::MakeConstSpan(first, first == nullptr ? 0 : size);
        };
        const absl::StatusOr<LossSums> made =
            Compute(loss, backend, outputs,
                    {span(targets.labels, outputs.rows),
                     span(targets.values, outputs.size()),
                     span(targets.weights, outputs.rows)},
                    dz.data == nullptr ? nullptr : &dz);
        if (!made.ok()) return;
        *sums = {made->loss, static_cast<double>(made->correct.value_or(0)),
                 made->absolute_error.value_or(0),
                 made->squared_error.value_or(0)};
      },
      workspace);
}

}  // namespace holdfast

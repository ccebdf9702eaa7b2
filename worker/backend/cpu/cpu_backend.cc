// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/cpu_backend.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/simd.h"
#include "common/tensor/norm.h"
#include "worker/backend/halves.h"

namespace holdfast {
namespace {

// The size of a cache line, and of the widest vector.
constexpr std::align_val_t kAlignment{64};

CBLAS_TRANSPOSE Transposition(Form form) {
  return form == Form::kTransposed ? CblasTrans : CblasNoTrans;
}

// Returns the index of the greatest of z's n values, the first of equal ones.
int64_t ArgMax(const float* z, int64_t n) {
  return std::max_element(z, z + n) - z;
}

// The target of output j, of n, for example i.
double Target(const Targets& targets, int64_t i, int64_t j, int64_t n) {
  if (!targets.values.empty()) return targets.values[i * n + j];
  const int32_t label = targets.labels[i];
  return n == 1 ? label : (j == label ? 1 : 0);
}

double Weight(const Targets& targets, int64_t i) {
  return targets.weights.empty() ? 1 : targets.weights[i];
}

// The distance of an output from its target, and its derivative with respect to
// the output.
struct Distance {
  double value;
  double slope;
};

// distance(output - target) returns the loss of an output.
template <typename Function>
LossSums SumDistances(ConstMatrix outputs, const Targets& targets,
                      Matrix* gradient, Function distance) {
  LossSums sums;
  int64_t correct = 0;
  double absolute_error = 0;
  double squared_error = 0;
  const int64_t n = outputs.cols;
  const double values = static_cast<double>(outputs.size());
  for (int64_t i = 0; i < outputs.rows; ++i) {
    const float* z = outputs.data + i * n;
    const double weight = Weight(targets, i);
    if (!targets.labels.empty()) {
      correct += ArgMax(z, n) == targets.labels[i] ? 1 : 0;
    }
    double loss = 0;
    double absolute = 0;
    double squares = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double error = z[j] - Target(targets, i, j, n);
      const Distance made = distance(error);
      loss += made.value;
      absolute += std::abs(error);
      squares += error * error;
      if (gradient == nullptr) continue;
      gradient->data[i * n + j] =
          static_cast<float>(weight * made.slope / values);
    }
    sums.loss += weight * loss / static_cast<double>(n);
    absolute_error += absolute / static_cast<double>(n);
    squared_error += squares / static_cast<double>(n);
  }
  if (n > 1 && targets.values.empty()) sums.correct = correct;
  sums.absolute_error = absolute_error;
  sums.squared_error = squared_error;
  return sums;
}

// Rounds `size` values. `to` may be `from`.
void Round(Precision precision, const float* from, int64_t size, float* to) {
  switch (precision) {
    case Precision::kBfloat16:
      for (int64_t i = 0; i < size; ++i) {
        to[i] = halves::RoundToBfloat16(from[i]);
      }
      return;
    case Precision::kFloat16:
      for (int64_t i = 0; i < size; ++i) {
        to[i] = halves::RoundToFloat16(from[i]);
      }
      return;
    case Precision::kFloat32:
      return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(
    Options options) {
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the CPU backend was asked to use ", options.threads,
                     " threads; it needs at least 1"));
  }
  openblas_set_num_threads(options.threads);
  if (const int most = openblas_get_num_threads(); most != options.threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("the CPU backend was asked to use ", options.threads,
                     " threads; this OpenBLAS was built for at most ", most));
  }
  return std::unique_ptr<CpuBackend>(new CpuBackend(options));
}

Backend::Description CpuBackend::Describe() const {
  return {openblas_get_corename(), options_.threads};
}

absl::Status CpuBackend::Reserve(int64_t size, DeviceBuffer* buffer) {
  if (size <= buffer->capacity()) return absl::OkStatus();
  *buffer = DeviceBuffer();
  void* memory = nullptr;
  if (size <= std::numeric_limits<int64_t>::max() / int64_t{sizeof(float)}) {
    memory = ::operator new(size * sizeof(float), kAlignment, std::nothrow);
  }
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size, " values of a model on the CPU"));
  }
  *buffer = DeviceBuffer(static_cast<float*>(memory), size, [](float* data) {
    ::operator delete(data, kAlignment);
  });
  return absl::OkStatus();
}

absl::StatusOr<Matrix> CpuBackend::ReserveFor(absl::Span<float> host,
                                              int64_t rows, int64_t cols,
                                              DeviceBuffer* buffer) {
  if (host.empty()) return Backend::ReserveFor(host, rows, cols, buffer);
  return Matrix{host.data(), rows, cols};
}

absl::StatusOr<ConstMatrix> CpuBackend::Upload(absl::Span<const float> host,
                                               int64_t rows, int64_t cols,
                                               DeviceBuffer* staging) {
  return ConstMatrix{host.data(), rows, cols};
}

absl::StatusOr<HostBuffer> CpuBackend::AllocateHost(int64_t size) {
  float* const memory = new (std::nothrow) float[size];
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size, " values"));
  }
  return HostBuffer(memory, [](float* memory) { delete[] memory; });
}

absl::Status CpuBackend::AwaitUploads() { return absl::OkStatus(); }

absl::StatusOr<Download> CpuBackend::StartDownload(ConstMatrix matrix) {
  if (!error_.ok()) return error_;
  return Download{absl::MakeConstSpan(matrix.data, matrix.size())};
}

absl::StatusOr<bool> CpuBackend::HasArrived(const Download& download) {
  return true;
}

absl::Status CpuBackend::Await(const Download& download) {
  return absl::OkStatus();
}

absl::Status CpuBackend::Share(ConstMatrix matrix, SharedMatrix* shared) {
  if (!error_.ok()) return error_;
  shared->matrix = matrix;
  return absl::OkStatus();
}

absl::StatusOr<ConstMatrix> CpuBackend::Fetch(const SharedMatrix& shared,
                                              DeviceBuffer*) {
  return shared.matrix;
}

absl::Status CpuBackend::Custom(absl::Span<const ConstMatrix>,
                                CustomOperation operation) {
  return operation(std::nullopt);
}

absl::Status CpuBackend::RoundFactors(ConstMatrix* a, ConstMatrix* b) {
  if (options_.precision == Precision::kFloat32) return absl::OkStatus();
  const auto round = [&](ConstMatrix* factor, DeviceBuffer* memory) {
    absl::Status status = Reserve(factor->size(), memory);
    if (!status.ok()) return status;
    const Matrix rounded = memory->View(factor->rows, factor->cols);
    Round(options_.precision, factor->data, factor->size(), rounded.data);
    *factor = rounded;
    return status;
  };
  absl::Status status = round(a, &rounded_a_);
  status.Update(round(b, &rounded_b_));
  return status;
}

void CpuBackend::RoundResult(Matrix made) const {
  if (!made.rounded_alone) return;
  Round(options_.precision, made.data, made.size(), made.data);
}

void CpuBackend::MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                        Matrix c) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  Multiply(form_a, a, form_b, b, 0, c);
  RoundResult(c);
}

void CpuBackend::AddMatMul(Form form_a, ConstMatrix a, Form form_b,
                           ConstMatrix b, Matrix c) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  Multiply(form_a, a, form_b, b, 1, c);
}

void CpuBackend::Multiply(Form form_a, ConstMatrix a, Form form_b,
                          ConstMatrix b, float beta, Matrix c) {
  const int64_t k = form_a == Form::kPlain ? a.cols : a.rows;
  if (c.size() == 0) return;
  error_.Update(RoundFactors(&a, &b));
  if (!error_.ok()) return;
  // BLAS requires leading dimensions of at least 1, even for empty factors.
  cblas_sgemm(CblasRowMajor, Transposition(form_a), Transposition(form_b),
              c.rows, c.cols, k, 1.0f, a.data, std::max<int64_t>(a.cols, 1),
              b.data, std::max<int64_t>(b.cols, 1), beta, c.data, c.cols);
}

void CpuBackend::AddBias(ConstMatrix bias, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  for (int64_t i = 0; i < y.rows; ++i) {
    float* row = y.data + i * y.cols;
    for (int64_t j = 0; j < y.cols; ++j) row[j] += bias.data[j];
  }
}

void CpuBackend::SumRows(ConstMatrix x, Matrix sums) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  std::fill_n(sums.data, sums.size(), 0.0f);
  // Row by row, so that the inner loop is over columns, which are independent:
  // it is vectorized without changing the order of addition.
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* row = x.data + i * x.cols;
    for (int64_t j = 0; j < x.cols; ++j) sums.data[j] += row[j];
  }
}

void CpuBackend::SumSquares(ConstMatrix x, Matrix sum) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const double made =
      SumOfSquares(absl::MakeConstSpan(x.data, static_cast<size_t>(x.size())));
  std::memcpy(sum.data, &made, sizeof(made));
}

void CpuBackend::Relu(ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = x.size();
  for (int64_t i = 0; i < size; ++i) {
    y.data[i] = x.data[i] < 0.0f ? 0.0f : x.data[i];
  }
}

void CpuBackend::ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = y.size();
  for (int64_t i = 0; i < size; ++i) {
    const float value = dy.data[i];
    dx.data[i] = y.data[i] > 0.0f ? value : 0.0f;
  }
}

void CpuBackend::Tanh(ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = x.size();
  for (int64_t i = 0; i < size; ++i) y.data[i] = std::tanh(x.data[i]);
}

void CpuBackend::TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = y.size();
  for (int64_t i = 0; i < size; ++i) {
    dx.data[i] = dy.data[i] * (1.0f - y.data[i] * y.data[i]);
  }
}

void CpuBackend::Sigmoid(ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = x.size();
  for (int64_t i = 0; i < size; ++i) {
    const float e = std::exp(-std::abs(x.data[i]));
    y.data[i] = (x.data[i] < 0.0f ? e : 1.0f) / (1.0f + e);
  }
}

void CpuBackend::SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = y.size();
  for (int64_t i = 0; i < size; ++i) {
    dx.data[i] = dy.data[i] * y.data[i] * (1.0f - y.data[i]);
  }
}

void CpuBackend::Dropout(ConstMatrix x, absl::Span<const int64_t> positions,
                         uint64_t key, float rate, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  constexpr int64_t kWords = 4;
  const std::array<uint32_t, 2> philox_key = {static_cast<uint32_t>(key),
                                              static_cast<uint32_t>(key >> 32)};
  // The product is exact. Words are integers, so they can be compared with the
  // product rounded up instead.
  const uint32_t dropped_below =
      static_cast<uint32_t>(std::ceil(double{rate} * 0x1p32));
  const float scale = static_cast<float>(1.0 / (1.0 - double{rate}));
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* from = x.data + i * x.cols;
    float* to = y.data + i * x.cols;
    const uint64_t position = positions[i];
    for (int64_t j = 0; j < x.cols; j += kWords) {
      const std::array<uint32_t, 4> words =
          Philox4x32({static_cast<uint32_t>(position),
                      static_cast<uint32_t>(position >> 32),
                      static_cast<uint32_t>(j / kWords), 0},
                     philox_key);
      const int64_t end = std::min(x.cols, j + kWords);
      for (int64_t k = j; k < end; ++k) {
        to[k] = words[k - j] < dropped_below ? 0.0f : from[k] * scale;
      }
    }
  }
}

void CpuBackend::Copy(ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  std::copy_n(x.data, x.size(), y.data);
}

void CpuBackend::Add(ConstMatrix a, ConstMatrix b, Matrix c) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = c.size();
  for (int64_t i = 0; i < size; ++i) c.data[i] = a.data[i] + b.data[i];
}

void CpuBackend::Scale(float factor, ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = x.size();
  for (int64_t i = 0; i < size; ++i) y.data[i] = factor * x.data[i];
}

void CpuBackend::AddScaled(float factor, ConstMatrix x, Matrix y) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  const int64_t size = x.size();
  for (int64_t i = 0; i < size; ++i) y.data[i] += factor * x.data[i];
}

absl::StatusOr<LossSums> CpuBackend::SoftmaxCrossEntropy(ConstMatrix logits,
                                                         const Targets& targets,
                                                         Matrix* gradient) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (!error_.ok()) return error_;
  LossSums sums;
  int64_t correct = 0;
  const double examples = static_cast<double>(logits.rows);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const float* z = logits.data + i * logits.cols;
    const int64_t label = targets.labels[i];
    const double weight = Weight(targets, i);
    const int64_t predicted = ArgMax(z, logits.cols);
    const float max = z[predicted];
    const float at_label = z[label];
    float* dz =
        gradient != nullptr ? gradient->data + i * logits.cols : nullptr;
    double sum = 0;
    for (int64_t j = 0; j < logits.cols; ++j) {
      const float e = std::exp(z[j] - max);
      sum += e;
      if (dz != nullptr) dz[j] = e;
    }
    // No term is above 1, and the term of the greatest logit is 1: finite
    // logits give a finite loss.
    sums.loss += weight * (std::log(sum) - (double{at_label} - double{max}));
    correct += predicted == label ? 1 : 0;
    if (dz == nullptr) continue;
    const float scale = static_cast<float>(weight / (sum * examples));
    for (int64_t j = 0; j < logits.cols; ++j) dz[j] *= scale;
    dz[label] -= static_cast<float>(weight / examples);
  }
  sums.correct = correct;
  return sums;
}

absl::StatusOr<LossSums> CpuBackend::SigmoidCrossEntropy(ConstMatrix logits,
                                                         const Targets& targets,
                                                         Matrix* gradient) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (!error_.ok()) return error_;
  LossSums sums;
  int64_t correct = 0;
  const int64_t n = logits.cols;
  const double values = static_cast<double>(logits.size());
  for (int64_t i = 0; i < logits.rows; ++i) {
    const float* z = logits.data + i * n;
    const int64_t predicted = n == 1 ? (z[0] > 0 ? 1 : 0) : ArgMax(z, n);
    const double weight = Weight(targets, i);
    if (!targets.labels.empty()) {
      correct += predicted == targets.labels[i] ? 1 : 0;
    }
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double logit = z[j];
      const double target = Target(targets, i, j, n);
      const double e = std::exp(-std::abs(logit));
      sum += std::max(logit, 0.0) - logit * target + std::log1p(e);
      if (gradient == nullptr) continue;
      const double sigmoid = (logit < 0 ? e : 1.0) / (1.0 + e);
      gradient->data[i * n + j] =
          static_cast<float>(weight * (sigmoid - target) / values);
    }
    sums.loss += weight * sum / static_cast<double>(n);
  }
  if (targets.values.empty()) sums.correct = correct;
  return sums;
}

absl::StatusOr<LossSums> CpuBackend::MeanSquaredError(ConstMatrix outputs,
                                                      const Targets& targets,
                                                      Matrix* gradient) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (!error_.ok()) return error_;
  return SumDistances(outputs, targets, gradient, [](double error) -> Distance {
    return {error * error, 2.0 * error};
  });
}

absl::StatusOr<LossSums> CpuBackend::MeanAbsoluteError(ConstMatrix outputs,
                                                       const Targets& targets,
                                                       Matrix* gradient) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (!error_.ok()) return error_;
  return SumDistances(outputs, targets, gradient, [](double error) -> Distance {
    return {std::abs(error), error == 0 ? 0 : std::copysign(1.0, error)};
  });
}

absl::StatusOr<LossSums> CpuBackend::Huber(ConstMatrix outputs,
                                           const Targets& targets, float delta,
                                           Matrix* gradient) {
  const ScopedTrace trace(tracer(), TraceKind::kCompute, __func__);
  if (!error_.ok()) return error_;
  const double knee = delta;
  return SumDistances(outputs, targets, gradient,
                      [knee](double error) -> Distance {
                        if (std::abs(error) <= knee) {
                          return {0.5 * error * error, error};
                        }
                        return {knee * (std::abs(error) - 0.5 * knee),
                                std::copysign(knee, error)};
                      });
}

}  // namespace holdfast

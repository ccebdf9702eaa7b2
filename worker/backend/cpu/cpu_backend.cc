#include "worker/backend/cpu/cpu_backend.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// A cache line, and the widest vector there is.
constexpr std::align_val_t kAlignment{64};

CBLAS_TRANSPOSE Transposition(Form form) {
  return form == Form::kTransposed ? CblasTrans : CblasNoTrans;
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

absl::StatusOr<ConstMatrix> CpuBackend::Upload(absl::Span<const float> host,
                                               int64_t rows, int64_t cols,
                                               DeviceBuffer* staging) {
  return ConstMatrix{host.data(), rows, cols};
}

absl::StatusOr<Download> CpuBackend::StartDownload(ConstMatrix matrix) {
  return Download{absl::MakeConstSpan(matrix.data, matrix.size())};
}

absl::StatusOr<bool> CpuBackend::HasArrived(const Download& download) {
  return true;
}

absl::Status CpuBackend::Await(const Download& download) {
  return absl::OkStatus();
}

void CpuBackend::MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                        Matrix c) {
  const int64_t k = form_a == Form::kPlain ? a.cols : a.rows;
  if (c.size() == 0) return;
  // BLAS wants leading dimensions of at least 1, also for empty factors.
  cblas_sgemm(CblasRowMajor, Transposition(form_a), Transposition(form_b),
              c.rows, c.cols, k, 1.0f, a.data, std::max<int64_t>(a.cols, 1),
              b.data, std::max<int64_t>(b.cols, 1), 0.0f, c.data, c.cols);
}

void CpuBackend::AddBias(ConstMatrix bias, Matrix y) {
  for (int64_t i = 0; i < y.rows; ++i) {
    float* row = y.data + i * y.cols;
    for (int64_t j = 0; j < y.cols; ++j) row[j] += bias.data[j];
  }
}

void CpuBackend::SumRows(ConstMatrix x, Matrix sums) {
  std::fill_n(sums.data, sums.size(), 0.0f);
  // By rows, so that the inner loop is over columns that do not depend on one
  // another: vectors without another order of addition.
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* row = x.data + i * x.cols;
    for (int64_t j = 0; j < x.cols; ++j) sums.data[j] += row[j];
  }
}

void CpuBackend::Relu(ConstMatrix x, Matrix y) {
  const int64_t size = x.size();
  for (int64_t i = 0; i < size; ++i) {
    y.data[i] = x.data[i] < 0.0f ? 0.0f : x.data[i];
  }
}

void CpuBackend::ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  const int64_t size = y.size();
  for (int64_t i = 0; i < size; ++i) {
    const float value = dy.data[i];
    dx.data[i] = y.data[i] > 0.0f ? value : 0.0f;
  }
}

absl::StatusOr<LossSums> CpuBackend::SoftmaxCrossEntropy(
    ConstMatrix logits, absl::Span<const int32_t> labels, Matrix* gradient) {
  LossSums sums;
  const double examples = static_cast<double>(logits.rows);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const float* z = logits.data + i * logits.cols;
    const int64_t label = labels[i];
    const int64_t predicted = std::max_element(z, z + logits.cols) - z;
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
    // No term is above 1, and that of the greatest logit is 1: finite logits
    // give a finite loss.
    sums.loss += std::log(sum) - (double{at_label} - double{max});
    sums.correct += predicted == label ? 1 : 0;
    if (dz == nullptr) continue;
    const float scale = static_cast<float>(1.0 / (sum * examples));
    for (int64_t j = 0; j < logits.cols; ++j) dz[j] *= scale;
    dz[label] -= static_cast<float>(1.0 / examples);
  }
  return sums;
}

}  // namespace holdfast

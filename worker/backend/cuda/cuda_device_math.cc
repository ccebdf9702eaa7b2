#include "worker/backend/cuda/cuda_device_math.h"

#include <algorithm>

#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernels.h"

namespace holdfast {
namespace {

// What cuBLAS' documentation recommends: from compute capability 9.0 on,
// before.
constexpr size_t kCublasWorkspaceHopper = size_t{32} << 20;
constexpr size_t kCublasWorkspace = size_t{4} << 20;

kernels::WindowShape Shape(const Window& window) {
  const auto narrow = [](int64_t value) { return static_cast<int>(value); };
  return {narrow(window.height),       narrow(window.width),
          narrow(window.channels),     narrow(window.window_height),
          narrow(window.window_width), narrow(window.stride_height),
          narrow(window.stride_width), narrow(window.pad_top),
          narrow(window.pad_left),     narrow(window.output_height),
          narrow(window.output_width)};
}

// What the window sees is the image itself.
bool SeesPixels(const Window& window) {
  return window.window_size() == 1 && window.stride_height == 1 &&
         window.stride_width == 1 && window.pad_top == 0 &&
         window.pad_left == 0;
}

// Of an image that is unfolded: values for each place.
int64_t ColumnsOf(const Convolution& convolution) {
  return convolution.window.window_size() * convolution.window.channels;
}

int64_t UnfoldedSize(const Convolution& convolution) {
  return convolution.window.output_places() * ColumnsOf(convolution);
}

// Where matrices begin in a workspace, in values: tensor cores are fastest from
// such an address on.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

// In values of float32, what a matrix of halves takes.
int64_t HalvesSize(int64_t size) { return Aligned((size + 1) / 2); }

cublasOperation_t Operation(Form form) {
  return form == Form::kTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// cuBLAS wants leading dimensions of at least 1.
int Leading(int64_t row) { return static_cast<int>(std::max<int64_t>(row, 1)); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDeviceMath>> CudaDeviceMath::Create(
    cudaStream_t stream, int capability_major, const Options& options) {
  const absl::StatusOr<const Cublas*> cublas = LoadCublas();
  if (!cublas.ok()) return cublas.status();
  std::unique_ptr<CudaDeviceMath> math(
      new CudaDeviceMath(*cublas, stream, options));
  const auto check = [&](cublasStatus_t answer) {
    return CublasStatus(**cublas, answer, "starting cuBLAS");
  };
  absl::Status status = check((*cublas)->create(&math->handle_));
  if (!status.ok()) return status;
  // It falls back to a workspace of cuBLAS' own, so that comes first.
  status = check((*cublas)->set_stream(math->handle_, stream));
  if (!status.ok()) return status;
  const size_t size =
      capability_major >= 9 ? kCublasWorkspaceHopper : kCublasWorkspace;
  status = CudaStatus(cudaMalloc(&math->cublas_workspace_, size),
                      "taking memory of the GPU for cuBLAS");
  if (!status.ok()) return status;
  status = check(
      (*cublas)->set_workspace(math->handle_, math->cublas_workspace_, size));
  if (!status.ok()) return status;
  status = check(
      (*cublas)->set_atomics_mode(math->handle_, CUBLAS_ATOMICS_NOT_ALLOWED));
  if (!status.ok()) return status;
  status = check((*cublas)->set_math_mode(
      math->handle_,
      options.tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH));
  if (!status.ok()) return status;
  return math;
}

CudaDeviceMath::~CudaDeviceMath() {
  if (handle_ != nullptr) cublas_->destroy(handle_);
  cudaFree(cublas_workspace_);
}

absl::Status CudaDeviceMath::Fill0(float* values, int64_t size) {
  if (size == 0) return absl::OkStatus();
  return CudaStatus(cudaMemsetAsync(values, 0, size * sizeof(float), stream_),
                    "filling with 0");
}

absl::Status CudaDeviceMath::Multiply(const Gemm& gemm, const float* a,
                                      const float* b, float* c,
                                      float* workspace) {
  if (gemm.m == 0 || gemm.n == 0) return absl::OkStatus();
  if (options_.precision != Precision::kFloat32) {
    return MultiplyHalves(gemm, a, b, c, workspace);
  }
  const float one = 1.0f;
  const float beta = gemm.add ? 1.0f : 0.0f;
  // cuBLAS goes by columns, where our matrices are their transposed, and so is
  // the product: c^T = b^T a^T.
  if (gemm.batch == 1) {
    return CublasStatus(
        *cublas_,
        cublas_->sgemm(handle_, Operation(gemm.form_b), Operation(gemm.form_a),
                       static_cast<int>(gemm.n), static_cast<int>(gemm.m),
                       static_cast<int>(gemm.k), &one, b, Leading(gemm.b_row),
                       a, Leading(gemm.a_row), &beta, c, Leading(gemm.c_row)),
        "a matrix product");
  }
  return CublasStatus(
      *cublas_,
      cublas_->sgemm_strided_batched(
          handle_, Operation(gemm.form_b), Operation(gemm.form_a),
          static_cast<int>(gemm.n), static_cast<int>(gemm.m),
          static_cast<int>(gemm.k), &one, b, Leading(gemm.b_row), gemm.b_step,
          a, Leading(gemm.a_row), gemm.a_step, &beta, c, Leading(gemm.c_row),
          gemm.c_step, static_cast<int>(gemm.batch)),
      "matrix products");
}

absl::Status CudaDeviceMath::Custom(CustomOperation operation) {
  return operation(stream_);
}

absl::Status CudaDeviceMath::MultiplyHalves(const Gemm& gemm, const float* a,
                                            const float* b, float* c,
                                            float* workspace) {
  const bool is_float16 = options_.precision == Precision::kFloat16;
  const auto round = [&](const float* from, int64_t size, float* to) {
    auto* const halves = reinterpret_cast<uint16_t*>(to);
    return CudaStatus(is_float16
                          ? kernels::ToFloat16(stream_, from, size, halves)
                          : kernels::ToBfloat16(stream_, from, size, halves),
                      "rounding the factors of a product");
  };
  // Of all products in the batch, whose factors lie in the same rows.
  const int64_t a_rows = gemm.form_a == Form::kPlain ? gemm.m : gemm.k;
  const int64_t b_rows = gemm.form_b == Form::kPlain ? gemm.k : gemm.n;
  const int64_t a_size = a_rows * gemm.a_row;
  float* const rounded_a = workspace;
  float* const rounded_b = workspace + HalvesSize(a_size);
  absl::Status status = round(a, a_size, rounded_a);
  if (!status.ok()) return status;
  status = round(b, b_rows * gemm.b_row, rounded_b);
  if (!status.ok()) return status;
  const cudaDataType_t type = is_float16 ? CUDA_R_16F : CUDA_R_16BF;
  const float one = 1.0f;
  const float beta = gemm.add ? 1.0f : 0.0f;
  if (gemm.batch == 1) {
    return CublasStatus(
        *cublas_,
        cublas_->gemm_ex(handle_, Operation(gemm.form_b),
                         Operation(gemm.form_a), static_cast<int>(gemm.n),
                         static_cast<int>(gemm.m), static_cast<int>(gemm.k),
                         &one, rounded_b, type, Leading(gemm.b_row), rounded_a,
                         type, Leading(gemm.a_row), &beta, c, CUDA_R_32F,
                         Leading(gemm.c_row), CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
        "a matrix product");
  }
  return CublasStatus(
      *cublas_,
      cublas_->gemm_strided_batched_ex(
          handle_, Operation(gemm.form_b), Operation(gemm.form_a),
          static_cast<int>(gemm.n), static_cast<int>(gemm.m),
          static_cast<int>(gemm.k), &one, rounded_b, type, Leading(gemm.b_row),
          gemm.b_step, rounded_a, type, Leading(gemm.a_row), gemm.a_step, &beta,
          c, CUDA_R_32F, Leading(gemm.c_row), gemm.c_step,
          static_cast<int>(gemm.batch), CUBLAS_COMPUTE_32F,
          CUBLAS_GEMM_DEFAULT),
      "matrix products");
}

int64_t CudaDeviceMath::ProductWorkspace(int64_t a_size, int64_t b_size) {
  if (options_.precision == Precision::kFloat32) return 0;
  return HalvesSize(a_size) + HalvesSize(b_size);
}

absl::Status CudaDeviceMath::MatMul(Form form_a, ConstMatrix a, Form form_b,
                                    ConstMatrix b, Matrix c, float* workspace) {
  Gemm gemm;
  gemm.form_a = form_a;
  gemm.form_b = form_b;
  gemm.m = c.rows;
  gemm.n = c.cols;
  gemm.k = form_a == Form::kPlain ? a.cols : a.rows;
  if (gemm.k == 0) return Fill0(c.data, c.size());
  gemm.a_row = a.cols;
  gemm.b_row = b.cols;
  gemm.c_row = c.cols;
  return Multiply(gemm, a.data, b.data, c.data, workspace);
}

absl::Status CudaDeviceMath::AddBias(ConstMatrix bias, Matrix y) {
  return CudaStatus(
      kernels::AddBias(stream_, bias.data, y.rows, y.cols, y.data), "AddBias");
}

int64_t CudaDeviceMath::SumWorkspace(int64_t rows, int64_t cols) {
  return kernels::SumWorkspaceBytes(rows, cols) / int64_t{sizeof(float)};
}

absl::Status CudaDeviceMath::SumRows(ConstMatrix x, Matrix sums,
                                     float* workspace) {
  return CudaStatus(
      kernels::SumRows(stream_, x.data, x.rows, x.cols, sums.data, workspace),
      "SumRows");
}

absl::Status CudaDeviceMath::Activate(Activation activation, ConstMatrix x,
                                      Matrix y) {
  switch (activation) {
    case Activation::kRelu:
      return CudaStatus(kernels::Relu(stream_, x.data, x.size(), y.data),
                        "Relu");
    case Activation::kTanh:
      return CudaStatus(kernels::Tanh(stream_, x.data, x.size(), y.data),
                        "Tanh");
    case Activation::kSigmoid:
      return CudaStatus(kernels::Sigmoid(stream_, x.data, x.size(), y.data),
                        "Sigmoid");
  }
  return absl::InternalError("an unknown activation");
}

absl::Status CudaDeviceMath::ActivationGradient(Activation activation,
                                                ConstMatrix y, ConstMatrix dy,
                                                Matrix dx) {
  switch (activation) {
    case Activation::kRelu:
      return CudaStatus(
          kernels::ReluGradient(stream_, y.data, dy.data, dy.size(), dx.data),
          "ReluGradient");
    case Activation::kTanh:
      return CudaStatus(
          kernels::TanhGradient(stream_, y.data, dy.data, dy.size(), dx.data),
          "TanhGradient");
    case Activation::kSigmoid:
      return CudaStatus(kernels::SigmoidGradient(stream_, y.data, dy.data,
                                                 dy.size(), dx.data),
                        "SigmoidGradient");
  }
  return absl::InternalError("an unknown activation");
}

absl::Status CudaDeviceMath::Dropout(ConstMatrix x, const int64_t* positions,
                                     uint64_t key, float rate, Matrix y) {
  return CudaStatus(kernels::Dropout(stream_, x.data, positions, key, rate,
                                     x.rows, x.cols, y.data),
                    "Dropout");
}

absl::Status CudaDeviceMath::Copy(ConstMatrix x, Matrix y) {
  if (x.size() == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(y.data, x.data, x.size() * sizeof(float),
                                    cudaMemcpyDeviceToDevice, stream_),
                    "Copy");
}

absl::Status CudaDeviceMath::Add(ConstMatrix a, ConstMatrix b, Matrix c) {
  return CudaStatus(kernels::Add(stream_, a.data, b.data, a.size(), c.data),
                    "Add");
}

absl::Status CudaDeviceMath::Scale(float factor, ConstMatrix x, Matrix y) {
  return CudaStatus(kernels::Scale(stream_, factor, x.data, x.size(), y.data),
                    "Scale");
}

absl::Status CudaDeviceMath::AddScaled(float factor, ConstMatrix x, Matrix y) {
  return CudaStatus(
      kernels::AddScaled(stream_, factor, x.data, x.size(), y.data),
      "AddScaled");
}

int64_t CudaDeviceMath::ImagesAtATime(const Convolution& convolution,
                                      int64_t images) const {
  const bool in_place = SeesPixels(convolution.window) &&
                        options_.precision == Precision::kFloat32;
  const int64_t most =
      std::max<int64_t>(1, options_.max_columns / UnfoldedSize(convolution));
  return in_place ? std::max<int64_t>(images, 1) : most;
}

int64_t CudaDeviceMath::ColumnsWorkspace(const Convolution& convolution,
                                         int64_t images) const {
  if (SeesPixels(convolution.window)) return 0;
  return Aligned(std::min(images, ImagesAtATime(convolution, images)) *
                 UnfoldedSize(convolution));
}

int64_t CudaDeviceMath::ConvolutionWorkspace(const Convolution& convolution,
                                             int64_t images) {
  const int64_t at_a_time =
      std::min(images, ImagesAtATime(convolution, images));
  // Two of these are the factors, whichever way it goes.
  const int64_t columns = at_a_time * UnfoldedSize(convolution);
  const int64_t outputs = at_a_time * convolution.output_size();
  const int64_t kernel = convolution.kernel_rows() * convolution.filters;
  return ColumnsWorkspace(convolution, images) +
         ProductWorkspace(std::max(columns, kernel), std::max(outputs, kernel));
}

absl::StatusOr<const float*> CudaDeviceMath::ColumnsOfImages(
    const Convolution& convolution, const float* images, int64_t count,
    float* workspace) {
  if (SeesPixels(convolution.window)) return images;
  const absl::Status status =
      CudaStatus(kernels::ImagesToColumns(
                     stream_, images, Shape(convolution.window),
                     static_cast<int>(convolution.groups), count, workspace),
                 "unfolding images");
  if (!status.ok()) return status;
  return workspace;
}

absl::Status CudaDeviceMath::Convolve(const Convolution& convolution,
                                      ConstMatrix x, ConstMatrix kernel,
                                      Matrix y, float* workspace) {
  const Window& window = convolution.window;
  const int groups = static_cast<int>(convolution.groups);
  const int64_t cols = ColumnsOf(convolution);
  const int64_t at_a_time = ImagesAtATime(convolution, x.rows);
  float* const for_product = workspace + ColumnsWorkspace(convolution, x.rows);
  Gemm gemm;
  gemm.n = convolution.filters / groups;
  gemm.k = cols / groups;
  gemm.a_row = cols;
  gemm.b_row = convolution.filters;
  gemm.c_row = convolution.filters;
  gemm.batch = groups;
  gemm.a_step = gemm.k;
  gemm.b_step = gemm.n;
  gemm.c_step = gemm.n;
  for (int64_t first = 0; first < x.rows; first += at_a_time) {
    const int64_t images = std::min(at_a_time, x.rows - first);
    const absl::StatusOr<const float*> columns = ColumnsOfImages(
        convolution, x.data + first * x.cols, images, workspace);
    if (!columns.ok()) return columns.status();
    gemm.m = images * window.output_places();
    const absl::Status status = Multiply(gemm, *columns, kernel.data,
                                         y.data + first * y.cols, for_product);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaDeviceMath::ConvolveKernelGradient(
    const Convolution& convolution, ConstMatrix x, ConstMatrix dy,
    Matrix kernel_gradient, float* workspace) {
  const Window& window = convolution.window;
  const int groups = static_cast<int>(convolution.groups);
  const int64_t cols = ColumnsOf(convolution);
  const int64_t at_a_time = ImagesAtATime(convolution, x.rows);
  if (x.rows == 0) return Fill0(kernel_gradient.data, kernel_gradient.size());
  float* const for_product = workspace + ColumnsWorkspace(convolution, x.rows);
  Gemm gemm;
  gemm.form_a = Form::kTransposed;
  gemm.m = cols / groups;
  gemm.n = convolution.filters / groups;
  gemm.a_row = cols;
  gemm.b_row = convolution.filters;
  gemm.c_row = convolution.filters;
  gemm.batch = groups;
  gemm.a_step = gemm.m;
  gemm.b_step = gemm.n;
  gemm.c_step = gemm.n;
  for (int64_t first = 0; first < x.rows; first += at_a_time) {
    const int64_t images = std::min(at_a_time, x.rows - first);
    const absl::StatusOr<const float*> columns = ColumnsOfImages(
        convolution, x.data + first * x.cols, images, workspace);
    if (!columns.ok()) return columns.status();
    gemm.k = images * window.output_places();
    gemm.add = first > 0;
    const absl::Status status =
        Multiply(gemm, *columns, dy.data + first * dy.cols,
                 kernel_gradient.data, for_product);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaDeviceMath::ConvolveInputGradient(
    const Convolution& convolution, ConstMatrix kernel, ConstMatrix dy,
    Matrix dx, float* workspace) {
  const Window& window = convolution.window;
  const int groups = static_cast<int>(convolution.groups);
  const int64_t cols = ColumnsOf(convolution);
  const bool sees_pixels = SeesPixels(window);
  const int64_t at_a_time = ImagesAtATime(convolution, dx.rows);
  float* const for_product = workspace + ColumnsWorkspace(convolution, dx.rows);
  Gemm gemm;
  gemm.form_b = Form::kTransposed;
  gemm.n = cols / groups;
  gemm.k = convolution.filters / groups;
  gemm.a_row = convolution.filters;
  gemm.b_row = convolution.filters;
  gemm.c_row = cols;
  gemm.batch = groups;
  gemm.a_step = gemm.k;
  gemm.b_step = gemm.k;
  gemm.c_step = gemm.n;
  for (int64_t first = 0; first < dx.rows; first += at_a_time) {
    const int64_t images = std::min(at_a_time, dx.rows - first);
    float* const to = dx.data + first * dx.cols;
    gemm.m = images * window.output_places();
    absl::Status status = Multiply(gemm, dy.data + first * dy.cols, kernel.data,
                                   sees_pixels ? to : workspace, for_product);
    if (!status.ok()) return status;
    if (sees_pixels) continue;
    status =
        CudaStatus(kernels::ColumnsToImages(stream_, workspace, Shape(window),
                                            groups, images, to),
                   "ConvolveInputGradient");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaDeviceMath::MaxPool(const Window& window, ConstMatrix x,
                                     Matrix y) {
  return CudaStatus(
      kernels::MaxPool(stream_, x.data, Shape(window), x.rows, y.data),
      "MaxPool");
}

absl::Status CudaDeviceMath::MaxPoolGradient(const Window& window,
                                             ConstMatrix x, ConstMatrix y,
                                             ConstMatrix dy, Matrix dx) {
  return CudaStatus(kernels::MaxPoolGradient(stream_, x.data, y.data, dy.data,
                                             Shape(window), x.rows, dx.data),
                    "MaxPoolGradient");
}

absl::Status CudaDeviceMath::AveragePool(const Window& window, ConstMatrix x,
                                         Matrix y) {
  return CudaStatus(
      kernels::AveragePool(stream_, x.data, Shape(window), x.rows, y.data),
      "AveragePool");
}

absl::Status CudaDeviceMath::AveragePoolGradient(const Window& window,
                                                 ConstMatrix dy, Matrix dx) {
  return CudaStatus(kernels::AveragePoolGradient(
                        stream_, dy.data, Shape(window), dy.rows, dx.data),
                    "AveragePoolGradient");
}

absl::Status CudaDeviceMath::ColumnMoments(ConstMatrix x, Matrix mean,
                                           Matrix variance, float* workspace) {
  return CudaStatus(kernels::ColumnMoments(stream_, x.data, x.rows, x.cols,
                                           mean.data, variance.data, workspace),
                    "ColumnMoments");
}

absl::Status CudaDeviceMath::NormalizeColumns(ConstMatrix x, ConstMatrix mean,
                                              ConstMatrix variance,
                                              float epsilon, ConstMatrix scale,
                                              ConstMatrix offset, Matrix y) {
  return CudaStatus(kernels::NormalizeColumns(
                        stream_, x.data, mean.data, variance.data, epsilon,
                        scale.data, offset.data, x.rows, x.cols, y.data),
                    "NormalizeColumns");
}

absl::Status CudaDeviceMath::NormalizeColumnsGradient(
    ConstMatrix x, ConstMatrix mean, ConstMatrix variance, float epsilon,
    ConstMatrix scale, ConstMatrix dy, Matrix dscale, Matrix doffset, Matrix dx,
    float* workspace) {
  return CudaStatus(kernels::NormalizeColumnsGradient(
                        stream_, x.data, mean.data, variance.data, epsilon,
                        scale.data, dy.data, x.rows, x.cols, dscale.data,
                        doffset.data, dx.data, workspace),
                    "NormalizeColumnsGradient");
}

absl::Status CudaDeviceMath::NormalizeRows(ConstMatrix x, float epsilon,
                                           ConstMatrix scale,
                                           ConstMatrix offset, Matrix moments,
                                           Matrix y) {
  return CudaStatus(
      kernels::NormalizeRows(stream_, x.data, epsilon, scale.data, offset.data,
                             x.rows, x.cols, moments.data, y.data),
      "NormalizeRows");
}

absl::Status CudaDeviceMath::NormalizeRowsGradient(
    ConstMatrix x, ConstMatrix scale, ConstMatrix moments, ConstMatrix dy,
    Matrix dscale, Matrix doffset, Matrix dx, float* workspace) {
  return CudaStatus(
      kernels::NormalizeRowsGradient(stream_, x.data, scale.data, moments.data,
                                     dy.data, x.rows, x.cols, dscale.data,
                                     doffset.data, dx.data, workspace),
      "NormalizeRowsGradient");
}

absl::Status CudaDeviceMath::Loss(const LossFunction& loss, ConstMatrix outputs,
                                  const DeviceTargets& targets, Matrix gradient,
                                  DeviceLossSums* sums, float* workspace) {
  static_assert(sizeof(DeviceLossSums) == 4 * sizeof(double));
  double* const four = reinterpret_cast<double*>(sums);
  const kernels::LossTargets of = {targets.labels, targets.values,
                                   targets.weights};
  const auto compute = [&]() -> cudaError_t {
    switch (loss.kind) {
      case LossKind::kSoftmaxCrossEntropy:
        return kernels::SoftmaxCrossEntropy(stream_, outputs.data, of,
                                            outputs.rows, outputs.cols,
                                            gradient.data, four, workspace);
      case LossKind::kSigmoidCrossEntropy:
        return kernels::SigmoidCrossEntropy(stream_, outputs.data, of,
                                            outputs.rows, outputs.cols,
                                            gradient.data, four, workspace);
      case LossKind::kMeanAbsoluteError:
        return kernels::MeanAbsoluteError(stream_, outputs.data, of,
                                          outputs.rows, outputs.cols,
                                          gradient.data, four, workspace);
      case LossKind::kHuber:
        return kernels::Huber(stream_, outputs.data, of, loss.delta,
                              outputs.rows, outputs.cols, gradient.data, four,
                              workspace);
      case LossKind::kMeanSquaredError:
        break;
    }
    return kernels::MeanSquaredError(stream_, outputs.data, of, outputs.rows,
                                     outputs.cols, gradient.data, four,
                                     workspace);
  };
  return CudaStatus(compute(), "the loss");
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cuda_device_math.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernel_arguments.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/depthwise.h"

namespace holdfast {
namespace {

// The sizes that cuBLAS's documentation recommends: from compute capability 9.0
// on, and before.
constexpr size_t kCublasWorkspaceHopper = size_t{32} << 20;
constexpr size_t kCublasWorkspace = size_t{4} << 20;

kernels::ColumnNorm Of(const ColumnNorm& norm) {
  return {norm.mean.data, norm.variance.data, norm.epsilon, norm.scale.data,
          norm.offset.data};
}

// Whether the columns that the window sees are the image itself.
bool SeesPixels(const Window& window) {
  return window.window_size() == 1 && window.stride_height == 1 &&
         window.stride_width == 1 && window.pad_top == 0 &&
         window.pad_left == 0;
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the number of values that an unfolded image has for each position.
int64_t ColumnsOf(const Convolution& convolution) {
  return convolution.window.window_size() * convolution.window.channels;
}

// Returns the number of values from the start of one position's columns to the
// start of the next. Tensor cores are fastest if rows of halves begin at
// multiples of 16 bytes; if there are groups, there is no room for padding.
int64_t ColumnsRow(const Convolution& convolution) {
  const int64_t columns = ColumnsOf(convolution);
  return SeesPixels(convolution.window) || convolution.groups > 1
             ? columns
             : RoundUp(columns, 8);
}

int64_t UnfoldedSize(const Convolution& convolution) {
  return convolution.window.output_places() * ColumnsRow(convolution);
}

// Whether the gradient with respect to the images is best computed as a
// convolution of dy: the columns of dy are at most as wide as those of the
// images, need not be written by a product in float32, and need not be folded.
bool GradientIsConvolution(const Convolution& convolution) {
  const Window& window = convolution.window;
  return !SeesPixels(window) && convolution.groups == 1 &&
         window.stride_height == 1 && window.stride_width == 1 &&
         convolution.filters <= window.channels;
}

// Returns the convolution of dy that computes this gradient. It sees dy through
// the window rotated by 180 degrees.
Convolution Gradient(const Convolution& convolution) {
  const Window& window = convolution.window;
  Convolution gradient;
  gradient.window = window;
  gradient.window.height = window.output_height;
  gradient.window.width = window.output_width;
  gradient.window.channels = convolution.filters;
  gradient.window.pad_top = window.window_height - 1 - window.pad_top;
  gradient.window.pad_left = window.window_width - 1 - window.pad_left;
  gradient.window.output_height = window.height;
  gradient.window.output_width = window.width;
  gradient.filters = window.channels;
  return gradient;
}

// The alignment of matrices in a workspace, in values: tensor cores are fastest
// at such addresses.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t size) { return RoundUp(size, kAlignment); }

cublasOperation_t Operation(Form form) {
  return form == Form::kTransposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// cuBLAS requires leading dimensions of at least 1.
int Leading(int64_t row) { return static_cast<int>(std::max<int64_t>(row, 1)); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDeviceMath>> CudaDeviceMath::Create(
    cudaStream_t stream, int capability_major, const Options& options) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto cublas, LoadCublas());
  std::unique_ptr<CudaDeviceMath> math(
      new CudaDeviceMath(cublas, stream, options));
  const auto check = [&](cublasStatus_t answer) {
    return CublasStatus(*cublas, answer, "starting cuBLAS");
  };
  absl::Status status = check(cublas->create(&math->handle_));
  if (!status.ok()) return status;
  // Setting the stream resets the workspace to cuBLAS's own, so it comes first.
  status = check(cublas->set_stream(math->handle_, stream));
  if (!status.ok()) return status;
  const size_t size =
      capability_major >= 9 ? kCublasWorkspaceHopper : kCublasWorkspace;
  status = CudaStatus(cudaMalloc(&math->cublas_workspace_, size),
                      "allocating GPU memory for cuBLAS");
  if (!status.ok()) return status;
  status = check(
      cublas->set_workspace(math->handle_, math->cublas_workspace_, size));
  if (!status.ok()) return status;
  status = check(
      cublas->set_atomics_mode(math->handle_, CUBLAS_ATOMICS_NOT_ALLOWED));
  if (!status.ok()) return status;
  // A product that is rounded to 16 bits is rounded once, even if cuBLAS adds
  // it up from parts.
  const int mode =
      (options.tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH) |
      (math->RoundsActivations()
           ? CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
           : 0);
  status = check(
      cublas->set_math_mode(math->handle_, static_cast<cublasMath_t>(mode)));
  if (!status.ok()) return status;
  // In float32 a product of unfolded images is faster, and for 16-bit factors
  // cuDNN produces 16-bit results.
  if (options.cudnn != nullptr && options.tf32 &&
      options.precision == Precision::kFloat32) {
    auto cudnn = CudnnConvolution::Create(options.cudnn, stream);
    if (cudnn.ok()) {
      math->cudnn_ = *std::move(cudnn);
    } else {
      LOG(WARNING) << "convolutions by im2col: " << cudnn.status().message();
    }
  }
  return math;
}

CudaDeviceMath::~CudaDeviceMath() {
  cudnn_.reset();
  if (handle_ != nullptr) cublas_->destroy(handle_);
  cudaFree(cublas_workspace_);
}

void* CudaDeviceMath::ValuesAt(Matrix matrix, int64_t begin) {
  if (!matrix.rounded_alone) return matrix.data + begin;
  return static_cast<uint16_t*>(matrix.rounded) + begin;
}

absl::Status CudaDeviceMath::Fill0(Matrix matrix) {
  if (matrix.size() == 0) return absl::OkStatus();
  const size_t value_bytes =
      matrix.rounded_alone ? sizeof(uint16_t) : sizeof(float);
  return CudaStatus(cudaMemsetAsync(ValuesAt(matrix, 0), 0,
                                    matrix.size() * value_bytes, stream_),
                    "filling with 0");
}

int64_t CudaDeviceMath::FactorSize(int64_t size) const {
  return Aligned(rounds() ? (size + 1) / 2 : size);
}

int64_t CudaDeviceMath::RoundedSize(int64_t size) const {
  return rounds() ? FactorSize(size) : 0;
}

absl::StatusOr<const void*> CudaDeviceMath::Factor(ConstMatrix x, int64_t begin,
                                                   int64_t size,
                                                   float* workspace) {
  const float* const values = x.data + begin;
  if (!rounds()) return values;
  if (x.rounded != nullptr) {
    return static_cast<const uint16_t*>(x.rounded) + begin;
  }
  auto* const halves = reinterpret_cast<uint16_t*>(workspace);
  HOLDFAST_RETURN_IF_ERROR(
      CudaStatus(options_.precision == Precision::kFloat16
                     ? kernels::ToFloat16(stream_, values, size, halves)
                     : kernels::ToBfloat16(stream_, values, size, halves),
                 "rounding the factors of a product"));
  return halves;
}

absl::Status CudaDeviceMath::Multiply(const Gemm& gemm, const void* a,
                                      const void* b, void* c) {
  if (gemm.m == 0 || gemm.n == 0) return absl::OkStatus();
  // cuBLAS is column-major, so it sees our matrices as their transposes, and
  // computes the transposed product: c^T = b^T a^T.
  const cublasOperation_t form_a = Operation(gemm.form_a);
  const cublasOperation_t form_b = Operation(gemm.form_b);
  const int m = static_cast<int>(gemm.m);
  const int n = static_cast<int>(gemm.n);
  const int k = static_cast<int>(gemm.k);
  const int a_row = Leading(gemm.a_row);
  const int b_row = Leading(gemm.b_row);
  const int c_row = Leading(gemm.c_row);
  const int batch = static_cast<int>(gemm.batch);
  const float one = 1.0f;
  const float beta = gemm.add ? 1.0f : 0.0f;
  const auto multiply = [&] {
    if (rounds()) {
      const cudaDataType_t type =
          options_.precision == Precision::kFloat16 ? CUDA_R_16F : CUDA_R_16BF;
      const cudaDataType_t c_type = gemm.rounds_c ? type : CUDA_R_32F;
      if (batch == 1) {
        return cublas_->gemm_ex(handle_, form_b, form_a, n, m, k, &one, b, type,
                                b_row, a, type, a_row, &beta, c, c_type, c_row,
                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      }
      return cublas_->gemm_strided_batched_ex(
          handle_, form_b, form_a, n, m, k, &one, b, type, b_row, gemm.b_step,
          a, type, a_row, gemm.a_step, &beta, c, c_type, c_row, gemm.c_step,
          batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    }
    const auto* const left = static_cast<const float*>(a);
    const auto* const right = static_cast<const float*>(b);
    auto* const product = static_cast<float*>(c);
    if (batch == 1) {
      return cublas_->sgemm(handle_, form_b, form_a, n, m, k, &one, right,
                            b_row, left, a_row, &beta, product, c_row);
    }
    return cublas_->sgemm_strided_batched(
        handle_, form_b, form_a, n, m, k, &one, right, b_row, gemm.b_step, left,
        a_row, gemm.a_step, &beta, product, c_row, gemm.c_step, batch);
  };
  return CublasStatus(*cublas_, multiply(), "a matrix product");
}

absl::Status CudaDeviceMath::Custom(CustomOperation operation) {
  return operation(stream_);
}

int64_t CudaDeviceMath::ToRound(ConstMatrix x) const {
  return x.rounded != nullptr ? 0 : RoundedSize(x.size());
}

int64_t CudaDeviceMath::ProductWorkspace(ConstMatrix a, ConstMatrix b) {
  return ToRound(a) + ToRound(b);
}

absl::Status CudaDeviceMath::MatMul(Form form_a, ConstMatrix a, Form form_b,
                                    ConstMatrix b, bool add, Matrix c,
                                    float* workspace) {
  Gemm gemm;
  gemm.add = add;
  gemm.form_a = form_a;
  gemm.form_b = form_b;
  gemm.m = c.rows;
  gemm.n = c.cols;
  gemm.k = form_a == Form::kPlain ? a.cols : a.rows;
  if (gemm.k == 0) {
    return add ? absl::OkStatus() : Fill0(c);
  }
  gemm.a_row = a.cols;
  gemm.b_row = b.cols;
  gemm.c_row = c.cols;
  gemm.rounds_c = c.rounded_alone;
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor_a,
                            Factor(a, 0, a.size(), workspace));
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor_b,
                            Factor(b, 0, b.size(), workspace + ToRound(a)));
  return Multiply(gemm, factor_a, factor_b, ValuesAt(c, 0));
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

absl::Status CudaDeviceMath::SumSquares(ConstMatrix x, double* sum,
                                        float* workspace) {
  return CudaStatus(
      kernels::SumSquares(stream_, x.data, x.size(), sum, workspace),
      "SumSquares");
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
      return CudaStatus(kernels::ReluGradient(stream_, InputOf(y), dy.data,
                                              dy.size(), dx.data),
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
                                      int64_t images, bool ready) const {
  if (SeesPixels(convolution.window) && (ready || !rounds())) return images;
  const int64_t value_bytes = rounds() ? sizeof(uint16_t) : sizeof(float);
  const int64_t bytes = UnfoldedSize(convolution) * value_bytes;
  return std::min(images,
                  std::max<int64_t>(1, options_.max_columns_bytes / bytes));
}

int64_t CudaDeviceMath::ColumnsSize(const Convolution& convolution,
                                    int64_t images) const {
  const int64_t size = images * UnfoldedSize(convolution);
  return SeesPixels(convolution.window) ? RoundedSize(size) : FactorSize(size);
}

int64_t CudaDeviceMath::KernelRows(const Convolution& convolution) const {
  return rounds() && convolution.groups == 1 ? ColumnsRow(convolution)
                                             : convolution.kernel_rows();
}

int64_t CudaDeviceMath::ConvolutionWorkspace(const Convolution& convolution,
                                             int64_t images) {
  if (IsDepthwise(convolution)) return DepthwiseWorkspace(convolution, images);
  const auto columns = [&](const Convolution& of) {
    return ColumnsSize(of, ImagesAtATime(of, images, /*ready=*/false));
  };
  const auto kernel = [&](const Convolution& of) {
    return KernelRows(of) * of.filters;
  };
  const int64_t at_a_time = ImagesAtATime(convolution, images, /*ready=*/false);
  const int64_t outputs = RoundedSize(at_a_time * convolution.output_size());
  const int64_t convolve =
      RoundedSize(kernel(convolution)) + columns(convolution);
  const int64_t kernel_gradient = columns(convolution) + outputs;
  int64_t input_gradient = 0;
  if (GradientIsConvolution(convolution)) {
    const Convolution gradient = Gradient(convolution);
    input_gradient = FactorSize(kernel(gradient)) + columns(gradient);
  } else {
    input_gradient =
        RoundedSize(convolution.kernel_rows() * convolution.filters) + outputs;
    if (!SeesPixels(convolution.window)) {
      input_gradient += at_a_time * convolution.window.output_places() *
                        ColumnsOf(convolution);
    }
  }
  // If cuDNN refuses an operation when it begins, the images are unfolded.
  const int64_t by_cudnn =
      cudnn_ == nullptr ? 0 : cudnn_->Workspace(convolution, images);
  return std::max({convolve, kernel_gradient, input_gradient, by_cudnn});
}

absl::StatusOr<const void*> CudaDeviceMath::ColumnsOfImages(
    const Convolution& convolution, ConstMatrix x, int64_t first, int64_t count,
    float* workspace) {
  const int64_t begin = first * x.cols;
  if (SeesPixels(convolution.window)) {
    return Factor(x, begin, count * x.cols, workspace);
  }
  const bool is_rounded = rounds() && x.rounded != nullptr;
  const void* const images =
      is_rounded ? static_cast<const void*>(
                       static_cast<const uint16_t*>(x.rounded) + begin)
                 : x.data + begin;
  HOLDFAST_RETURN_IF_ERROR(
      CudaStatus(kernels::ImagesToColumns(
                     stream_, images, is_rounded, Shape(convolution.window),
                     static_cast<int>(convolution.groups), count,
                     ColumnsRow(convolution), options_.precision, workspace),
                 "unfolding images"));
  return workspace;
}

absl::Status CudaDeviceMath::PadKernel(const Convolution& convolution,
                                       float* factor) {
  const int64_t size = convolution.kernel_rows() * convolution.filters;
  const int64_t padded = KernelRows(convolution) * convolution.filters;
  if (padded == size) return absl::OkStatus();
  return CudaStatus(
      cudaMemsetAsync(reinterpret_cast<uint16_t*>(factor) + size, 0,
                      (padded - size) * sizeof(uint16_t), stream_),
      "filling with 0");
}

absl::Status CudaDeviceMath::ConvolveFactor(const Convolution& convolution,
                                            ConstMatrix x, const void* kernel,
                                            Matrix y, float* workspace) {
  const int groups = static_cast<int>(convolution.groups);
  Gemm gemm;
  gemm.n = convolution.filters / groups;
  gemm.k = KernelRows(convolution);
  gemm.a_row = ColumnsRow(convolution);
  gemm.b_row = convolution.filters;
  gemm.c_row = convolution.filters;
  gemm.batch = groups;
  gemm.a_step = gemm.k;
  gemm.b_step = gemm.n;
  gemm.c_step = gemm.n;
  gemm.rounds_c = y.rounded_alone;
  const int64_t at_a_time =
      ImagesAtATime(convolution, x.rows, x.rounded != nullptr);
  for (int64_t first = 0; first < x.rows; first += at_a_time) {
    const int64_t images = std::min(at_a_time, x.rows - first);
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto columns,
        ColumnsOfImages(convolution, x, first, images, workspace));
    gemm.m = images * convolution.window.output_places();
    HOLDFAST_RETURN_IF_ERROR(
        Multiply(gemm, columns, kernel, ValuesAt(y, first * y.cols)));
  }
  return absl::OkStatus();
}

absl::Status CudaDeviceMath::Convolve(const Convolution& convolution,
                                      ConstMatrix x, ConstMatrix kernel,
                                      Matrix y, float* workspace) {
  if (IsDepthwise(convolution)) {
    return DepthwiseConvolve(convolution, x, kernel, y, workspace);
  }
  if (cudnn_ != nullptr) {
    const absl::StatusOr<bool> done =
        cudnn_->Convolve(convolution, x, kernel, y, workspace);
    if (!done.ok() || *done) return done.status();
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor,
                            Factor(kernel, 0, kernel.size(), workspace));
  HOLDFAST_RETURN_IF_ERROR(PadKernel(convolution, workspace));
  return ConvolveFactor(
      convolution, x, factor, y,
      workspace + RoundedSize(KernelRows(convolution) * kernel.cols));
}

absl::Status CudaDeviceMath::ConvolveKernelGradient(
    const Convolution& convolution, ConstMatrix x, ConstMatrix dy,
    Matrix kernel_gradient, float* workspace) {
  if (IsDepthwise(convolution)) {
    return DepthwiseKernelGradient(convolution, x, dy, kernel_gradient,
                                   workspace);
  }
  if (cudnn_ != nullptr) {
    const absl::StatusOr<bool> done =
        cudnn_->KernelGradient(convolution, x, dy, kernel_gradient, workspace);
    if (!done.ok() || *done) return done.status();
  }
  const int groups = static_cast<int>(convolution.groups);
  if (x.rows == 0) return Fill0(kernel_gradient);
  Gemm gemm;
  gemm.form_a = Form::kTransposed;
  gemm.m = convolution.kernel_rows();
  gemm.n = convolution.filters / groups;
  gemm.a_row = ColumnsRow(convolution);
  gemm.b_row = convolution.filters;
  gemm.c_row = convolution.filters;
  gemm.batch = groups;
  gemm.a_step = gemm.m;
  gemm.b_step = gemm.n;
  gemm.c_step = gemm.n;
  const int64_t at_a_time = ImagesAtATime(
      convolution, x.rows, x.rounded != nullptr && dy.rounded != nullptr);
  float* const for_outputs = workspace + ColumnsSize(convolution, at_a_time);
  for (int64_t first = 0; first < x.rows; first += at_a_time) {
    const int64_t images = std::min(at_a_time, x.rows - first);
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto columns,
        ColumnsOfImages(convolution, x, first, images, workspace));
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto outputs,
        Factor(dy, first * dy.cols, images * dy.cols, for_outputs));
    gemm.k = images * convolution.window.output_places();
    gemm.add = first > 0;
    HOLDFAST_RETURN_IF_ERROR(
        Multiply(gemm, columns, outputs, kernel_gradient.data));
  }
  return absl::OkStatus();
}

absl::Status CudaDeviceMath::ConvolveInputGradient(
    const Convolution& convolution, ConstMatrix kernel, ConstMatrix dy,
    Matrix dx, float* workspace) {
  if (IsDepthwise(convolution)) {
    return DepthwiseInputGradient(convolution, kernel, dy, dx, workspace);
  }
  if (cudnn_ != nullptr) {
    const absl::StatusOr<bool> done =
        cudnn_->InputGradient(convolution, kernel, dy, dx, workspace);
    if (!done.ok() || *done) return done.status();
  }
  const Window& window = convolution.window;
  if (GradientIsConvolution(convolution)) {
    const Convolution gradient = Gradient(convolution);
    HOLDFAST_RETURN_IF_ERROR(
        CudaStatus(kernels::FlipKernel(stream_, kernel.data, Shape(window),
                                       static_cast<int>(convolution.filters),
                                       options_.precision, workspace),
                   "rotating a kernel"));
    HOLDFAST_RETURN_IF_ERROR(PadKernel(gradient, workspace));
    return ConvolveFactor(
        gradient, dy, workspace, dx,
        workspace + FactorSize(KernelRows(gradient) * gradient.filters));
  }
  const int groups = static_cast<int>(convolution.groups);
  const bool sees_pixels = SeesPixels(window);
  Gemm gemm;
  gemm.form_b = Form::kTransposed;
  gemm.n = convolution.kernel_rows();
  gemm.k = convolution.filters / groups;
  gemm.a_row = convolution.filters;
  gemm.b_row = convolution.filters;
  gemm.c_row = ColumnsOf(convolution);
  gemm.batch = groups;
  gemm.a_step = gemm.k;
  gemm.b_step = gemm.k;
  gemm.c_step = gemm.n;
  gemm.rounds_c = sees_pixels && dx.rounded_alone;
  const int64_t at_a_time =
      ImagesAtATime(convolution, dx.rows, dy.rounded != nullptr);
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor,
                            Factor(kernel, 0, kernel.size(), workspace));
  float* const for_outputs = workspace + RoundedSize(kernel.size());
  float* const columns = for_outputs + RoundedSize(at_a_time * dy.cols);
  for (int64_t first = 0; first < dx.rows; first += at_a_time) {
    const int64_t images = std::min(at_a_time, dx.rows - first);
    void* const to = ValuesAt(dx, first * dx.cols);
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto outputs,
        Factor(dy, first * dy.cols, images * dy.cols, for_outputs));
    gemm.m = images * window.output_places();
    HOLDFAST_RETURN_IF_ERROR(
        Multiply(gemm, outputs, factor, sees_pixels ? to : columns));
    if (sees_pixels) continue;
    HOLDFAST_RETURN_IF_ERROR(CudaStatus(
        kernels::ColumnsToImages(stream_, columns, Shape(window), groups,
                                 images, PrecisionOf(dx), to),
        "ConvolveInputGradient"));
  }
  return absl::OkStatus();
}

absl::Status CudaDeviceMath::MaxPool(const Window& window, ConstMatrix x,
                                     Matrix y) {
  return CudaStatus(
      kernels::MaxPool(stream_, x.data, Shape(window), x.rows, y.data),
      "MaxPool");
}

int64_t CudaDeviceMath::MaxPoolGradientWorkspace(const Window& window,
                                                 int64_t images) {
  return RoundUp(kernels::MaxPoolGradientWorkspaceBytes(Shape(window), images),
                 sizeof(float)) /
         int64_t{sizeof(float)};
}

absl::Status CudaDeviceMath::MaxPoolGradient(const Window& window,
                                             ConstMatrix x, ConstMatrix y,
                                             ConstMatrix dy, Matrix dx,
                                             float* workspace) {
  return CudaStatus(
      kernels::MaxPoolGradient(stream_, x.data, dy.data, Shape(window), x.rows,
                               dx.data, workspace),
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
  return CudaStatus(kernels::ColumnMoments(stream_, InputOf(x), x.rows, x.cols,
                                           mean.data, variance.data, workspace),
                    "ColumnMoments");
}

absl::Status CudaDeviceMath::NormalizeColumns(ConstMatrix x,
                                              const ColumnNorm& norm,
                                              ConstMatrix addend, bool relu,
                                              Matrix y) {
  return CudaStatus(kernels::NormalizeColumns(
                        stream_, InputOf(x), Of(norm), InputOf(addend), relu,
                        x.rows, x.cols, ValuesOf(y), RoundedOf(y)),
                    "NormalizeColumns");
}

absl::Status CudaDeviceMath::NormalizeColumnsGradient(
    ConstMatrix x, const ColumnNorm& norm, bool relu, ConstMatrix dy,
    Matrix dscale, Matrix doffset, Matrix dx, float* workspace) {
  return CudaStatus(
      kernels::NormalizeColumnsGradient(
          stream_, InputOf(x), Of(norm), relu, InputOf(dy), x.rows, x.cols,
          dscale.data, doffset.data, ValuesOf(dx), RoundedOf(dx), workspace),
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

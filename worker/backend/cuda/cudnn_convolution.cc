// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cudnn_convolution.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernels.h"

namespace holdfast {
namespace {

// The maximum number of proposals: more than cuDNN has algorithms.
constexpr int kMaxProposals = 32;

// A model has a few plans for each of its convolutions, and more if batches
// have many sizes. Beyond the limit all plans are dropped and made again.
constexpr size_t kMaxPlans = 1024;

// cuDNN's kernels count values of a tensor in 32 bits.
constexpr int64_t kMaxTensorSize = (int64_t{1} << 31) - 1;

// The minimum number of channels in a group. With fewer, a product of unfolded
// images is faster: on an H200 a ResNet of 16 to 64 channels takes 1.3 times as
// long with cuDNN.
constexpr int64_t kMinChannels = 64;

// The limit of cuDNN's own workspace. More lets cuDNN choose faster algorithms
// for large batches.
constexpr size_t kMaxAlgorithmBytes = size_t{256} << 20;

// The limit for padded images. Those of ResNet-50 take at most 406 MiB, in
// batches of 256.
constexpr int64_t kMaxPaddedBytes = int64_t{768} << 20;

// The alignment of the parts of a workspace, in float32 values: 256 bytes.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

bool IsAligned(const float* values) {
  return reinterpret_cast<uintptr_t>(values) % 16 == 0;
}

int Narrow(int64_t value) { return static_cast<int>(value); }

// The number of window positions along one axis, with the same padding before
// and after.
int64_t Places(int64_t size, int64_t window, int64_t stride, int64_t pad) {
  return (size + 2 * pad - window) / stride + 1;
}

bool PadsAlike(const Window& w) {
  return Places(w.height, w.window_height, w.stride_height, w.pad_top) ==
             w.output_height &&
         Places(w.width, w.window_width, w.stride_width, w.pad_left) ==
             w.output_width;
}

bool SeesPixels(const Window& w) {
  return w.window_size() == 1 && w.stride_height == 1 && w.stride_width == 1 &&
         w.pad_top == 0 && w.pad_left == 0;
}

}  // namespace

std::string CudnnConvolution::Name(Direction direction,
                                   const Convolution& convolution,
                                   int64_t images) {
  const Window& w = convolution.window;
  const char* const what = direction == Direction::kForward ? "forward"
                           : direction == Direction::kKernelGradient
                               ? "gradient of the kernel"
                               : "gradient of the input";
  return absl::StrCat("a convolution (", what, ") over ", images, " images of ",
                      w.height, " x ", w.width, " x ", w.channels, ", window ",
                      w.window_height, " x ", w.window_width, ", stride ",
                      w.stride_height, " x ", w.stride_width, ", filters ",
                      convolution.filters, ", groups ", convolution.groups);
}

CudnnConvolution::Plan::~Plan() {
  if (x != nullptr) cudnn->destroy_tensor(x);
  if (kernel != nullptr) cudnn->destroy_filter(kernel);
  if (convolution != nullptr) cudnn->destroy_convolution(convolution);
  if (y != nullptr) cudnn->destroy_tensor(y);
}

int64_t CudnnConvolution::Plan::workspace() const {
  if (!usable) return 0;
  const int64_t algorithm_size = static_cast<int64_t>(
      (algorithm_bytes + sizeof(float) - 1) / sizeof(float));
  return kernel_size + images_size + Aligned(algorithm_size);
}

absl::StatusOr<std::unique_ptr<CudnnConvolution>> CudnnConvolution::Create(
    const Cudnn* cudnn, cudaStream_t stream) {
  std::unique_ptr<CudnnConvolution> made(new CudnnConvolution(cudnn, stream));
  absl::Status status =
      CudnnStatus(*cudnn, cudnn->create(&made->handle_), "starting cuDNN");
  if (!status.ok()) {
    made->handle_ = nullptr;
    return status;
  }
  status = CudnnStatus(*cudnn, cudnn->set_stream(made->handle_, stream),
                       "giving cuDNN its stream");
  if (!status.ok()) return status;
  return made;
}

CudnnConvolution::~CudnnConvolution() {
  plans_.clear();
  if (handle_ != nullptr) cudnn_->destroy(handle_);
}

const Cudnn::Operation& CudnnConvolution::OperationOf(
    Direction direction) const {
  switch (direction) {
    case Direction::kForward:
      return cudnn_->forward;
    case Direction::kKernelGradient:
      return cudnn_->backward_filter;
    case Direction::kInputGradient:
      break;
  }
  return cudnn_->backward_data;
}

std::array<Cudnn::Descriptor, 3> CudnnConvolution::Descriptors(
    Direction direction, const Plan& plan) const {
  switch (direction) {
    case Direction::kForward:
      return {plan.x, plan.kernel, plan.y};
    case Direction::kKernelGradient:
      return {plan.x, plan.y, plan.kernel};
    case Direction::kInputGradient:
      break;
  }
  return {plan.kernel, plan.y, plan.x};
}

CudnnConvolution::Plan& CudnnConvolution::PlanOf(Direction direction,
                                                 const Convolution& convolution,
                                                 int64_t images) {
  const Window& w = convolution.window;
  const Key key = {
      w.height,           w.width,        w.channels,
      w.window_height,    w.window_width, w.stride_height,
      w.stride_width,     w.pad_top,      w.pad_left,
      w.output_height,    w.output_width, convolution.filters,
      convolution.groups, images,         static_cast<int64_t>(direction)};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return *found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  std::unique_ptr<Plan>& plan = plans_[key];
  plan = std::make_unique<Plan>(cudnn_);
  // For these convolutions the caller's own way is as good, or there is nothing
  // to do.
  if (images == 0 || SeesPixels(w) ||
      w.channels / convolution.groups < kMinChannels) {
    return *plan;
  }
  const absl::Status status =
      MakePlan(direction, convolution, images, plan.get());
  plan->usable = status.ok();
  if (!status.ok()) {
    LOG(INFO) << "by im2col: " << Name(direction, convolution, images) << ": "
              << status.message();
  }
  return *plan;
}

absl::Status CudnnConvolution::MakePlan(Direction direction,
                                        const Convolution& convolution,
                                        int64_t images, Plan* plan) {
  const Window& w = convolution.window;
  plan->padded = !PadsAlike(w);
  // The extent that windows reach, which may be less than the image.
  plan->padded_height =
      plan->padded ? (w.output_height - 1) * w.stride_height + w.window_height
                   : w.height;
  plan->padded_width =
      plan->padded ? (w.output_width - 1) * w.stride_width + w.window_width
                   : w.width;
  const int64_t x_size =
      images * plan->padded_height * plan->padded_width * w.channels;
  const int64_t y_size = images * convolution.output_size();
  const int64_t kernel_size = convolution.kernel_rows() * convolution.filters;
  if (std::max({x_size, y_size, kernel_size}) > kMaxTensorSize) {
    return absl::UnimplementedError("too many values for cuDNN");
  }
  plan->kernel_size = Aligned(kernel_size);
  plan->images_size = plan->padded ? Aligned(x_size) : 0;
  if (plan->images_size > kMaxPaddedBytes / int64_t{sizeof(float)}) {
    return absl::UnimplementedError("the padded images take too much memory");
  }

  const auto check = [&](Cudnn::Status status) {
    return CudnnStatus(*cudnn_, status, "describing the operation");
  };
  absl::Status status = check(cudnn_->create_tensor(&plan->x));
  if (!status.ok()) return status;
  status = check(cudnn_->set_tensor(
      plan->x, Cudnn::kNhwc, Cudnn::kFloat, Narrow(images), Narrow(w.channels),
      Narrow(plan->padded_height), Narrow(plan->padded_width)));
  if (!status.ok()) return status;
  status = check(cudnn_->create_filter(&plan->kernel));
  if (!status.ok()) return status;
  status = check(cudnn_->set_filter(
      plan->kernel, Cudnn::kFloat, Cudnn::kNhwc, Narrow(convolution.filters),
      Narrow(w.channels / convolution.groups), Narrow(w.window_height),
      Narrow(w.window_width)));
  if (!status.ok()) return status;
  status = check(cudnn_->create_tensor(&plan->y));
  if (!status.ok()) return status;
  status = check(cudnn_->set_tensor(plan->y, Cudnn::kNhwc, Cudnn::kFloat,
                                    Narrow(images), Narrow(convolution.filters),
                                    Narrow(w.output_height),
                                    Narrow(w.output_width)));
  if (!status.ok()) return status;
  status = check(cudnn_->create_convolution(&plan->convolution));
  if (!status.ok()) return status;
  status = check(cudnn_->set_convolution(
      plan->convolution, plan->padded ? 0 : Narrow(w.pad_top),
      plan->padded ? 0 : Narrow(w.pad_left), Narrow(w.stride_height),
      Narrow(w.stride_width), 1, 1, Cudnn::kCrossCorrelation, Cudnn::kFloat));
  if (!status.ok()) return status;
  status =
      check(cudnn_->set_groups(plan->convolution, Narrow(convolution.groups)));
  if (!status.ok()) return status;
  status = ChooseFor(direction, plan);
  if (status.ok()) {
    VLOG(1) << "by cuDNN: " << Name(direction, convolution, images)
            << ": algorithm " << plan->algorithm << ", workspace "
            << plan->algorithm_bytes << " bytes"
            << (plan->padded ? ", padded by us" : "");
  }
  return status;
}

absl::Status CudnnConvolution::ChooseFor(Direction direction, Plan* plan) {
  const Cudnn::Operation& operation = OperationOf(direction);
  const auto [a, b, c] = Descriptors(direction, *plan);
  std::vector<Cudnn::Proposal> proposals(kMaxProposals);
  int count = 0;
  absl::Status status =
      CudnnStatus(*cudnn_,
                  operation.propose(handle_, a, b, plan->convolution, c,
                                    kMaxProposals, &count, proposals.data()),
                  "asking for algorithms");
  if (!status.ok()) return status;
  proposals.resize(std::min(std::max(count, 0), kMaxProposals));
  for (const Cudnn::Proposal& proposal : proposals) {
    VLOG(2) << "cuDNN proposes algorithm " << proposal.algorithm << ", status "
            << proposal.status << ", memory " << proposal.memory
            << ", deterministic " << proposal.determinism << ", math "
            << proposal.math;
  }
  for (size_t first = 0;; ++first) {
    const std::optional<size_t> chosen =
        ChooseAlgorithm(proposals, first, kMaxAlgorithmBytes);
    if (!chosen.has_value()) {
      return absl::UnimplementedError(absl::StrCat(
          "none of ", proposals.size(), " algorithms that cuDNN proposes is ",
          "deterministic, in TF32 and within ", kMaxAlgorithmBytes,
          " bytes of workspace"));
    }
    first = *chosen;
    const Cudnn::Proposal& proposal = proposals[first];
    // Whether the algorithm uses tensor cores is part of the proposal.
    status =
        CudnnStatus(*cudnn_, cudnn_->set_math(plan->convolution, proposal.math),
                    "choosing the precision");
    if (!status.ok()) return status;
    // The proposal's workspace is an estimate; this is the actual size.
    size_t bytes = 0;
    if (operation.workspace_size(handle_, a, b, plan->convolution, c,
                                 proposal.algorithm,
                                 &bytes) != Cudnn::kSuccess ||
        bytes > kMaxAlgorithmBytes) {
      continue;
    }
    plan->algorithm = proposal.algorithm;
    plan->algorithm_bytes = bytes;
    return absl::OkStatus();
  }
}

int64_t CudnnConvolution::Workspace(const Convolution& convolution,
                                    int64_t images) {
  int64_t most = 0;
  for (const Direction direction :
       {Direction::kForward, Direction::kKernelGradient,
        Direction::kInputGradient}) {
    most = std::max(most, PlanOf(direction, convolution, images).workspace());
  }
  return most;
}

absl::Status CudnnConvolution::Transpose(const float* x, int64_t rows,
                                         int64_t cols, float* y) {
  return CudaStatus(kernels::Transpose(stream_, x, rows, cols, y),
                    "transposing a kernel");
}

absl::Status CudnnConvolution::PadImages(const Window& w, const Plan& plan,
                                         int64_t images, const float* x,
                                         float* padded) {
  const kernels::ImageShift shift = {
      Narrow(w.channels),       Narrow(w.height),    Narrow(w.width),
      -Narrow(w.pad_top),       -Narrow(w.pad_left), Narrow(plan.padded_height),
      Narrow(plan.padded_width)};
  return CudaStatus(kernels::ShiftImages(stream_, x, shift, images, padded),
                    "padding images");
}

absl::StatusOr<bool> CudnnConvolution::Compute(Direction direction,
                                               const Convolution& convolution,
                                               int64_t images, const float* a,
                                               const float* b, float* c,
                                               float* workspace, Plan* plan) {
  const float one = 1.0f;
  const float zero = 0.0f;
  const auto [a_descriptor, b_descriptor, c_descriptor] =
      Descriptors(direction, *plan);
  const absl::Status status = CudnnStatus(
      *cudnn_,
      OperationOf(direction).compute(
          handle_, &one, a_descriptor, a, b_descriptor, b, plan->convolution,
          plan->algorithm, workspace + plan->kernel_size + plan->images_size,
          plan->algorithm_bytes, &zero, c_descriptor, c),
      "computing the operation");
  if (status.ok()) return true;
  if (!absl::IsUnimplemented(status)) return status;
  plan->usable = false;
  LOG(WARNING) << "by im2col: " << Name(direction, convolution, images) << ": "
               << status.message();
  return false;
}

absl::StatusOr<bool> CudnnConvolution::Convolve(const Convolution& convolution,
                                                ConstMatrix x,
                                                ConstMatrix kernel, Matrix y,
                                                float* workspace) {
  constexpr Direction kDirection = Direction::kForward;
  Plan& plan = PlanOf(kDirection, convolution, x.rows);
  if (!plan.usable || !IsAligned(y.data) ||
      (!plan.padded && !IsAligned(x.data))) {
    return false;
  }
  HOLDFAST_RETURN_IF_ERROR(
      Transpose(kernel.data, kernel.rows, kernel.cols, workspace));
  const float* images = x.data;
  if (plan.padded) {
    float* const padded = workspace + plan.kernel_size;
    HOLDFAST_RETURN_IF_ERROR(
        PadImages(convolution.window, plan, x.rows, x.data, padded));
    images = padded;
  }
  return Compute(kDirection, convolution, x.rows, images, workspace, y.data,
                 workspace, &plan);
}

absl::StatusOr<bool> CudnnConvolution::KernelGradient(
    const Convolution& convolution, ConstMatrix x, ConstMatrix dy,
    Matrix kernel_gradient, float* workspace) {
  constexpr Direction kDirection = Direction::kKernelGradient;
  Plan& plan = PlanOf(kDirection, convolution, x.rows);
  if (!plan.usable || !IsAligned(dy.data) ||
      (!plan.padded && !IsAligned(x.data))) {
    return false;
  }
  const float* images = x.data;
  if (plan.padded) {
    float* const padded = workspace + plan.kernel_size;
    HOLDFAST_RETURN_IF_ERROR(
        PadImages(convolution.window, plan, x.rows, x.data, padded));
    images = padded;
  }
  const absl::StatusOr<bool> done =
      Compute(kDirection, convolution, x.rows, images, dy.data, workspace,
              workspace, &plan);
  if (!done.ok() || !*done) return done;
  HOLDFAST_RETURN_IF_ERROR(Transpose(workspace, kernel_gradient.cols,
                                     kernel_gradient.rows,
                                     kernel_gradient.data));
  return true;
}

absl::StatusOr<bool> CudnnConvolution::InputGradient(
    const Convolution& convolution, ConstMatrix kernel, ConstMatrix dy,
    Matrix dx, float* workspace) {
  constexpr Direction kDirection = Direction::kInputGradient;
  Plan& plan = PlanOf(kDirection, convolution, dx.rows);
  if (!plan.usable || !IsAligned(dy.data) ||
      (!plan.padded && !IsAligned(dx.data))) {
    return false;
  }
  HOLDFAST_RETURN_IF_ERROR(
      Transpose(kernel.data, kernel.rows, kernel.cols, workspace));
  float* const padded = workspace + plan.kernel_size;
  const absl::StatusOr<bool> done =
      Compute(kDirection, convolution, dx.rows, workspace, dy.data,
              plan.padded ? padded : dx.data, workspace, &plan);
  if (!done.ok() || !*done || !plan.padded) return done;
  // Pixels that no window sees get 0.
  const Window& w = convolution.window;
  const kernels::ImageShift shift = {
      Narrow(w.channels), Narrow(plan.padded_height), Narrow(plan.padded_width),
      Narrow(w.pad_top),  Narrow(w.pad_left),         Narrow(w.height),
      Narrow(w.width)};
  HOLDFAST_RETURN_IF_ERROR(
      CudaStatus(kernels::ShiftImages(stream_, padded, shift, dx.rows, dx.data),
                 "taking images out of their padding"));
  return true;
}

}  // namespace holdfast

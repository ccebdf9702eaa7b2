// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cudnn.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/backend/cuda/find_library.h"

#if __has_include(<cudnn.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cudnn.h>

#include <type_traits>

namespace holdfast {
namespace {

// Whether arguments of both types are passed in the same way: enumerations are
// int.
template <typename Ours, typename Theirs>
constexpr bool PassedAlike() {
  if (std::is_enum_v<Theirs>) {
    return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
  }
  if (std::is_pointer_v<Theirs>) return std::is_pointer_v<Ours>;
  return std::is_same_v<Ours, Theirs>;
}

template <typename Ours, typename Theirs>
struct CalledAlike : std::false_type {};
template <typename OurResult, typename... Ours, typename TheirResult,
          typename... Theirs>
struct CalledAlike<OurResult (*)(Ours...), TheirResult (*)(Theirs...)> {
  static constexpr bool Check() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return PassedAlike<OurResult, TheirResult>() &&
             (PassedAlike<Ours, Theirs>() && ...);
    }
  }
  static constexpr bool value = Check();
};

#define HOLDFAST_CHECK_CALL(ours, theirs) \
  static_assert(CalledAlike<ours, decltype(&theirs)>::value, #theirs)
HOLDFAST_CHECK_CALL(decltype(Cudnn::get_version), cudnnGetVersion);
HOLDFAST_CHECK_CALL(decltype(Cudnn::get_error_string), cudnnGetErrorString);
HOLDFAST_CHECK_CALL(decltype(Cudnn::create), cudnnCreate);
HOLDFAST_CHECK_CALL(decltype(Cudnn::destroy), cudnnDestroy);
HOLDFAST_CHECK_CALL(decltype(Cudnn::set_stream), cudnnSetStream);
HOLDFAST_CHECK_CALL(decltype(Cudnn::create_tensor),
                    cudnnCreateTensorDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::destroy_tensor),
                    cudnnDestroyTensorDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::set_tensor), cudnnSetTensor4dDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::create_filter),
                    cudnnCreateFilterDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::destroy_filter),
                    cudnnDestroyFilterDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::set_filter), cudnnSetFilter4dDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::create_convolution),
                    cudnnCreateConvolutionDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::destroy_convolution),
                    cudnnDestroyConvolutionDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::set_convolution),
                    cudnnSetConvolution2dDescriptor);
HOLDFAST_CHECK_CALL(decltype(Cudnn::set_math), cudnnSetConvolutionMathType);
HOLDFAST_CHECK_CALL(decltype(Cudnn::set_groups), cudnnSetConvolutionGroupCount);
HOLDFAST_CHECK_CALL(Cudnn::Propose, cudnnGetConvolutionForwardAlgorithm_v7);
HOLDFAST_CHECK_CALL(Cudnn::Propose,
                    cudnnGetConvolutionBackwardDataAlgorithm_v7);
HOLDFAST_CHECK_CALL(Cudnn::Propose,
                    cudnnGetConvolutionBackwardFilterAlgorithm_v7);
HOLDFAST_CHECK_CALL(Cudnn::WorkspaceSize,
                    cudnnGetConvolutionForwardWorkspaceSize);
HOLDFAST_CHECK_CALL(Cudnn::WorkspaceSize,
                    cudnnGetConvolutionBackwardDataWorkspaceSize);
HOLDFAST_CHECK_CALL(Cudnn::WorkspaceSize,
                    cudnnGetConvolutionBackwardFilterWorkspaceSize);
HOLDFAST_CHECK_CALL(Cudnn::Compute, cudnnConvolutionForward);
HOLDFAST_CHECK_CALL(Cudnn::Compute, cudnnConvolutionBackwardData);
HOLDFAST_CHECK_CALL(Cudnn::Compute, cudnnConvolutionBackwardFilter);
#undef HOLDFAST_CHECK_CALL

template <typename Theirs>
constexpr bool IsProposal() {
  using Ours = Cudnn::Proposal;
  return sizeof(Theirs) == sizeof(Ours) &&
         offsetof(Theirs, algo) == offsetof(Ours, algorithm) &&
         offsetof(Theirs, status) == offsetof(Ours, status) &&
         offsetof(Theirs, time) == offsetof(Ours, time) &&
         offsetof(Theirs, memory) == offsetof(Ours, memory) &&
         offsetof(Theirs, determinism) == offsetof(Ours, determinism) &&
         offsetof(Theirs, mathType) == offsetof(Ours, math);
}
static_assert(IsProposal<cudnnConvolutionFwdAlgoPerf_t>());
static_assert(IsProposal<cudnnConvolutionBwdDataAlgoPerf_t>());
static_assert(IsProposal<cudnnConvolutionBwdFilterAlgoPerf_t>());

static_assert(Cudnn::kSuccess == CUDNN_STATUS_SUCCESS);
static_assert(Cudnn::kNotSupported == CUDNN_STATUS_NOT_SUPPORTED);
static_assert(Cudnn::kExecutionFailed == CUDNN_STATUS_EXECUTION_FAILED);
static_assert(Cudnn::kFloat == CUDNN_DATA_FLOAT);
static_assert(Cudnn::kNhwc == CUDNN_TENSOR_NHWC);
static_assert(Cudnn::kCrossCorrelation == CUDNN_CROSS_CORRELATION);
static_assert(Cudnn::kDeterministic == CUDNN_DETERMINISTIC);
static_assert(Cudnn::kDefaultMath == CUDNN_DEFAULT_MATH);
static_assert(Cudnn::kTensorOpMathAllowConversion ==
              CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);

}  // namespace
}  // namespace holdfast
#pragma GCC diagnostic pop
#endif  // __has_include(<cudnn.h>)

namespace holdfast {
namespace {

// The major version identifies the ABI.
constexpr size_t kMajor = 9;
constexpr char kLibrary[] = "libcudnn.so.9";

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

std::string Cudnn::Version() const {
  const size_t version = get_version();
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

absl::StatusOr<Cudnn> LoadCudnnFrom(const std::string& file,
                                    const std::vector<std::string>& folders) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto loaded,
                            LoadSharedLibrary(file, folders));
  void* const library = loaded;
  Cudnn cudnn;
  const bool found =
      Find(library, "cudnnGetVersion", &cudnn.get_version) &&
      Find(library, "cudnnGetErrorString", &cudnn.get_error_string) &&
      Find(library, "cudnnCreate", &cudnn.create) &&
      Find(library, "cudnnDestroy", &cudnn.destroy) &&
      Find(library, "cudnnSetStream", &cudnn.set_stream) &&
      Find(library, "cudnnCreateTensorDescriptor", &cudnn.create_tensor) &&
      Find(library, "cudnnDestroyTensorDescriptor", &cudnn.destroy_tensor) &&
      Find(library, "cudnnSetTensor4dDescriptor", &cudnn.set_tensor) &&
      Find(library, "cudnnCreateFilterDescriptor", &cudnn.create_filter) &&
      Find(library, "cudnnDestroyFilterDescriptor", &cudnn.destroy_filter) &&
      Find(library, "cudnnSetFilter4dDescriptor", &cudnn.set_filter) &&
      Find(library, "cudnnCreateConvolutionDescriptor",
           &cudnn.create_convolution) &&
      Find(library, "cudnnDestroyConvolutionDescriptor",
           &cudnn.destroy_convolution) &&
      Find(library, "cudnnSetConvolution2dDescriptor",
           &cudnn.set_convolution) &&
      Find(library, "cudnnSetConvolutionMathType", &cudnn.set_math) &&
      Find(library, "cudnnSetConvolutionGroupCount", &cudnn.set_groups) &&
      Find(library, "cudnnGetConvolutionForwardAlgorithm_v7",
           &cudnn.forward.propose) &&
      Find(library, "cudnnGetConvolutionForwardWorkspaceSize",
           &cudnn.forward.workspace_size) &&
      Find(library, "cudnnConvolutionForward", &cudnn.forward.compute) &&
      Find(library, "cudnnGetConvolutionBackwardDataAlgorithm_v7",
           &cudnn.backward_data.propose) &&
      Find(library, "cudnnGetConvolutionBackwardDataWorkspaceSize",
           &cudnn.backward_data.workspace_size) &&
      Find(library, "cudnnConvolutionBackwardData",
           &cudnn.backward_data.compute) &&
      Find(library, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
           &cudnn.backward_filter.propose) &&
      Find(library, "cudnnGetConvolutionBackwardFilterWorkspaceSize",
           &cudnn.backward_filter.workspace_size) &&
      Find(library, "cudnnConvolutionBackwardFilter",
           &cudnn.backward_filter.compute);
  if (!found) {
    return absl::FailedPreconditionError(absl::StrCat(
        file, " is not the version of cuDNN that we know: ", dlerror()));
  }
  if (cudnn.get_version() / 10000 != kMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        file, " is cuDNN ", cudnn.Version(), " (cudnnGetVersion: ",
        cudnn.get_version(), "); this program calls cuDNN ", kMajor));
  }
  return cudnn;
}

absl::StatusOr<const Cudnn*> LoadCudnn() {
  static const auto* const loaded =
      new absl::StatusOr<Cudnn>(LoadCudnnFrom(kLibrary, CudaLibraryFolders()));
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

absl::Status CudnnStatus(const Cudnn& cudnn, Cudnn::Status status,
                         absl::string_view what) {
  if (status == Cudnn::kSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat(what, ": cuDNN returned ", cudnn.get_error_string(status));
  return status >= Cudnn::kExecutionFailed ? absl::InternalError(message)
                                           : absl::UnimplementedError(message);
}

std::optional<size_t> ChooseAlgorithm(
    absl::Span<const Cudnn::Proposal> proposals, size_t first,
    size_t max_workspace) {
  for (size_t i = first; i < proposals.size(); ++i) {
    const Cudnn::Proposal& proposal = proposals[i];
    if (proposal.status == Cudnn::kSuccess &&
        proposal.math != Cudnn::kTensorOpMathAllowConversion &&
        proposal.determinism == Cudnn::kDeterministic &&
        proposal.memory <= max_workspace) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace holdfast

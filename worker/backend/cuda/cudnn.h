#ifndef HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

// The functions of cuDNN 9 that we call, as found in the shared library when a
// GPU is first used. They are declared here, since cuDNN is no part of the CUDA
// toolkit that we build with; where its headers are, cudnn.cc compares.
//
// These are the functions of its older interface, by descriptors: NVIDIA's
// advice is the newer one, by graphs, which does nothing more for convolutions
// of float32 and takes several times as much code.
struct Cudnn {
  // cudnnHandle_t, and descriptors of tensors, filters and convolutions.
  using Handle = void*;
  using Descriptor = void*;

  // Names are cuDNN's enumerations.
  using Status = int;
  static constexpr Status kSuccess = 0;
  static constexpr Status kNotSupported = 3000;
  // From here on: CUDA has failed. Below, nothing has been computed.
  static constexpr Status kExecutionFailed = 5000;
  static constexpr int kFloat = 0;
  static constexpr int kNhwc = 1;
  static constexpr int kCrossCorrelation = 1;
  static constexpr int kDeterministic = 1;
  // May round factors to TensorFloat-32; what a new descriptor has.
  static constexpr int kDefaultMath = 0;
  // May round factors to float16.
  static constexpr int kTensorOpMathAllowConversion = 2;

  // An algorithm as cuDNN proposes it.
  struct Proposal {
    int algorithm;
    // Whether it can be used.
    Status status;
    float time;
    // Bytes of workspace.
    size_t memory;
    int determinism;
    int math;
    int reserved[3];
  };

  // cudnnConvolutionForward, ...BackwardData and ...BackwardFilter take the
  // same arguments but for what they are of: a and b are read, c is written.
  // The algorithm is one of the function's own.
  using Compute = Status (*)(Handle, const void* alpha, Descriptor a_descriptor,
                             const void* a, Descriptor b_descriptor,
                             const void* b, Descriptor convolution,
                             int algorithm, void* workspace,
                             size_t workspace_size, const void* beta,
                             Descriptor c_descriptor, void* c);
  // cudnnGetConvolution*Algorithm_v7: at most `wanted`, the fastest first, by
  // its heuristics.
  using Propose = Status (*)(Handle, Descriptor a, Descriptor b,
                             Descriptor convolution, Descriptor c, int wanted,
                             int* count, Proposal* proposals);
  // cudnnGetConvolution*WorkspaceSize.
  using WorkspaceSize = Status (*)(Handle, Descriptor a, Descriptor b,
                                   Descriptor convolution, Descriptor c,
                                   int algorithm, size_t* size);
  struct Operation {
    Propose propose;
    WorkspaceSize workspace_size;
    Compute compute;
  };

  size_t (*get_version)();
  const char* (*get_error_string)(Status);
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  // The stream is a cudaStream_t.
  Status (*set_stream)(Handle, void* stream);
  Status (*create_tensor)(Descriptor*);
  Status (*destroy_tensor)(Descriptor);
  Status (*set_tensor)(Descriptor, int format, int type, int n, int c, int h,
                       int w);
  Status (*create_filter)(Descriptor*);
  Status (*destroy_filter)(Descriptor);
  Status (*set_filter)(Descriptor, int type, int format, int k, int c, int h,
                       int w);
  Status (*create_convolution)(Descriptor*);
  Status (*destroy_convolution)(Descriptor);
  Status (*set_convolution)(Descriptor, int pad_h, int pad_w, int stride_h,
                            int stride_w, int dilation_h, int dilation_w,
                            int mode, int type);
  Status (*set_math)(Descriptor convolution, int math);
  Status (*set_groups)(Descriptor convolution, int groups);
  // a = x, b = kernel, c = y.
  Operation forward;
  // a = kernel, b = dy, c = dx.
  Operation backward_data;
  // a = x, b = dy, c = the kernel's gradient.
  Operation backward_filter;

  // As "9.19.0".
  std::string Version() const;
};

// The library is loaded by the first call, and stays.
// Errors: FAILED_PRECONDITION, with where it was looked for, when it is not
// there, or is not what we know. Thread-safe.
absl::StatusOr<const Cudnn*> LoadCudnn();

// The same of the library `file`, which may be in one of `folders`
// (LoadSharedLibrary): for LoadCudnn and for tests.
absl::StatusOr<Cudnn> LoadCudnnFrom(const std::string& file,
                                    const std::vector<std::string>& folders);

// What cuDNN answered when `what` was tried: OK; INTERNAL when CUDA has failed;
// UNIMPLEMENTED when cuDNN has refused, of which its own trouble, as memory or
// a part of it that is missing, is a case too: it can be done without cuDNN.
absl::Status CudnnStatus(const Cudnn& cudnn, Cudnn::Status status,
                         absl::string_view what);

// The place of the first proposal, from `first` on, that can be used, gives the
// same bits in every run, needs at most so many bytes of workspace, and rounds
// factors to TensorFloat-32 or not at all. None: nullopt.
std::optional<size_t> ChooseAlgorithm(
    absl::Span<const Cudnn::Proposal> proposals, size_t first,
    size_t max_workspace);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_H_

// SPDX-License-Identifier: Apache-2.0
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
// GPU is first used. They are declared here because cuDNN is not part of the
// CUDA toolkit that we build with; if its headers are there, cudnn.cc compares
// the declarations with them.
//
// These functions are from its older, descriptor-based interface. NVIDIA
// recommends the newer, graph-based one, which gains nothing for convolutions
// of float32 and takes several times as much code.
struct Cudnn {
  // Stand for cudnnHandle_t, and for the descriptors of tensors, filters and
  // convolutions.
  using Handle = void*;
  using Descriptor = void*;

  // The constants are named after cuDNN's enumerators.
  using Status = int;
  static constexpr Status kSuccess = 0;
  static constexpr Status kNotSupported = 3000;
  // From this value on, CUDA has failed. Below, nothing has been computed.
  static constexpr Status kExecutionFailed = 5000;
  static constexpr int kFloat = 0;
  static constexpr int kNhwc = 1;
  static constexpr int kCrossCorrelation = 1;
  static constexpr int kDeterministic = 1;
  // May round factors to TensorFloat-32; the default of a new descriptor.
  static constexpr int kDefaultMath = 0;
  // May round factors to float16.
  static constexpr int kTensorOpMathAllowConversion = 2;

  // An algorithm that cuDNN proposes (cudnnConvolution*AlgoPerf_t).
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
  // same arguments, with different meanings: a and b are read, c is written.
  // `algorithm` is one of the function's own enumerators.
  using Compute = Status (*)(Handle, const void* alpha, Descriptor a_descriptor,
                             const void* a, Descriptor b_descriptor,
                             const void* b, Descriptor convolution,
                             int algorithm, void* workspace,
                             size_t workspace_size, const void* beta,
                             Descriptor c_descriptor, void* c);
  // cudnnGetConvolution*Algorithm_v7: at most `wanted` algorithms, the fastest
  // first, by cuDNN's heuristics.
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

  // For example "9.19.0".
  std::string Version() const;
};

// The library is loaded by the first call, and stays loaded.
// Errors: FAILED_PRECONDITION, naming the places searched, when the library is
// not found, or is not a version that we know. Thread-safe.
absl::StatusOr<const Cudnn*> LoadCudnn();

// Loads the library `file`, searching `folders` too (LoadSharedLibrary): for
// LoadCudnn and for tests.
absl::StatusOr<Cudnn> LoadCudnnFrom(const std::string& file,
                                    const std::vector<std::string>& folders);

// cuDNN's result of trying `what`, as a Status: OK; INTERNAL when CUDA has
// failed; UNIMPLEMENTED when cuDNN has refused, including for its own failures,
// such as a lack of memory or a missing part of the library: the operation can
// be done without cuDNN.
absl::Status CudnnStatus(const Cudnn& cudnn, Cudnn::Status status,
                         absl::string_view what);

// The index of the first proposal, from `first` on, that can be used, gives the
// same bits in every run, needs at most `max_workspace` bytes of workspace, and
// rounds factors to TensorFloat-32 or not at all; nullopt if there is none.
std::optional<size_t> ChooseAlgorithm(
    absl::Span<const Cudnn::Proposal> proposals, size_t first,
    size_t max_workspace);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_H_

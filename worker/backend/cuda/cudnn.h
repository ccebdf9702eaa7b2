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

// The functions of cuDNN 9 that we call, which LoadCudnn finds in the shared
// library. They are declared here because cuDNN is not part of the CUDA toolkit
// that we build with; if cuDNN's headers are installed, cudnn.cc compares these
// declarations with them.
//
// These functions are from cuDNN's older interface, which is based on
// descriptors. NVIDIA recommends the newer one, which is based on graphs; it
// gains nothing for convolutions of float32, and takes several times as much
// code.
struct Cudnn {
  // Handle stands for cudnnHandle_t; Descriptor stands for cuDNN's descriptors
  // of tensors, filters and convolutions.
  using Handle = void*;
  using Descriptor = void*;

  // cuDNN's enumerators, with the same names and values.
  using Status = int;
  static constexpr Status kSuccess = 0;
  static constexpr Status kNotSupported = 3000;
  // Values from this one on mean that CUDA has failed. With lower ones, except
  // kSuccess, nothing has been computed.
  static constexpr Status kExecutionFailed = 5000;
  static constexpr int kFloat = 0;
  static constexpr int kNhwc = 1;
  static constexpr int kCrossCorrelation = 1;
  static constexpr int kDeterministic = 1;
  // cuDNN may round factors to TensorFloat-32. The default of a new descriptor.
  static constexpr int kDefaultMath = 0;
  // cuDNN may round factors to float16.
  static constexpr int kTensorOpMathAllowConversion = 2;

  // An algorithm that cuDNN proposes (cudnnConvolution*AlgoPerf_t).
  struct Proposal {
    int algorithm;
    // kSuccess if the algorithm can be used.
    Status status;
    float time;
    // The workspace that the algorithm needs, in bytes.
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
  // cudnnGetConvolution*Algorithm_v7: proposes at most `wanted` algorithms, in
  // the order of the speed that cuDNN's heuristics expect, the fastest first.
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

  // Returns the library's version, for example "9.19.0".
  std::string Version() const;
};

// Returns the functions of cuDNN. The first call loads the library, which stays
// loaded.
// Errors: FAILED_PRECONDITION, naming the places searched, when the library is
// not found, or is not a version that we know. Thread-safe.
absl::StatusOr<const Cudnn*> LoadCudnn();

// Loads cuDNN from the library `file`, searching `folders` too
// (LoadSharedLibrary). Used by LoadCudnn and by tests.
absl::StatusOr<Cudnn> LoadCudnnFrom(const std::string& file,
                                    const std::vector<std::string>& folders);

// Converts cuDNN's result of trying to do `what` to a Status: OK; INTERNAL when
// CUDA has failed; UNIMPLEMENTED when cuDNN has refused or has failed by
// itself, for example for lack of memory or of a part of the library, so that
// the operation can still be done without cuDNN.
absl::Status CudnnStatus(const Cudnn& cudnn, Cudnn::Status status,
                         absl::string_view what);

// Returns the index of the first proposal, from `first` on, that can be used,
// gives the same bits in every run, needs at most `max_workspace` bytes of
// workspace, and rounds factors to TensorFloat-32 or not at all; nullopt if
// there is none.
std::optional<size_t> ChooseAlgorithm(
    absl::Span<const Cudnn::Proposal> proposals, size_t first,
    size_t max_workspace);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_CUDNN_H_

// SPDX-License-Identifier: Apache-2.0

// A fake cuDNN that exports every function, none of which does anything, with a
// configurable version: for cudnn_test.cc.
#include <cstddef>

#ifndef FAKE_CUDNN_VERSION
#define FAKE_CUDNN_VERSION 92801
#endif

extern "C" {

size_t cudnnGetVersion() { return FAKE_CUDNN_VERSION; }
const char* cudnnGetErrorString(int status) {
  return status == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED"
                        : "CUDNN_STATUS_NOT_INITIALIZED";
}

#define FAKE(name) \
  int name() { return 1001; }
FAKE(cudnnCreate)
FAKE(cudnnDestroy)
FAKE(cudnnSetStream)
FAKE(cudnnCreateTensorDescriptor)
FAKE(cudnnDestroyTensorDescriptor)
FAKE(cudnnSetTensor4dDescriptor)
FAKE(cudnnCreateFilterDescriptor)
FAKE(cudnnDestroyFilterDescriptor)
FAKE(cudnnSetFilter4dDescriptor)
FAKE(cudnnCreateConvolutionDescriptor)
FAKE(cudnnDestroyConvolutionDescriptor)
FAKE(cudnnSetConvolution2dDescriptor)
FAKE(cudnnSetConvolutionMathType)
FAKE(cudnnSetConvolutionGroupCount)
FAKE(cudnnGetConvolutionForwardAlgorithm_v7)
FAKE(cudnnGetConvolutionForwardWorkspaceSize)
FAKE(cudnnConvolutionForward)
FAKE(cudnnGetConvolutionBackwardDataAlgorithm_v7)
FAKE(cudnnGetConvolutionBackwardDataWorkspaceSize)
FAKE(cudnnConvolutionBackwardData)
#ifndef FAKE_CUDNN_LACKS_A_FUNCTION
FAKE(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
#endif
FAKE(cudnnGetConvolutionBackwardFilterWorkspaceSize)
FAKE(cudnnConvolutionBackwardFilter)

}  // extern "C"

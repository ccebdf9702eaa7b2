// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/emulated_cudnn.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace holdfast {
namespace {

using Status = Cudnn::Status;

constexpr Status kBadParam = 2000;

std::function<void(std::function<void()>)> g_enqueue;

// A descriptor of any kind. Sizes are those of a tensor, those of a filter (n
// is the number of filters), or the padding of a convolution (h and w).
struct Descriptor {
  int n = 0, c = 0, h = 0, w = 0;
  int stride_h = 0, stride_w = 0;
  int groups = 1;
  int math = Cudnn::kDefaultMath;
};

Descriptor& Of(Cudnn::Descriptor descriptor) {
  return *static_cast<Descriptor*>(descriptor);
}

Status Create(Cudnn::Descriptor* descriptor) {
  *descriptor = new Descriptor;
  return Cudnn::kSuccess;
}

Status Destroy(Cudnn::Descriptor descriptor) {
  delete &Of(descriptor);
  return Cudnn::kSuccess;
}

struct Shapes {
  Descriptor x, kernel, convolution, y;
};

Status Check(const Shapes& s) {
  const auto places = [](int size, int pad, int window, int stride) {
    return (size + 2 * pad - window) / stride + 1;
  };
  const bool fits = s.x.n == s.y.n && s.kernel.n == s.y.c &&
                    s.kernel.c * s.convolution.groups == s.x.c &&
                    s.kernel.n % s.convolution.groups == 0 &&
                    s.y.h == places(s.x.h, s.convolution.h, s.kernel.h,
                                    s.convolution.stride_h) &&
                    s.y.w == places(s.x.w, s.convolution.w, s.kernel.w,
                                    s.convolution.stride_w);
  return fits ? Cudnn::kSuccess : kBadParam;
}

// The second proposal: the first is not deterministic.
constexpr int kAlgorithm = 1;
constexpr size_t kWorkspace = 1000;

Status Propose(const Shapes& shapes, int wanted, int* count,
               Cudnn::Proposal* proposals) {
  if (wanted < 2) return kBadParam;
  const Status status = Check(shapes);
  if (status != Cudnn::kSuccess) return status;
  const int math = shapes.convolution.math;
  proposals[0] = {0, Cudnn::kSuccess, 1.0f, 0, 0, math, {}};
  proposals[1] = {kAlgorithm,
                  Cudnn::kSuccess,
                  2.0f,
                  kWorkspace,
                  shapes.kernel.h == 4 ? 0 : Cudnn::kDeterministic,
                  math,
                  {}};
  *count = 2;
  return Cudnn::kSuccess;
}

// Calls visit(x, kernel, y) with the indices of each product's three values.
template <typename Visit>
void ForEachProduct(const Shapes& s, Visit visit) {
  const int filters = s.kernel.n / s.convolution.groups;
  for (int n = 0; n < s.y.n; ++n) {
    for (int p = 0; p < s.y.h; ++p) {
      for (int q = 0; q < s.y.w; ++q) {
        for (int k = 0; k < s.y.c; ++k) {
          for (int r = 0; r < s.kernel.h; ++r) {
            for (int t = 0; t < s.kernel.w; ++t) {
              const int h = p * s.convolution.stride_h - s.convolution.h + r;
              const int w = q * s.convolution.stride_w - s.convolution.w + t;
              if (h < 0 || h >= s.x.h || w < 0 || w >= s.x.w) continue;
              for (int c = 0; c < s.kernel.c; ++c) {
                const int channel = k / filters * s.kernel.c + c;
                visit(((n * s.x.h + h) * s.x.w + w) * s.x.c + channel,
                      ((k * s.kernel.h + r) * s.kernel.w + t) * s.kernel.c + c,
                      ((n * s.y.h + p) * s.y.w + q) * s.y.c + k);
              }
            }
          }
        }
      }
    }
  }
}

enum class Result { kX, kKernel, kY };

Status Compute(const Shapes& s, Result result, const void* alpha, const void* a,
               const void* b, int algorithm, void* workspace,
               size_t workspace_size, const void* beta, void* c) {
  const auto is_aligned = [](const void* values) {
    return reinterpret_cast<uintptr_t>(values) % 16 == 0;
  };
  if (Check(s) != Cudnn::kSuccess || algorithm != kAlgorithm ||
      workspace_size < kWorkspace || *static_cast<const float*>(alpha) != 1 ||
      *static_cast<const float*>(beta) != 0 || !is_aligned(a) ||
      !is_aligned(b) || !is_aligned(c) || !is_aligned(workspace)) {
    return kBadParam;
  }
  if (s.convolution.stride_h == 2 && s.kernel.h == 5) {
    return Cudnn::kNotSupported;
  }
  g_enqueue([=] {
    // Overwrites the workspace, which may hold nothing else.
    std::memset(workspace, 0xff, workspace_size);
    const Descriptor& made = result == Result::kX        ? s.x
                             : result == Result::kKernel ? s.kernel
                                                         : s.y;
    const float* const left = static_cast<const float*>(a);
    const float* const right = static_cast<const float*>(b);
    float* const to = static_cast<float*>(c);
    std::memset(to, 0, sizeof(float) * made.n * made.c * made.h * made.w);
    ForEachProduct(s, [&](int x, int kernel, int y) {
      switch (result) {
        case Result::kX:
          to[x] += left[kernel] * right[y];
          break;
        case Result::kKernel:
          to[kernel] += left[x] * right[y];
          break;
        case Result::kY:
          to[y] += left[x] * right[kernel];
          break;
      }
    });
  });
  return Cudnn::kSuccess;
}

// The arguments are in the order of each operation.
template <Result result>
Shapes Order(Cudnn::Descriptor a, Cudnn::Descriptor b,
             Cudnn::Descriptor convolution, Cudnn::Descriptor c) {
  switch (result) {
    case Result::kX:
      return {Of(c), Of(a), Of(convolution), Of(b)};
    case Result::kKernel:
      return {Of(a), Of(c), Of(convolution), Of(b)};
    case Result::kY:
      break;
  }
  return {Of(a), Of(b), Of(convolution), Of(c)};
}

template <Result result>
Cudnn::Operation MakeOperation() {
  Cudnn::Operation operation;
  operation.propose = [](Cudnn::Handle, Cudnn::Descriptor a,
                         Cudnn::Descriptor b, Cudnn::Descriptor convolution,
                         Cudnn::Descriptor c, int wanted, int* count,
                         Cudnn::Proposal* proposals) {
    return Propose(Order<result>(a, b, convolution, c), wanted, count,
                   proposals);
  };
  operation.workspace_size = [](Cudnn::Handle, Cudnn::Descriptor,
                                Cudnn::Descriptor, Cudnn::Descriptor,
                                Cudnn::Descriptor, int, size_t* size) {
    *size = kWorkspace;
    return Cudnn::kSuccess;
  };
  operation.compute = [](Cudnn::Handle, const void* alpha,
                         Cudnn::Descriptor a_descriptor, const void* a,
                         Cudnn::Descriptor b_descriptor, const void* b,
                         Cudnn::Descriptor convolution, int algorithm,
                         void* workspace, size_t workspace_size,
                         const void* beta, Cudnn::Descriptor c_descriptor,
                         void* c) {
    return Compute(
        Order<result>(a_descriptor, b_descriptor, convolution, c_descriptor),
        result, alpha, a, b, algorithm, workspace, workspace_size, beta, c);
  };
  return operation;
}

Cudnn Make() {
  Cudnn cudnn;
  cudnn.get_version = [] { return size_t{90000}; };
  cudnn.get_error_string = [](Status) { return "an error"; };
  cudnn.create = [](Cudnn::Handle* handle) {
    static int the_handle;
    *handle = &the_handle;
    return Cudnn::kSuccess;
  };
  cudnn.destroy = [](Cudnn::Handle) { return Cudnn::kSuccess; };
  cudnn.set_stream = [](Cudnn::Handle, void*) { return Cudnn::kSuccess; };
  cudnn.create_tensor = Create;
  cudnn.destroy_tensor = Destroy;
  cudnn.create_filter = Create;
  cudnn.destroy_filter = Destroy;
  cudnn.create_convolution = Create;
  cudnn.destroy_convolution = Destroy;
  cudnn.set_tensor = [](Cudnn::Descriptor tensor, int format, int type, int n,
                        int c, int h, int w) {
    Descriptor& d = Of(tensor);
    d.n = n;
    d.c = c;
    d.h = h;
    d.w = w;
    return format == Cudnn::kNhwc && type == Cudnn::kFloat ? Cudnn::kSuccess
                                                           : kBadParam;
  };
  cudnn.set_filter = [](Cudnn::Descriptor filter, int type, int format, int k,
                        int c, int h, int w) {
    Descriptor& d = Of(filter);
    d.n = k;
    d.c = c;
    d.h = h;
    d.w = w;
    return format == Cudnn::kNhwc && type == Cudnn::kFloat ? Cudnn::kSuccess
                                                           : kBadParam;
  };
  cudnn.set_convolution =
      [](Cudnn::Descriptor convolution, int pad_h, int pad_w, int stride_h,
         int stride_w, int dilation_h, int dilation_w, int mode, int type) {
        Descriptor& d = Of(convolution);
        d.h = pad_h;
        d.w = pad_w;
        d.stride_h = stride_h;
        d.stride_w = stride_w;
        return dilation_h == 1 && dilation_w == 1 &&
                       mode == Cudnn::kCrossCorrelation && type == Cudnn::kFloat
                   ? Cudnn::kSuccess
                   : kBadParam;
      };
  cudnn.set_math = [](Cudnn::Descriptor convolution, int math) {
    Of(convolution).math = math;
    return Cudnn::kSuccess;
  };
  cudnn.set_groups = [](Cudnn::Descriptor convolution, int groups) {
    Of(convolution).groups = groups;
    return Cudnn::kSuccess;
  };
  cudnn.forward = MakeOperation<Result::kY>();
  cudnn.backward_data = MakeOperation<Result::kX>();
  cudnn.backward_filter = MakeOperation<Result::kKernel>();
  return cudnn;
}

}  // namespace

const Cudnn* EmulatedCudnn(std::function<void(std::function<void()>)> enqueue) {
  g_enqueue = std::move(enqueue);
  static const Cudnn cudnn = Make();
  return &cudnn;
}

}  // namespace holdfast

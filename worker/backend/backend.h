// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_BACKEND_H_
#define HOLDFAST_WORKER_BACKEND_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/process/host_memory.h"
#include "common/trace/trace.h"
#include "worker/backend/precision.h"

namespace holdfast {

// A view of a float32 matrix in a backend's memory: row-major, dense. The host
// must not dereference `data`, which may be an address on a GPU. A tensor of a
// higher rank is viewed as a matrix too: its first dimension gives the rows,
// all others together give the columns.
//
// A matrix may come with `rounded`, a copy of its values in the precision to
// which factors of products are rounded (precision.h). Products read the copy
// instead of rounding the values again (Backend::ReserveFactor). An operation
// that writes the values must also write the copy, or be given a matrix without
// a copy.
//
// If `rounded_alone`, the matrix has rounded values only. They are in `rounded`
// and nothing may be read from `data` or, if `rounded` is null, in `data`, as
// float32. An operation that writes such a matrix rounds its results. Only
// these operations take such matrices (Backend::ReserveFactor and
// ReserveRounded):
//
//   MatMul, Convolve, ConvolveInputGradient   the factors and the result
//   AddMatMul, ConvolveKernelGradient         the factors
//   ReluGradient                              y
//   ColumnMoments                             x
//   NormalizeColumns                          x, the addend and y
//   NormalizeColumnsGradient                  x, dy and dx
struct ConstMatrix {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* rounded = nullptr;
  bool rounded_alone = false;

  int64_t size() const { return rows * cols; }
};

struct Matrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  void* rounded = nullptr;
  bool rounded_alone = false;

  int64_t size() const { return rows * cols; }
  operator ConstMatrix() const {
    return {data, rows, cols, rounded, rounded_alone};
  }
};

// The window of a convolution or of pooling, which moves over images. An image
// is one row of a matrix, with its values in the order [height, width,
// channels] (NHWC). If the window reaches beyond the image, it sees padding
// there, but it always covers at least one pixel.
struct Window {
  // The size of an input image.
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t window_height = 1;
  int64_t window_width = 1;
  int64_t stride_height = 1;
  int64_t stride_width = 1;
  // The rows of padding above an image, and the columns of padding to its left.
  // Below the image and to its right there is as much padding as the last
  // position of the window needs.
  int64_t pad_top = 0;
  int64_t pad_left = 0;
  // The size of an output image: the number of positions that the window takes.
  int64_t output_height = 0;
  int64_t output_width = 0;

  int64_t input_size() const { return height * width * channels; }
  int64_t window_size() const { return window_height * window_width; }
  int64_t output_places() const { return output_height * output_width; }
};

// A convolution in the sense of machine learning: a cross-correlation. Input
// and output channels are divided into the same number of groups; each output
// group sees only the input channels of its own group.
//
// The kernel is a matrix [window_height window_width channels / groups,
// filters], row-major over [y, x, channel]; with groups, filter f belongs to
// group f / (filters / groups).
struct Convolution {
  Window window;
  int64_t filters = 0;
  int64_t groups = 1;

  int64_t kernel_rows() const {
    return window.window_size() * (window.channels / groups);
  }
  int64_t output_size() const { return window.output_places() * filters; }
};

// What NormalizeColumns needs to normalise the columns of a matrix [m, n]. The
// matrices below are [1, n], with one value per column.
struct ColumnNorm {
  ConstMatrix mean;
  ConstMatrix variance;
  float epsilon = 0;
  ConstMatrix scale;
  ConstMatrix offset;
};

// Whether MatMul takes a factor as it is or transposed.
enum class Form { kPlain, kTransposed };

// A backend's memory for float32 values, which is given back to the backend on
// destruction. A buffer may grow (Backend::Reserve), but never shrinks. It must
// not outlive the backend.
class DeviceBuffer {
 public:
  using Free = std::function<void(float*)>;

  DeviceBuffer() = default;
  DeviceBuffer(float* data, int64_t capacity, Free free)
      : data_(data, std::move(free)), capacity_(capacity) {}

  // The number of values that fit.
  int64_t capacity() const { return capacity_; }

  // Returns the first rows x cols values as a matrix. They must be within the
  // capacity.
  Matrix View(int64_t rows, int64_t cols) const {
    return {data_.get(), rows, cols};
  }

 private:
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

// A model's own operation (Backend::Custom). On a GPU, `cuda_stream` is a
// cudaStream_t: the operation launches its kernels on this stream and does not
// wait for them. On other devices `cuda_stream` is absent, and the operation
// has computed its results when it returns.
using CustomOperation =
    std::function<absl::Status(std::optional<void*> cuda_stream)>;

// Values on their way from a backend to the host.
struct Download {
  // Must not be read before they have arrived (Backend::Await).
  absl::Span<const float> values;
  // The backend's own number for the work that must be done before the values
  // have arrived.
  uint64_t ticket = 0;
};

// A matrix that its backend lets other backends read (Backend::Share). The
// caller keeps one SharedMatrix for each matrix that it shares, and passes the
// same one in each call for this matrix.
struct SharedMatrix {
  ConstMatrix matrix;
  // Used by the backends alone: the event after which the matrix can be read,
  // and the device whose memory holds the matrix.
  int event = -1;
  const void* ready = nullptr;
  int device = 0;
};

// What a loss compares the outputs for a batch's examples with.
struct Targets {
  // The class of each example; empty if there are `values`.
  absl::Span<const int32_t> labels;
  // A number for each output, [examples, outputs]; empty if there are `labels`.
  absl::Span<const float> values;
  // How much the loss of each example counts. Empty: all weights are 1.
  absl::Span<const float> weights;
};

// Bags of rows of a matrix, described by arrays in host memory. A bag has any
// number of rows, and may have a row more than once. Each occurrence of a row
// in a bag is a use; uses are numbered bag by bag.
struct Bags {
  // Indexed by use: its row, its bag, and the factor by which the row is
  // multiplied. If `weights` is empty, all factors are 1.
  absl::Span<const uint32_t> rows;
  absl::Span<const uint32_t> bags;
  absl::Span<const float> weights;
  // Bag b has the uses [offsets[b], offsets[b + 1]).
  absl::Span<const uint32_t> offsets;
  // Row r has the uses uses[i] for i in [begins[r], begins[r + 1]), in
  // ascending order.
  absl::Span<const uint32_t> uses;
  absl::Span<const uint32_t> begins;

  int64_t num_bags() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_rows() const { return static_cast<int64_t>(begins.size()) - 1; }
};

// The same as Bags, but in memory that a backend's operations can read
// (Backend::UploadBags).
struct DeviceBags {
  const uint32_t* rows = nullptr;
  const uint32_t* bags = nullptr;
  // Null: all weights are 1.
  const float* weights = nullptr;
  const uint32_t* offsets = nullptr;
  const uint32_t* uses = nullptr;
  const uint32_t* begins = nullptr;
  int64_t num_uses = 0;
  int64_t num_bags = 0;
  int64_t num_rows = 0;
  // Operations treat this many consecutive bags as one.
  int64_t merged = 1;

  int64_t num_merged_bags() const { return num_bags / merged; }
  // Returns the same bags with every `count` consecutive ones merged into one.
  // `count` must divide num_merged_bags().
  DeviceBags Merged(int64_t count) const {
    DeviceBags bags = *this;
    bags.merged *= count;
    return bags;
  }
};

// Memory for everything that a DeviceBags points to: one block, so that a
// single copy fills it.
using BagsBuffer = DeviceBuffer;

// The losses of Backend, named after its functions.
enum class LossKind {
  kSoftmaxCrossEntropy,
  kSigmoidCrossEntropy,
  kMeanSquaredError,
  kMeanAbsoluteError,
  kHuber
};
struct LossFunction {
  LossKind kind;
  // Used by kHuber only.
  float delta = 0;

  // Whether the loss compares outputs with targets as numbers.
  bool is_distance() const {
    return kind != LossKind::kSoftmaxCrossEntropy &&
           kind != LossKind::kSigmoidCrossEntropy;
  }
};

// The result of a loss over a batch.
struct LossSums {
  // The sum of the examples' losses, each times the weight of the example.
  // Logarithms are natural.
  double loss = 0;
  // The number of examples whose class is predicted correctly. Absent if no
  // class is predicted.
  std::optional<int64_t> correct;
  // The sums over the examples, not weighted, of the mean over the outputs of
  // |output - target| and of (output - target)^2. Absent if the loss does not
  // compare outputs with targets as numbers.
  std::optional<double> absolute_error;
  std::optional<double> squared_error;
};

// A loss whose sums may still be on their way to the host.
struct PendingLoss {
  // Set if the sums are known already, as they are if the host computes.
  std::optional<LossSums> sums;
  // Used by the backend alone, if `sums` is absent: the download that brings
  // the sums, and whether these include LossSums::correct and the two errors.
  Download download;
  bool tells_correct = false;
  bool tells_errors = false;
};

// The arithmetic behind a model. A model computes with tensors only through a
// backend, so that the model runs on any device for which there is a backend.
//
// Matrices are in the backend's memory; Upload and StartDownload are the only
// ways in and out. Operations begin in the order of the calls, and each sees
// the results of those before it. An operation may end after its call has
// returned: its error is then returned by the next call that returns a status,
// and only values that have been downloaded are certain to be right.
//
// The caller must pass matrices whose shapes match and whose dimensions are
// below 2^31. A matrix may have no rows. Sums run in a fixed order: the same
// calls give the same bits, for the same device and number of threads, wherever
// in memory the matrices are.
//
// Thread-compatible: one model uses it from one thread at a time. Await and
// ReadLoss are an exception: while that thread goes on using the backend,
// another thread may call them for a download, or a loss, whose Start call has
// returned.
class Backend {
 public:
  struct Description {
    // The hardware that computes. On the CPU it is the type of core for which
    // OpenBLAS has chosen its code, such as "SkylakeX".
    std::string core;
    // The number of threads that compute one operation. A different number
    // gives different bits.
    int threads = 1;
  };

  virtual ~Backend() = default;

  virtual Description Describe() const = 0;

  // Whether operations and copies may still be under way when their calls have
  // returned. If not, downloads and losses are there at once, and waiting for
  // them in another thread gains nothing.
  virtual bool IsAsynchronous() const { return false; }

  // Sets the tracer in which the backend records its operations and copies from
  // now on, and in which the backend's users record parts of models. `tracer`
  // must outlive the backend. If it is null, as it is by default, nothing is
  // recorded.
  virtual void SetTracer(Tracer* tracer) { tracer_ = tracer; }
  Tracer* tracer() const { return tracer_; }

  // Makes `buffer` hold at least `size` values. If the buffer has to grow, its
  // values are undefined afterwards. Errors: RESOURCE_EXHAUSTED when there is
  // no memory.
  virtual absl::Status Reserve(int64_t size, DeviceBuffer* buffer) = 0;

  // Reserves room for a matrix of rows x cols that NormalizeColumns or its
  // gradient will write and products will read. The matrix gets a rounded copy
  // (ConstMatrix) if this backend rounds the factors of products and a copy
  // saves time. If `alone`, nothing but products may read the matrix, which may
  // then have the copy alone. Errors: those of Reserve.
  virtual absl::StatusOr<Matrix> ReserveFactor(int64_t rows, int64_t cols,
                                               bool /*alone*/,
                                               DeviceBuffer* buffer) {
    HOLDFAST_RETURN_IF_ERROR(Reserve(rows * cols, buffer));
    return buffer->View(rows, cols);
  }

  // Whether the matrices of ReserveRounded have rounded values only
  // (ConstMatrix::rounded_alone); otherwise they have only float32 values.
  virtual bool RoundsActivations() const { return false; }
  // Reserves room for a matrix of rows x cols that only operations in the list
  // at ConstMatrix touch. Errors: those of Reserve.
  absl::StatusOr<Matrix> ReserveRounded(int64_t rows, int64_t cols,
                                        DeviceBuffer* buffer) {
    if (!RoundsActivations()) {
      HOLDFAST_RETURN_IF_ERROR(Reserve(rows * cols, buffer));
      return buffer->View(rows, cols);
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        auto matrix, ReserveFactor(rows, cols, /*alone=*/true, buffer));
    matrix.rounded_alone = true;
    return matrix;
  }

  // Reserves room for a matrix of rows x cols that will be downloaded to
  // `host`: in `host` itself if the backend can write host memory, so that the
  // download copies nothing; otherwise, or if `host` is empty, in `buffer`. If
  // `host` is not empty, it must have rows x cols values. Errors: those of
  // Reserve.
  virtual absl::StatusOr<Matrix> ReserveFor(absl::Span<float> host,
                                            int64_t rows, int64_t cols,
                                            DeviceBuffer* buffer) {
    HOLDFAST_RETURN_IF_ERROR(Reserve(rows * cols, buffer));
    return buffer->View(rows, cols);
  }

  // Returns the rows x cols values of `host` as a matrix. A backend that can
  // read host memory returns a view of `host`; any other begins to copy the
  // values into `staging`, and the copy may still be under way when the call
  // returns. `host` and `staging` must not change until the results that depend
  // on the matrix have been downloaded and, if it is possible that no result
  // depends on it, until AwaitUploads has returned.
  virtual absl::StatusOr<ConstMatrix> Upload(absl::Span<const float> host,
                                             int64_t rows, int64_t cols,
                                             DeviceBuffer* staging) = 0;

  // Allocates host memory for `size` values, which are undefined. A backend
  // that copies can upload values directly from this memory; values elsewhere
  // are first moved by the host. The memory must not outlive the backend.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<HostBuffer> AllocateHost(int64_t size) = 0;
  // Returns an allocator of the same kind of memory, for other users, such as
  // those that receive values from the network. Any thread may use the
  // allocator, which lives as long as the backend. It is null if Upload does
  // not copy.
  virtual HostMemory* host_memory() { return nullptr; }
  // Waits until all copies that Upload has begun are complete: from then on the
  // host memory from which they were made may change.
  virtual absl::Status AwaitUploads() = 0;

  // Begins to copy `matrix`, which must not change meanwhile, to the host. The
  // downloaded values stay valid until the memory behind `matrix` is written or
  // downloaded again.
  virtual absl::StatusOr<Download> StartDownload(ConstMatrix matrix) = 0;
  // Whether the values have arrived; downloads arrive in the order of the calls
  // of StartDownload.
  virtual absl::StatusOr<bool> HasArrived(const Download& download) = 0;
  // Waits until the values have arrived. May be called by a second thread, as
  // said above.
  virtual absl::Status Await(const Download& download) = 0;

  // Lets other backends of the same kind read `matrix`, with the values that it
  // has after all operations called so far, and sets `shared`, which they pass
  // to Fetch. The matrix must not change until the results that the other
  // backends compute from it have been downloaded.
  virtual absl::Status Share(ConstMatrix matrix, SharedMatrix* shared) = 0;
  // Returns a matrix that another backend of the same kind shares, in a form
  // that this backend's operations can read: the shared memory itself if this
  // backend can read it, otherwise a copy in `staging`. Must be called by the
  // thread that uses this backend, after Share has returned.
  virtual absl::StatusOr<ConstMatrix> Fetch(const SharedMatrix& shared,
                                            DeviceBuffer* staging) = 0;
  // From now on Fetch copies what the owner of `shared` shares over host
  // memory: for devices that cannot be trusted to copy from each other.
  virtual void FetchOverHost(const SharedMatrix& shared) {}

  // Runs a model's own operation, which must read and write no matrices of the
  // backend except `touched`. Errors: those that `operation` returns.
  virtual absl::Status Custom(absl::Span<const ConstMatrix> touched,
                              CustomOperation operation) = 0;

  // c = form_a(a) form_b(b), with c [m, n] and inner dimension k, where
  // form(x) is x or its transpose. c must not overlap a or b.
  virtual void MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                      Matrix c) = 0;
  // c += form_a(a) form_b(b), with the same shapes.
  virtual void AddMatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                         Matrix c) = 0;

  // y[i, j] += bias[0, j], with y [m, n] and bias [1, n].
  virtual void AddBias(ConstMatrix bias, Matrix y) = 0;

  // sums[0, j] = sum over i of x[i, j], with x [m, n] and sums [1, n].
  virtual void SumRows(ConstMatrix x, Matrix sums) = 0;

  // sum = sum over i and j of x[i, j]^2, in double, with sum [1, 2]: the memory
  // of one double, aligned to 8 bytes. The sum is finite if and only if all
  // values are, because the square of a float is exact in double, and no sum of
  // such squares overflows.
  virtual void SumSquares(ConstMatrix x, Matrix sum) = 0;

  // y[i, j] = max(x[i, j], 0), NaN where x is NaN, so that a NaN shows in the
  // loss. y may be x.
  virtual void Relu(ConstMatrix x, Matrix y) = 0;

  // dx[i, j] = dy[i, j] where y[i, j] > 0, else 0, with y from Relu. dx may be
  // dy.
  virtual void ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // y[i, j] = tanh(x[i, j]). y may be x.
  virtual void Tanh(ConstMatrix x, Matrix y) = 0;

  // dx[i, j] = dy[i, j] (1 - y[i, j]^2), with y from Tanh. dx may be dy.
  virtual void TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // y[i, j] = 1 / (1 + exp(-x[i, j])), computed from exp(-|x|), which cannot
  // overflow. y may be x.
  virtual void Sigmoid(ConstMatrix x, Matrix y) = 0;

  // dx[i, j] = dy[i, j] y[i, j] (1 - y[i, j]), with y from Sigmoid. dx may be
  // dy.
  virtual void SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // With the probability `rate`, which is in [0, 1), y[i, j] = 0; otherwise
  // y[i, j] = s x[i, j], with s = 1 / (1 - rate) as a float32. y[i, j] is 0 if
  //
  //   word j mod 4 of Philox4x32({p, p >> 32, j / 4, 0}, {key, key >> 32})
  //
  // (common/base/random.h), with p = positions[i], is below rate 2^32. The same
  // call on dy computes dx. `positions`, one per row, are in host memory, which
  // must not change until the results that depend on y have been downloaded. y
  // may be x.
  virtual void Dropout(ConstMatrix x, absl::Span<const int64_t> positions,
                       uint64_t key, float rate, Matrix y) = 0;

  // y[i, j] = x[i, j]. x and y must not overlap.
  virtual void Copy(ConstMatrix x, Matrix y) = 0;

  // c[i, j] = a[i, j] + b[i, j]. c may be a or b.
  virtual void Add(ConstMatrix a, ConstMatrix b, Matrix c) = 0;

  // y[i, j] = factor x[i, j]. y may be x.
  virtual void Scale(float factor, ConstMatrix x, Matrix y) = 0;

  // y[i, j] += factor x[i, j], where the product is rounded before it is added.
  // x and y must not overlap.
  virtual void AddScaled(float factor, ConstMatrix x, Matrix y) = 0;

  // y[i, (p, q, f)] = sum over (v, u, c) of
  //     x[i, (p stride_height - pad_top + v, q stride_width - pad_left + u, c)]
  //     kernel[(v, u, c), f],
  //
  // with c over the channels of f's group and 0 for x beyond the image; with x
  // [m, input_size], y [m, output_size]. Needs memory of its own. Errors: those
  // of Reserve.
  virtual absl::Status Convolve(const Convolution& convolution, ConstMatrix x,
                                ConstMatrix kernel, Matrix y) = 0;
  // Computes the gradient with respect to the kernel from dy, the gradient with
  // respect to y.
  virtual absl::Status ConvolveKernelGradient(const Convolution& convolution,
                                              ConstMatrix x, ConstMatrix dy,
                                              Matrix kernel_gradient) = 0;
  // Computes dx, the gradient with respect to x, from dy.
  virtual absl::Status ConvolveInputGradient(const Convolution& convolution,
                                             ConstMatrix kernel, ConstMatrix dy,
                                             Matrix dx) = 0;

  // y[i, (p, q, c)] = the greatest x of channel c in the window at position (p,
  // q), in which padding does not count; NaN if one of these x is NaN.
  virtual void MaxPool(const Window& window, ConstMatrix x, Matrix y) = 0;
  // Computes dx from dy, with x and y from MaxPool. Each dy is added to the dx
  // of the pixel that was the greatest in its window: of equal pixels, the
  // first in the order of the image; if y is NaN, the first NaN.
  virtual void MaxPoolGradient(const Window& window, ConstMatrix x,
                               ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // y[i, (p, q, c)] = the mean of x of channel c in the window at position (p,
  // q); neither sum nor count includes padding.
  virtual void AveragePool(const Window& window, ConstMatrix x, Matrix y) = 0;
  virtual void AveragePoolGradient(const Window& window, ConstMatrix dy,
                                   Matrix dx) = 0;

  // Normalises each column of x [m, n], m at least 1, over its rows:
  //
  //   mean[0, j]     = sum over i of x[i, j] / m
  //   variance[0, j] = sum over i of (x[i, j] - mean[0, j])^2 / m
  //
  // (Ioffe and Szegedy 2015; images are given as one row per pixel.) Sums are
  // computed in double or pairwise, so that their error does not grow with m.
  virtual void ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance) = 0;
  // Normalises the columns of x and adds `addend`, which may have no data:
  //
  //   n[i, j] = (x[i, j] - mean[0, j]) / sqrt(variance[0, j] + epsilon)
  //             scale[0, j] + offset[0, j]
  //   y[i, j] = n[i, j] + addend[i, j]
  //
  // If `relu`, y is the Relu of this sum. y may be x, if both or neither have
  // rounded values only, but not the addend.
  virtual void NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                ConstMatrix addend, bool relu, Matrix y) = 0;
  // Computes the gradients of NormalizeColumns, with mean and variance of x
  // from ColumnMoments. With h = (x - mean) / sqrt(variance + epsilon), and
  // with g = dy or, if `relu`, g = dy where n > 0 and 0 elsewhere:
  //
  //   dscale[0, j]  = sum over i of g[i, j] h[i, j]
  //   doffset[0, j] = sum over i of g[i, j]
  //   dx[i, j]      = scale[0, j] / sqrt(variance[0, j] + epsilon)
  //                   (g[i, j] - doffset[0, j] / m - h[i, j] dscale[0, j] / m)
  //
  // dx may be dy, if both or neither have rounded values only; it is not
  // computed if it has no data.
  virtual void NormalizeColumnsGradient(ConstMatrix x, const ColumnNorm& norm,
                                        bool relu, ConstMatrix dy,
                                        Matrix dscale, Matrix doffset,
                                        Matrix dx) = 0;

  // Normalises each row of x as NormalizeColumns normalises a column, with
  // scale and offset [1, n] (Ba et al. 2016). Row i of `moments` [m, 2] gets
  // the mean and 1 / sqrt(variance + epsilon) of row i of x.
  virtual void NormalizeRows(ConstMatrix x, float epsilon, ConstMatrix scale,
                             ConstMatrix offset, Matrix moments, Matrix y) = 0;
  // Computes the gradients of NormalizeRows, with `moments` from it:
  //
  //   h[i, j]       = (x[i, j] - moments[i, 0]) moments[i, 1]
  //   g[i, j]       = dy[i, j] scale[0, j]
  //   dscale[0, j]  = sum over i of dy[i, j] h[i, j]
  //   doffset[0, j] = sum over i of dy[i, j]
  //   dx[i, j]      = moments[i, 1]
  //                   (g[i, j] - mean of g[i] - h[i, j] mean of (g h)[i])
  //
  // dx may be dy; it is not computed if it has no data.
  virtual void NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                     ConstMatrix moments, ConstMatrix dy,
                                     Matrix dscale, Matrix doffset,
                                     Matrix dx) = 0;

  // Makes `bags` readable by operations. As with Upload, the arrays in host
  // memory, and `staging`, must not change until the results that depend on
  // them have been downloaded.
  virtual absl::StatusOr<DeviceBags> UploadBags(const Bags& bags,
                                                BagsBuffer* staging) = 0;

  // y[b] = sum over the uses k of bag b of weights[k] rows[bags.rows[k]], with
  // rows [num_rows, d], y [num_merged_bags, d]. The terms are added to 0 one by
  // one, in the order of the uses.
  virtual void SumBags(const DeviceBags& bags, ConstMatrix rows, Matrix y) = 0;
  // drows[r] = sum over the uses k of row r of weights[k] dy[the bag of k]. The
  // terms are added in the same way.
  virtual void SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                               Matrix drows) = 0;

  // Computes, for each bag, the sum of the dot products of all pairs of its
  // uses (Rendle 2010, lemma 3.1). With the vector x[k] = weights[k]
  // rows[bags.rows[k]] for use k:
  //
  //   sums[b] = sum over k of x[k]
  //   y[b, 0] = sum over j of (sums[b, j]^2 - sum over k of x[k, j]^2) / 2,
  //
  // with sums [num_merged_bags, d], y [num_merged_bags, 1].
  virtual void PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                            Matrix sums, Matrix y) = 0;
  // drows[r] += sum over the uses k of row r of
  //             dy[b, 0] weights[k] (sums[b] - weights[k] rows[r]), b the bag
  //             of k.
  virtual void AddPairwiseBagsGradient(const DeviceBags& bags, ConstMatrix rows,
                                       ConstMatrix sums, ConstMatrix dy,
                                       Matrix drows) = 0;

  // Computes the dot products of all pairs of vectors in a row. A row of x
  // [m, n d] consists of n vectors of d values; a row of y [m, n (n - 1) / 2]
  // has the dot products in the order (1, 0), (2, 0), (2, 1), (3, 0) and so on:
  //
  //   y[i, (p, q)] = <x[i, p], x[i, q]>, q < p.
  virtual void DotPairs(ConstMatrix x, int64_t n, Matrix y) = 0;
  // dx[i, p] = sum over q other than p of dy[i, (p, q) or (q, p)] x[i, q].
  virtual void DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                Matrix dx) = 0;

  // y[i, to + j] = x[i, from + j] for j in [0, count). x and y must not
  // overlap.
  virtual void CopyColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                           int64_t to) = 0;
  // y[i, to + j] += x[i, from + j] for j in [0, count).
  virtual void AddColumns(ConstMatrix x, int64_t from, int64_t count, Matrix y,
                          int64_t to) = 0;

  // The losses. Each compares outputs z [m, n] with targets in host memory, and
  // waits for the result. dz, which is written to `gradient`, is the gradient
  // of the mean over the examples of weight x loss. If `gradient` is null, dz
  // is not computed; otherwise `gradient` is [m, n], and may be z. A loss that
  // is not finite is not an error here. The predicted class is that of the
  // greatest output, the first of equal ones, unless stated otherwise; no class
  // is predicted if the targets are values. w[i] is the weight of example i.

  // Softmax and cross-entropy with one right class per example, labels in
  // [0, n):
  //
  //   max_i      = max over j of z[i, j]
  //   sum_i      = sum over j of exp(z[i, j] - max_i)
  //   loss_i     = log(sum over j of exp(z[i, j])) - z[i, labels[i]]
  //   dz[i, j]   = w[i] (exp(z[i, j] - max_i) / sum_i - [j = labels[i]]) / m
  virtual absl::StatusOr<LossSums> SoftmaxCrossEntropy(ConstMatrix logits,
                                                       const Targets& targets,
                                                       Matrix* gradient) = 0;

  // Sigmoid and cross-entropy of each output with a target t of 0 or 1:
  //
  //   t[i, j]    = values[i, j], from 0 to 1, if there are values;
  //                labels[i], which is 0 or 1, if n is 1;
  //                [j = labels[i]], with labels in [0, n), otherwise
  //   loss_i     = mean over j of
  //                max(z[i, j], 0) - z[i, j] t[i, j] + log(1 + exp(-|z[i, j]|))
  //   dz[i, j]   = w[i] (sigmoid(z[i, j]) - t[i, j]) / (m n)
  //
  // If n is 1, a logit above 0 predicts class 1, any other class 0.
  virtual absl::StatusOr<LossSums> SigmoidCrossEntropy(ConstMatrix logits,
                                                       const Targets& targets,
                                                       Matrix* gradient) = 0;

  // The distance from a target t, with e[i, j] = z[i, j] - t[i, j]:
  //
  //   t[i, j]    = values[i, j] if there are values;
  //                labels[i] if n is 1;
  //                [j = labels[i]], with labels in [0, n), otherwise
  //   loss_i     = mean over j of d(e[i, j])
  //   dz[i, j]   = w[i] d'(e[i, j]) / (m n)
  //
  // These losses also return the absolute and the squared error. If n is 1, no
  // class is predicted.

  // d(e) = e^2, d'(e) = 2 e.
  virtual absl::StatusOr<LossSums> MeanSquaredError(ConstMatrix outputs,
                                                    const Targets& targets,
                                                    Matrix* gradient) = 0;
  // d(e) = |e|; d'(e) is the sign of e, and 0 at 0.
  virtual absl::StatusOr<LossSums> MeanAbsoluteError(ConstMatrix outputs,
                                                     const Targets& targets,
                                                     Matrix* gradient) = 0;
  // Huber 1964, with delta above 0: where |e| <= delta, d(e) = e^2 / 2 and
  // d'(e) = e; elsewhere d(e) = delta (|e| - delta / 2), and d'(e) is delta
  // with the sign of e.
  virtual absl::StatusOr<LossSums> Huber(ConstMatrix outputs,
                                         const Targets& targets, float delta,
                                         Matrix* gradient) = 0;

  // Begins to compute the loss that `loss` names, and does not wait for it, so
  // that operations on the gradient can be begun before the loss is known.
  virtual absl::StatusOr<PendingLoss> StartLoss(const LossFunction& loss,
                                                ConstMatrix outputs,
                                                const Targets& targets,
                                                Matrix* gradient);
  // Waits for the sums of the loss that was started last, but not for
  // operations that were begun after it. May be called by a second thread, as
  // said above.
  virtual absl::StatusOr<LossSums> ReadLoss(const PendingLoss& loss) {
    return *loss.sums;
  }

 private:
  Tracer* tracer_ = nullptr;
};

inline absl::StatusOr<PendingLoss> Backend::StartLoss(const LossFunction& loss,
                                                      ConstMatrix outputs,
                                                      const Targets& targets,
                                                      Matrix* gradient) {
  const absl::StatusOr<LossSums> sums = [&] {
    switch (loss.kind) {
      case LossKind::kSoftmaxCrossEntropy:
        return SoftmaxCrossEntropy(outputs, targets, gradient);
      case LossKind::kSigmoidCrossEntropy:
        return SigmoidCrossEntropy(outputs, targets, gradient);
      case LossKind::kMeanAbsoluteError:
        return MeanAbsoluteError(outputs, targets, gradient);
      case LossKind::kHuber:
        return Huber(outputs, targets, loss.delta, gradient);
      case LossKind::kMeanSquaredError:
        break;
    }
    return MeanSquaredError(outputs, targets, gradient);
  }();
  if (!sums.ok()) return sums.status();
  PendingLoss made;
  made.sums = *sums;
  return made;
}

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_BACKEND_H_

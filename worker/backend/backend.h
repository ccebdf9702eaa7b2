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

namespace holdfast {

// A view of a float32 matrix in a backend's memory: row-major, dense. The host
// must not follow `data`, which may be an address on a GPU. Tensors of a higher
// rank are matrices too: their first dimension is the rows, all others together
// are the columns.
struct ConstMatrix {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t size() const { return rows * cols; }
};

struct Matrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  int64_t size() const { return rows * cols; }
  operator ConstMatrix() const { return {data, rows, cols}; }
};

// Whether MatMul takes a factor as it is or transposed.
enum class Form { kPlain, kTransposed };

// float32 memory of a backend, given back to it at the end. May grow, never
// shrinks. Must not outlive the backend.
class DeviceBuffer {
 public:
  using Free = std::function<void(float*)>;

  DeviceBuffer() = default;
  DeviceBuffer(float* data, int64_t capacity, Free free)
      : data_(data, std::move(free)), capacity_(capacity) {}

  // Values that it has room for.
  int64_t capacity() const { return capacity_; }

  // The first rows x cols values, which must be within the capacity.
  Matrix View(int64_t rows, int64_t cols) const {
    return {data_.get(), rows, cols};
  }

 private:
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
};

// Values on their way from a backend to the host.
struct Download {
  // To be read once they have arrived.
  absl::Span<const float> values;
  // The backend's own mark of when that is.
  uint64_t ticket = 0;
};

// What a loss makes of a batch.
struct LossSums {
  // Over the examples; natural logarithms.
  double loss = 0;
  // Examples whose class is predicted right. Absent where none is predicted.
  std::optional<int64_t> correct;
  // Over the examples: the mean over the outputs of |output - target|. Absent
  // where the outputs are not compared with targets as numbers.
  std::optional<double> absolute_error;
};

// The arithmetic behind a model. Everything that a model does to tensors goes
// through one, so that the model runs on whatever the backend runs on.
//
// Matrices are in the backend's memory; Upload and StartDownload are the only
// ways in and out. Operations are begun in the order of the calls, and each
// sees the results of those before it. They may end later than the call: what
// went wrong in one is told by the next call that returns a status, and only
// what has been downloaded is certain.
//
// Shapes are the caller's duty, as are dimensions below 2^31. A matrix may have
// no rows. Sums run in a fixed order: the same calls give the same bits, for
// the same device and number of threads, wherever in memory the matrices lie.
//
// Thread-compatible: one model uses it from one thread at a time.
class Backend {
 public:
  struct Description {
    // What calculates: the core that OpenBLAS has chosen its code for, as
    // "SkylakeX".
    std::string core;
    // Threads within an operation. Another number gives other bits.
    int threads = 1;
  };

  virtual ~Backend() = default;

  virtual Description Describe() const = 0;

  // Makes `buffer` hold at least `size` values, its values undefined if it has
  // to grow. Errors: RESOURCE_EXHAUSTED when there is no memory.
  virtual absl::Status Reserve(int64_t size, DeviceBuffer* buffer) = 0;

  // The values of `host` as a matrix of rows x cols = their number. A backend
  // that can read host memory returns a view of it; any other copies, into
  // `staging`. Both must stay until what uses the matrix has been downloaded.
  virtual absl::StatusOr<ConstMatrix> Upload(absl::Span<const float> host,
                                             int64_t rows, int64_t cols,
                                             DeviceBuffer* staging) = 0;

  // Begins to bring `matrix`, which must not change meanwhile, to the host. The
  // values stay until the memory behind `matrix` is written or downloaded
  // again.
  virtual absl::StatusOr<Download> StartDownload(ConstMatrix matrix) = 0;
  // Whether the values are there; they arrive in the order of the calls of
  // StartDownload.
  virtual absl::StatusOr<bool> HasArrived(const Download& download) = 0;
  // Waits until they are there.
  virtual absl::Status Await(const Download& download) = 0;

  // c = form_a(a) form_b(b), with c [m, n] and inner dimension k, where
  // form(x) is x or its transpose. c must not overlap a or b.
  virtual void MatMul(Form form_a, ConstMatrix a, Form form_b, ConstMatrix b,
                      Matrix c) = 0;

  // y[i, j] += bias[0, j], with y [m, n] and bias [1, n].
  virtual void AddBias(ConstMatrix bias, Matrix y) = 0;

  // sums[0, j] = sum over i of x[i, j], with x [m, n] and sums [1, n].
  virtual void SumRows(ConstMatrix x, Matrix sums) = 0;

  // y[i, j] = max(x[i, j], 0), NaN where x is NaN, so that what is not a number
  // shows in the loss. y may be x.
  virtual void Relu(ConstMatrix x, Matrix y) = 0;

  // dx[i, j] = dy[i, j] where y[i, j] > 0, else 0, with y of Relu. dx may be
  // dy.
  virtual void ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // y[i, j] = tanh(x[i, j]). y may be x.
  virtual void Tanh(ConstMatrix x, Matrix y) = 0;

  // dx[i, j] = dy[i, j] (1 - y[i, j]^2), with y of Tanh. dx may be dy.
  virtual void TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // y[i, j] = 1 / (1 + exp(-x[i, j])), by exp(-|x|), which cannot overflow. y
  // may be x.
  virtual void Sigmoid(ConstMatrix x, Matrix y) = 0;

  // dx[i, j] = dy[i, j] y[i, j] (1 - y[i, j]), with y of Sigmoid. dx may be dy.
  virtual void SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) = 0;

  // y[i, j] = s x[i, j], with s = 1 / (1 - rate) as a float32, or, with the
  // probability `rate`, which is in [0, 1), 0: where
  //
  //   word j mod 4 of Philox4x32({p, p >> 32, j / 4, 0}, {key, key >> 32})
  //
  // (common/random.h), with p = positions[i], is below rate 2^32. The same call
  // on dy makes dx. `positions`, one per row, are on the host and stay until
  // what uses y has been downloaded. y may be x.
  virtual void Dropout(ConstMatrix x, absl::Span<const int64_t> positions,
                       uint64_t key, float rate, Matrix y) = 0;

  // The losses. Each compares outputs z [m, n] with a label per example, on the
  // host, and waits for the result. dz is the gradient of the mean loss; none
  // is made when `gradient` is null, else [m, n], and it may be z. A loss that
  // is not finite is no error here. The predicted class is that of the greatest
  // output, and of equals the first, unless something else is said.

  // Softmax and cross-entropy with one right class per example, labels in
  // [0, n):
  //
  //   loss_i     = log(sum over j of exp(z[i, j])) - z[i, labels[i]]
  //   dz[i, j]   = (exp(z[i, j] - max_i) / sum_i - [j = labels[i]]) / m
  virtual absl::StatusOr<LossSums> SoftmaxCrossEntropy(
      ConstMatrix logits, absl::Span<const int32_t> labels,
      Matrix* gradient) = 0;

  // Sigmoid and cross-entropy of each output with a target t of 0 or 1:
  //
  //   t[i, j]    = labels[i], which is 0 or 1, where n is 1;
  //                [j = labels[i]], with labels in [0, n), otherwise
  //   loss_i     = mean over j of
  //                max(z[i, j], 0) - z[i, j] t[i, j] + log(1 + exp(-|z[i, j]|))
  //   dz[i, j]   = (sigmoid(z[i, j]) - t[i, j]) / (m n)
  //
  // Where n is 1, a logit above 0 predicts class 1, any other class 0.
  virtual absl::StatusOr<LossSums> SigmoidCrossEntropy(
      ConstMatrix logits, absl::Span<const int32_t> labels,
      Matrix* gradient) = 0;

  // The squared distance from a target t:
  //
  //   t[i, j]    = labels[i] where n is 1;
  //                [j = labels[i]], with labels in [0, n), otherwise
  //   loss_i     = mean over j of (z[i, j] - t[i, j])^2
  //   dz[i, j]   = 2 (z[i, j] - t[i, j]) / (m n)
  //
  // Tells the absolute error. Where n is 1 no class is predicted.
  virtual absl::StatusOr<LossSums> MeanSquaredError(
      ConstMatrix outputs, absl::Span<const int32_t> labels,
      Matrix* gradient) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_BACKEND_H_

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/stream_backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// The number of values that the host moves to pinned memory before their copy
// begins: one piece is copied while the host moves the next. 4 MiB keep the bus
// busy for long enough that the host's part of a copy, a few microseconds, is
// negligible.
constexpr int64_t kPiece = int64_t{1} << 20;

// In values.
constexpr int64_t kLossSumsSize = sizeof(DeviceLossSums) / sizeof(float);

// Pinned memory that one device allocates, for copies to every device that
// shares `ranges`.
class PinnedMemory final : public HostMemory {
 public:
  // The arguments must outlive the object.
  PinnedMemory(DeviceRuntime* runtime, PinnedRanges* ranges, std::string device)
      : runtime_(*runtime), ranges_(*ranges), device_(std::move(device)) {}

  HostBuffer Allocate(int64_t size) override {
    const absl::Status bound = runtime_.BindThread();
    const absl::StatusOr<float*> memory =
        bound.ok() ? runtime_.AllocatePinned(size) : bound;
    if (!memory.ok()) {
      Tell(memory.status());
      return nullptr;
    }
    ranges_.Add(*memory, size * sizeof(float));
    return HostBuffer(*memory, [this](float* memory) {
      ranges_.Remove(memory);
      runtime_.BindThread().IgnoreError();
      runtime_.FreePinned(memory);
    });
  }

  bool Register(const void* data, size_t bytes) override {
    absl::Status status = runtime_.BindThread();
    if (status.ok()) status = runtime_.RegisterPinned(data, bytes);
    if (status.ok()) {
      ranges_.Add(data, bytes);
    } else {
      Tell(status);
    }
    return status.ok();
  }

  void Unregister(const void* data) override {
    ranges_.Remove(data);
    runtime_.BindThread().IgnoreError();
    runtime_.UnregisterPinned(data);
  }

 private:
  void Tell(const absl::Status& status) {
    if (told_.exchange(true)) return;
    LOG(WARNING) << "copies to " << device_
                 << " go through unpinned host memory, which is slower: "
                 << status.message();
  }

  DeviceRuntime& runtime_;
  PinnedRanges& ranges_;
  const std::string device_;
  std::atomic<bool> told_ = false;
};

// The memory that an operation on bags touches: all their parts are in one
// block.
ConstMatrix MemoryOf(const DeviceBags& bags) {
  return {reinterpret_cast<const float*>(bags.offsets), 1, 1};
}

}  // namespace

StreamBackend::StreamBackend(std::unique_ptr<DeviceRuntime> runtime,
                             std::unique_ptr<DeviceMath> math, Options options)
    : options_(std::move(options)),
      runtime_(std::move(runtime)),
      math_(std::move(math)),
      compute_(runtime_.get(), StreamId::kCompute),
      in_(runtime_.get(), StreamId::kCopyIn),
      out_(runtime_.get(), StreamId::kCopyOut),
      pool_(runtime_.get(), options_.name, [this] { return AwaitStreams(); }),
      pinned_(options_.pinned != nullptr ? options_.pinned
                                         : std::make_shared<PinnedRanges>()),
      host_memory_(std::make_unique<PinnedMemory>(runtime_.get(), pinned_.get(),
                                                  options_.name)) {}

StreamBackend::~StreamBackend() {
  // Errors have been returned before, or are of no interest any more.
  runtime_->BindThread().IgnoreError();
  AwaitStreams().IgnoreError();
  if (trace_ != nullptr) trace_->Collect().IgnoreError();
}

void StreamBackend::SetTracer(Tracer* tracer) {
  Backend::SetTracer(tracer);
  trace_.reset();
  if (tracer == nullptr) return;
  trace_ = std::make_unique<DeviceTrace>(runtime_.get(), tracer, options_.name);
  absl::Status status = Enter();
  if (status.ok()) status = trace_->Collect();
  Keep(std::move(status));
}

absl::Status StreamBackend::AwaitStreams() {
  absl::Status status = compute_.Await(compute_.last());
  status.Update(in_.Await(in_.last()));
  status.Update(out_.Await(out_.last()));
  return status;
}

absl::Status StreamBackend::Enter() {
  {
    absl::MutexLock lock(&mutex_);
    if (!error_.ok()) return error_;
  }
  return runtime_->BindThread();
}

void StreamBackend::Keep(absl::Status status) {
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  if (error_.ok()) error_ = std::move(status);
}

absl::StatusOr<Block*> StreamBackend::BlockOf(const float* value) {
  Block* const block = pool_.Find(value);
  if (block != nullptr) return block;
  return absl::InternalError(absl::StrCat(
      "a matrix that was given to ", options_.name, " is not in its memory"));
}

absl::Status StreamBackend::Reserve(int64_t size, DeviceBuffer* buffer) {
  if (size <= buffer->capacity()) return absl::OkStatus();
  *buffer = DeviceBuffer();
  absl::Status status = Enter();
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto block, pool_.Take(size));
  *buffer =
      DeviceBuffer(block->device, block->size,
                   [pool = &pool_](float* device) { pool->GiveBack(device); });
  return absl::OkStatus();
}

absl::StatusOr<Matrix> StreamBackend::ReserveFactor(int64_t rows, int64_t cols,
                                                    bool alone,
                                                    DeviceBuffer* buffer) {
  const int64_t size = rows * cols;
  const int64_t copy = math_->RoundedCopy(size);
  if (copy == 0) return Backend::ReserveFactor(rows, cols, alone, buffer);
  // The copy follows the values, at the alignment that products need.
  constexpr int64_t kAlignment = 64;
  const int64_t begin =
      alone ? 0 : (size + kAlignment - 1) / kAlignment * kAlignment;
  HOLDFAST_RETURN_IF_ERROR(Reserve(begin + copy, buffer));
  Matrix matrix = buffer->View(rows, cols);
  matrix.rounded = matrix.data + begin;
  matrix.rounded_alone = alone;
  return matrix;
}

absl::Status StreamBackend::CopyIn(absl::Span<const Source> sources,
                                   int64_t size, DeviceBuffer* buffer) {
  absl::Status status = Reserve(size, buffer);
  if (!status.ok() || size == 0) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto found, BlockOf(buffer->View(1, 1).data));
  Block* const block = found;
  // The ranges of the sources that are copied directly from pinned memory.
  // Empty if some source is not pinned.
  absl::InlinedVector<Source, 8> direct;
  int64_t values = 0;
  for (const Source& source : sources) {
    values += source.size;
    const float* const host = static_cast<const float*>(source.host);
    int64_t done = 0;
    for (const int64_t range : PinnedSizes(host, source.size)) {
      direct.push_back({host + done, range, source.offset + done});
      done += range;
    }
    if (done < source.size) {
      direct.clear();
      break;
    }
  }
  if (direct.empty()) {
    status = pool_.Pin(block);
    if (!status.ok()) return status;
    // The pinned memory is read by the copy in, and written by the copy out.
    status = in_.Await(block->copied_in);
    if (!status.ok()) return status;
    status = out_.Await(block->copied_out);
    if (!status.ok()) return status;
  }
  status = compute_.LetWait(StreamId::kCopyIn, block->computed);
  if (!status.ok()) return status;
  block->copied_in = in_.Next();
  const int64_t bytes = values * int64_t{sizeof(float)};
  status = Traced(StreamId::kCopyIn, "copy in", bytes, [&]() -> absl::Status {
    for (const Source& source : direct) {
      status = runtime_->CopyIn(static_cast<const float*>(source.host),
                                source.size, block->device + source.offset);
      if (!status.ok()) return status;
    }
    if (!direct.empty()) return absl::OkStatus();
    // The values that the host has moved and whose copy has not begun: [begin,
    // end).
    int64_t begin = 0;
    int64_t end = 0;
    const auto copy_piece = [&] {
      return runtime_->CopyIn(block->pinned + begin, end - begin,
                              block->device + begin);
    };
    for (const Source& source : sources) {
      const float* const host = static_cast<const float*>(source.host);
      for (int64_t moved = 0; moved < source.size;) {
        const int64_t at = source.offset + moved;
        if (at - begin >= kPiece) {
          status = copy_piece();
          if (!status.ok()) return status;
          begin = at;
        }
        const int64_t count =
            std::min(begin + kPiece - at, source.size - moved);
        std::memcpy(block->pinned + at, host + moved, count * sizeof(float));
        moved += count;
        end = at + count;
      }
    }
    return copy_piece();
  });
  if (!status.ok()) return status;
  // Marked before the next copy, so that operations that wait for this copy do
  // not wait for the next.
  return in_.MarkHere();
}

absl::StatusOr<ConstMatrix> StreamBackend::CopySmall(const void* host,
                                                     int64_t bytes) {
  DeviceBuffer* const buffer = &small_[next_small_++ % small_.size()];
  const int64_t size = bytes / int64_t{sizeof(float)};
  HOLDFAST_RETURN_IF_ERROR(CopyIn(host, size, buffer));
  return buffer->View(1, size);
}

absl::StatusOr<ConstMatrix> StreamBackend::Upload(absl::Span<const float> host,
                                                  int64_t rows, int64_t cols,
                                                  DeviceBuffer* staging) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  HOLDFAST_RETURN_IF_ERROR(CopyIn(host.data(), host.size(), staging));
  return staging->View(rows, cols);
}

absl::StatusOr<HostBuffer> StreamBackend::AllocateHost(int64_t size) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  const absl::StatusOr<float*> memory = runtime_->AllocatePinned(size);
  if (!memory.ok()) return memory.status();
  pinned_->Add(*memory, size * sizeof(float));
  return HostBuffer(*memory, [this](float* memory) {
    // A copy may be under way, which must end first. Errors have been returned
    // before.
    runtime_->BindThread().IgnoreError();
    AwaitStreams().IgnoreError();
    pinned_->Remove(memory);
    runtime_->FreePinned(memory);
  });
}

absl::Status StreamBackend::AwaitUploads() {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  HOLDFAST_RETURN_IF_ERROR(in_.Await(in_.last()));
  // This is the end of a step, when the device is idle.
  return CollectTrace();
}

absl::Status StreamBackend::CollectTrace() {
  return trace_ == nullptr ? absl::OkStatus() : trace_->Collect();
}

std::vector<int64_t> StreamBackend::PinnedSizes(const float* host,
                                                int64_t size) const {
  std::vector<int64_t> ranges;
  for (int64_t done = 0; done < size;) {
    const size_t bytes =
        pinned_->Covered(host + done, (size - done) * sizeof(float));
    // Only whole values count.
    const int64_t range = bytes / sizeof(float);
    if (range == 0) return {};
    ranges.push_back(range);
    done += range;
  }
  return ranges;
}

absl::StatusOr<Download> StreamBackend::StartDownload(ConstMatrix matrix) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  if (matrix.size() == 0) return Download{};
  HOLDFAST_ASSIGN_OR_RETURN(const auto found, BlockOf(matrix.data));
  Block* const block = found;
  status = pool_.Pin(block);
  if (!status.ok()) return status;
  status = compute_.LetWait(StreamId::kCopyOut, block->computed);
  if (!status.ok()) return status;
  status = in_.LetWait(StreamId::kCopyOut, block->copied_in);
  if (!status.ok()) return status;
  block->copied_out = out_.Next();
  float* const pinned = block->pinned + (matrix.data - block->device);
  const int64_t bytes = matrix.size() * int64_t{sizeof(float)};
  status = Traced(StreamId::kCopyOut, "copy out", bytes, [&] {
    return runtime_->CopyOut(matrix.data, matrix.size(), pinned);
  });
  if (!status.ok()) return status;
  status = out_.MarkHere();
  if (!status.ok()) return status;
  return Download{absl::MakeConstSpan(pinned, matrix.size()),
                  block->copied_out};
}

absl::StatusOr<bool> StreamBackend::HasArrived(const Download& download) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  return out_.IsDone(download.ticket);
}

absl::Status StreamBackend::Await(const Download& download) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  return out_.Await(download.ticket);
}

absl::Status StreamBackend::Share(ConstMatrix matrix, SharedMatrix* shared) {
  shared->matrix = matrix;
  absl::Status status = Enter();
  if (!status.ok() || matrix.size() == 0) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto block, BlockOf(matrix.data));
  status = in_.LetWait(StreamId::kCompute, block->copied_in);
  if (!status.ok()) return status;
  if (shared->event < 0) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto event, runtime_->CreateEvent());
    shared->event = event;
  }
  status = runtime_->Record(shared->event, StreamId::kCompute);
  if (!status.ok()) return status;
  const DeviceRuntime::PeerEvent ready = runtime_->ForPeers(shared->event);
  shared->ready = ready.event;
  shared->device = ready.device;
  return absl::OkStatus();
}

absl::StatusOr<ConstMatrix> StreamBackend::Fetch(const SharedMatrix& shared,
                                                 DeviceBuffer* staging) {
  const ConstMatrix& theirs = shared.matrix;
  absl::Status status = Enter();
  if (!status.ok()) return status;
  status = Reserve(theirs.size(), staging);
  if (!status.ok()) return status;
  const Matrix copy = staging->View(theirs.rows, theirs.cols);
  if (theirs.size() == 0) return copy;
  HOLDFAST_ASSIGN_OR_RETURN(const auto found, BlockOf(copy.data));
  Block* const block = found;
  const bool over_host = over_host_.count(shared.device) > 0;
  if (over_host) {
    status = pool_.Pin(block);
    if (!status.ok()) return status;
    // The pinned memory may be written by a copy out.
    status = out_.Await(block->copied_out);
    if (!status.ok()) return status;
  }
  status = compute_.LetWait(StreamId::kCopyIn, block->computed);
  if (!status.ok()) return status;
  status =
      runtime_->WaitForPeer(StreamId::kCopyIn, {shared.ready, shared.device});
  if (!status.ok()) return status;
  block->copied_in = in_.Next();
  const int64_t bytes = theirs.size() * int64_t{sizeof(float)};
  status = Traced(StreamId::kCopyIn, "copy from a peer", bytes, [&] {
    if (over_host) {
      return runtime_->CopyFromPeerOverHost(theirs.data, theirs.size(),
                                            block->pinned, copy.data);
    }
    return runtime_->CopyFromPeer(shared.device, theirs.data, theirs.size(),
                                  copy.data);
  });
  if (!status.ok()) return status;
  return copy;
}

void StreamBackend::FetchOverHost(const SharedMatrix& shared) {
  over_host_.insert(shared.device);
}

absl::Status StreamBackend::Order(Touched touched) {
  const uint64_t item = compute_.last() + 1;
  for (const ConstMatrix& matrix : touched) {
    if (matrix.data == nullptr || matrix.size() == 0) continue;
    HOLDFAST_ASSIGN_OR_RETURN(const auto block, BlockOf(matrix.data));
    HOLDFAST_RETURN_IF_ERROR(in_.LetWait(StreamId::kCompute, block->copied_in));
    block->computed = item;
  }
  compute_.Next();
  return absl::OkStatus();
}

template <typename Operation>
absl::Status StreamBackend::Traced(StreamId stream, const char* name,
                                   int64_t bytes, Operation operation) {
  if (trace_ == nullptr) return operation();
  HOLDFAST_RETURN_IF_ERROR(trace_->Begin(stream));
  HOLDFAST_RETURN_IF_ERROR(operation());
  return trace_->End(stream, name, bytes);
}

template <typename Operation>
absl::Status StreamBackend::Run(Touched touched, int64_t workspace,
                                Operation operation, const char* name) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  status = Reserve(workspace, &workspace_);
  if (!status.ok()) return status;
  // The block may have had another user before, and gets another one if the
  // workspace grows.
  const Matrix memory = workspace_.View(1, workspace);
  status = Order({memory});
  if (!status.ok()) return status;
  status = Order(touched);
  if (!status.ok()) return status;
  return Traced(StreamId::kCompute, name, 0,
                [&] { return operation(memory.data); });
}

template <typename Operation>
absl::Status StreamBackend::Run(Touched touched, Operation operation,
                                const char* name) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  HOLDFAST_RETURN_IF_ERROR(Order(touched));
  return Traced(StreamId::kCompute, name, 0, operation);
}

absl::Status StreamBackend::Custom(absl::Span<const ConstMatrix> touched,
                                   CustomOperation operation) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  for (const ConstMatrix& matrix : touched) {
    status = Order({matrix});
    if (!status.ok()) return status;
  }
  return Traced(StreamId::kCompute, "Custom", 0,
                [&] { return math_->Custom(std::move(operation)); });
}

void StreamBackend::MatMul(Form form_a, ConstMatrix a, Form form_b,
                           ConstMatrix b, Matrix c) {
  Keep(Multiply(form_a, a, form_b, b, /*add=*/false, c));
}

void StreamBackend::AddMatMul(Form form_a, ConstMatrix a, Form form_b,
                              ConstMatrix b, Matrix c) {
  Keep(Multiply(form_a, a, form_b, b, /*add=*/true, c));
}

absl::Status StreamBackend::Multiply(Form form_a, ConstMatrix a, Form form_b,
                                     ConstMatrix b, bool add, Matrix c) {
  return Run(
      {a, b, c}, math_->ProductWorkspace(a, b),
      [&](float* memory) {
        return math_->MatMul(form_a, a, form_b, b, add, c, memory);
      },
      add ? "AddMatMul" : "MatMul");
}

void StreamBackend::AddBias(ConstMatrix bias, Matrix y) {
  Keep(Run({bias, y}, [&] { return math_->AddBias(bias, y); }));
}

void StreamBackend::SumRows(ConstMatrix x, Matrix sums) {
  Keep(Run({x, sums}, math_->SumWorkspace(x.rows, x.cols),
           [&](float* memory) { return math_->SumRows(x, sums, memory); }));
}

void StreamBackend::SumSquares(ConstMatrix x, Matrix sum) {
  Keep(Run({x, sum}, math_->SumWorkspace(x.rows, x.cols), [&](float* memory) {
    return math_->SumSquares(x, reinterpret_cast<double*>(sum.data), memory);
  }));
}

void StreamBackend::Relu(ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->Activate(Activation::kRelu, x, y); }));
}

void StreamBackend::ReluGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  Keep(Run({y, dy, dx}, [&] {
    return math_->ActivationGradient(Activation::kRelu, y, dy, dx);
  }));
}

void StreamBackend::Tanh(ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->Activate(Activation::kTanh, x, y); }));
}

void StreamBackend::TanhGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  Keep(Run({y, dy, dx}, [&] {
    return math_->ActivationGradient(Activation::kTanh, y, dy, dx);
  }));
}

void StreamBackend::Sigmoid(ConstMatrix x, Matrix y) {
  Keep(
      Run({x, y}, [&] { return math_->Activate(Activation::kSigmoid, x, y); }));
}

void StreamBackend::SigmoidGradient(ConstMatrix y, ConstMatrix dy, Matrix dx) {
  Keep(Run({y, dy, dx}, [&] {
    return math_->ActivationGradient(Activation::kSigmoid, y, dy, dx);
  }));
}

void StreamBackend::Dropout(ConstMatrix x, absl::Span<const int64_t> positions,
                            uint64_t key, float rate, Matrix y) {
  absl::Status status = Enter();
  if (!status.ok()) return Keep(std::move(status));
  const absl::StatusOr<ConstMatrix> copied =
      CopySmall(positions.data(), positions.size() * sizeof(int64_t));
  if (!copied.ok()) return Keep(copied.status());
  Keep(Run({x, *copied, y}, [&] {
    return math_->Dropout(x, reinterpret_cast<const int64_t*>(copied->data),
                          key, rate, y);
  }));
}

void StreamBackend::Copy(ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->Copy(x, y); }));
}

void StreamBackend::Add(ConstMatrix a, ConstMatrix b, Matrix c) {
  Keep(Run({a, b, c}, [&] { return math_->Add(a, b, c); }));
}

void StreamBackend::Scale(float factor, ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->Scale(factor, x, y); }));
}

void StreamBackend::AddScaled(float factor, ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->AddScaled(factor, x, y); }));
}

absl::Status StreamBackend::Convolve(const Convolution& convolution,
                                     ConstMatrix x, ConstMatrix kernel,
                                     Matrix y) {
  return Run({x, kernel, y}, math_->ConvolutionWorkspace(convolution, x.rows),
             [&](float* memory) {
               return math_->Convolve(convolution, x, kernel, y, memory);
             });
}

absl::Status StreamBackend::ConvolveKernelGradient(
    const Convolution& convolution, ConstMatrix x, ConstMatrix dy,
    Matrix kernel_gradient) {
  return Run({x, dy, kernel_gradient},
             math_->ConvolutionWorkspace(convolution, x.rows),
             [&](float* memory) {
               return math_->ConvolveKernelGradient(convolution, x, dy,
                                                    kernel_gradient, memory);
             });
}

absl::Status StreamBackend::ConvolveInputGradient(
    const Convolution& convolution, ConstMatrix kernel, ConstMatrix dy,
    Matrix dx) {
  return Run({kernel, dy, dx},
             math_->ConvolutionWorkspace(convolution, dx.rows),
             [&](float* memory) {
               return math_->ConvolveInputGradient(convolution, kernel, dy, dx,
                                                   memory);
             });
}

void StreamBackend::MaxPool(const Window& window, ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->MaxPool(window, x, y); }));
}

void StreamBackend::MaxPoolGradient(const Window& window, ConstMatrix x,
                                    ConstMatrix y, ConstMatrix dy, Matrix dx) {
  Keep(Run({x, y, dy, dx}, math_->MaxPoolGradientWorkspace(window, x.rows),
           [&](float* memory) {
             return math_->MaxPoolGradient(window, x, y, dy, dx, memory);
           }));
}

void StreamBackend::AveragePool(const Window& window, ConstMatrix x, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->AveragePool(window, x, y); }));
}

void StreamBackend::AveragePoolGradient(const Window& window, ConstMatrix dy,
                                        Matrix dx) {
  Keep(Run({dy, dx},
           [&] { return math_->AveragePoolGradient(window, dy, dx); }));
}

void StreamBackend::ColumnMoments(ConstMatrix x, Matrix mean, Matrix variance) {
  Keep(Run({x, mean, variance}, math_->SumWorkspace(x.rows, x.cols),
           [&](float* memory) {
             return math_->ColumnMoments(x, mean, variance, memory);
           }));
}

void StreamBackend::NormalizeColumns(ConstMatrix x, const ColumnNorm& norm,
                                     ConstMatrix addend, bool relu, Matrix y) {
  Keep(Run({x, norm.mean, norm.variance, norm.scale, norm.offset, addend, y},
           [&] { return math_->NormalizeColumns(x, norm, addend, relu, y); }));
}

void StreamBackend::NormalizeColumnsGradient(ConstMatrix x,
                                             const ColumnNorm& norm, bool relu,
                                             ConstMatrix dy, Matrix dscale,
                                             Matrix doffset, Matrix dx) {
  Keep(Run({x, norm.mean, norm.variance, norm.scale, norm.offset, dy, dscale,
            doffset, dx},
           math_->SumWorkspace(x.rows, x.cols), [&](float* memory) {
             return math_->NormalizeColumnsGradient(x, norm, relu, dy, dscale,
                                                    doffset, dx, memory);
           }));
}

void StreamBackend::NormalizeRows(ConstMatrix x, float epsilon,
                                  ConstMatrix scale, ConstMatrix offset,
                                  Matrix moments, Matrix y) {
  Keep(Run({x, scale, offset, moments, y}, [&] {
    return math_->NormalizeRows(x, epsilon, scale, offset, moments, y);
  }));
}

void StreamBackend::NormalizeRowsGradient(ConstMatrix x, ConstMatrix scale,
                                          ConstMatrix moments, ConstMatrix dy,
                                          Matrix dscale, Matrix doffset,
                                          Matrix dx) {
  Keep(Run({x, scale, moments, dy, dscale, doffset, dx},
           math_->SumWorkspace(x.rows, x.cols), [&](float* memory) {
             return math_->NormalizeRowsGradient(x, scale, moments, dy, dscale,
                                                 doffset, dx, memory);
           }));
}

absl::StatusOr<DeviceBags> StreamBackend::UploadBags(const Bags& bags,
                                                     BagsBuffer* staging) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  // Each part is aligned so that a warp's reads coalesce.
  constexpr int64_t kAlignment = 32;
  absl::InlinedVector<Source, 6> sources;
  int64_t size = 0;
  const auto add = [&](auto part) {
    if (part.empty()) return int64_t{0};
    const int64_t offset = (size + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t count = static_cast<int64_t>(part.size());
    sources.push_back({part.data(), count, offset});
    size = offset + count;
    return offset;
  };
  const int64_t rows = add(bags.rows);
  const int64_t of_uses = add(bags.bags);
  const int64_t weights = add(bags.weights);
  const int64_t offsets = add(bags.offsets);
  const int64_t uses = add(bags.uses);
  const int64_t begins = add(bags.begins);
  HOLDFAST_RETURN_IF_ERROR(CopyIn(sources, size, staging));
  const float* const memory = staging->View(1, size).data;
  const auto at = [&](int64_t offset) {
    return reinterpret_cast<const uint32_t*>(memory + offset);
  };
  DeviceBags made;
  made.rows = at(rows);
  made.bags = at(of_uses);
  made.weights = bags.weights.empty() ? nullptr : memory + weights;
  made.offsets = at(offsets);
  made.uses = at(uses);
  made.begins = at(begins);
  made.num_uses = static_cast<int64_t>(bags.rows.size());
  made.num_bags = bags.num_bags();
  made.num_rows = bags.num_rows();
  return made;
}

void StreamBackend::SumBags(const DeviceBags& bags, ConstMatrix rows,
                            Matrix y) {
  Keep(Run({MemoryOf(bags), rows, y},
           [&] { return math_->SumBags(bags, rows, y); }));
}

void StreamBackend::SumBagsGradient(const DeviceBags& bags, ConstMatrix dy,
                                    Matrix drows) {
  Keep(Run({MemoryOf(bags), dy, drows},
           [&] { return math_->SumBagsGradient(bags, dy, drows); }));
}

void StreamBackend::PairwiseBags(const DeviceBags& bags, ConstMatrix rows,
                                 Matrix sums, Matrix y) {
  Keep(Run({MemoryOf(bags), rows, sums, y},
           [&] { return math_->PairwiseBags(bags, rows, sums, y); }));
}

void StreamBackend::AddPairwiseBagsGradient(const DeviceBags& bags,
                                            ConstMatrix rows, ConstMatrix sums,
                                            ConstMatrix dy, Matrix drows) {
  Keep(Run({MemoryOf(bags), rows, sums, dy, drows}, [&] {
    return math_->AddPairwiseBagsGradient(bags, rows, sums, dy, drows);
  }));
}

void StreamBackend::DotPairs(ConstMatrix x, int64_t n, Matrix y) {
  Keep(Run({x, y}, [&] { return math_->DotPairs(x, n, y); }));
}

void StreamBackend::DotPairsGradient(ConstMatrix x, int64_t n, ConstMatrix dy,
                                     Matrix dx) {
  Keep(Run({x, dy, dx}, [&] { return math_->DotPairsGradient(x, n, dy, dx); }));
}

void StreamBackend::CopyColumns(ConstMatrix x, int64_t from, int64_t count,
                                Matrix y, int64_t to) {
  Keep(Run({x, y}, [&] { return math_->CopyColumns(x, from, count, y, to); }));
}

void StreamBackend::AddColumns(ConstMatrix x, int64_t from, int64_t count,
                               Matrix y, int64_t to) {
  Keep(Run({x, y}, [&] { return math_->AddColumns(x, from, count, y, to); }));
}

absl::StatusOr<PendingLoss> StreamBackend::StartLoss(const LossFunction& loss,
                                                     ConstMatrix outputs,
                                                     const Targets& targets,
                                                     Matrix* gradient) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  const bool are_values = !targets.values.empty();
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto copied,
      are_values ? CopySmall(targets.values.data(),
                             targets.values.size() * sizeof(float))
                 : CopySmall(targets.labels.data(),
                             targets.labels.size() * sizeof(int32_t)));
  ConstMatrix weights;
  if (!targets.weights.empty()) {
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto copied_weights,
        CopySmall(targets.weights.data(),
                  targets.weights.size() * sizeof(float)));
    weights = copied_weights;
  }
  DeviceTargets on_device;
  if (are_values) {
    on_device.values = copied.data;
  } else {
    on_device.labels = reinterpret_cast<const int32_t*>(copied.data);
  }
  on_device.weights = weights.data;
  status = Reserve(kLossSumsSize, &loss_sums_);
  if (!status.ok()) return status;
  const Matrix sums = loss_sums_.View(1, kLossSumsSize);
  const Matrix dz = gradient != nullptr ? *gradient : Matrix{};
  status = Run(
      {outputs, copied, weights, dz, sums},
      math_->SumWorkspace(outputs.rows, outputs.cols),
      [&](float* memory) {
        return math_->Loss(loss, outputs, on_device, dz,
                           reinterpret_cast<DeviceLossSums*>(sums.data),
                           memory);
      },
      "Loss");
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto download, StartDownload(sums));
  PendingLoss made;
  made.download = download;
  made.tells_correct = !are_values && (!loss.is_distance() || outputs.cols > 1);
  made.tells_errors = loss.is_distance();
  return made;
}

absl::StatusOr<LossSums> StreamBackend::ReadLoss(const PendingLoss& loss) {
  HOLDFAST_RETURN_IF_ERROR(Await(loss.download));
  DeviceLossSums made;
  std::memcpy(&made, loss.download.values.data(), sizeof(made));
  LossSums sums;
  sums.loss = made.loss;
  if (loss.tells_correct) sums.correct = static_cast<int64_t>(made.correct);
  if (loss.tells_errors) {
    sums.absolute_error = made.absolute_error;
    sums.squared_error = made.squared_error;
  }
  return sums;
}

absl::StatusOr<LossSums> StreamBackend::Loss(const LossFunction& loss,
                                             ConstMatrix outputs,
                                             const Targets& targets,
                                             Matrix* gradient) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto started,
                            StartLoss(loss, outputs, targets, gradient));
  HOLDFAST_ASSIGN_OR_RETURN(const auto sums, ReadLoss(started));
  // The device is idle.
  HOLDFAST_RETURN_IF_ERROR(CollectTrace());
  return sums;
}

absl::StatusOr<LossSums> StreamBackend::SoftmaxCrossEntropy(
    ConstMatrix logits, const Targets& targets, Matrix* gradient) {
  return Loss({LossKind::kSoftmaxCrossEntropy}, logits, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::SigmoidCrossEntropy(
    ConstMatrix logits, const Targets& targets, Matrix* gradient) {
  return Loss({LossKind::kSigmoidCrossEntropy}, logits, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::MeanSquaredError(ConstMatrix outputs,
                                                         const Targets& targets,
                                                         Matrix* gradient) {
  return Loss({LossKind::kMeanSquaredError}, outputs, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::MeanAbsoluteError(
    ConstMatrix outputs, const Targets& targets, Matrix* gradient) {
  return Loss({LossKind::kMeanAbsoluteError}, outputs, targets, gradient);
}

absl::StatusOr<LossSums> StreamBackend::Huber(ConstMatrix outputs,
                                              const Targets& targets,
                                              float delta, Matrix* gradient) {
  return Loss({LossKind::kHuber, delta}, outputs, targets, gradient);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/ordered_streams.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// The number of values that the host moves to pinned memory before their copy
// begins: one piece is copied while the host moves the next. 4 MiB keep the bus
// busy for long enough that the host's part of a copy, a few microseconds, is
// negligible.
constexpr int64_t kPiece = int64_t{1} << 20;

}  // namespace

OrderedStreams::OrderedStreams(DeviceRuntime* runtime, std::string device,
                               std::shared_ptr<PinnedRanges> pinned)
    : device_(std::move(device)),
      runtime_(*runtime),
      compute_(runtime, StreamId::kCompute),
      in_(runtime, StreamId::kCopyIn),
      out_(runtime, StreamId::kCopyOut),
      pool_(runtime, device_, [this] { return AwaitStreams(); }),
      pinned_(pinned != nullptr ? std::move(pinned)
                                : std::make_shared<PinnedRanges>()),
      host_memory_(runtime, pinned_.get(), device_) {}

OrderedStreams::~OrderedStreams() {
  // Errors have been returned before, or are of no interest any more.
  runtime_.BindThread().IgnoreError();
  AwaitStreams().IgnoreError();
  if (trace_ != nullptr) trace_->Collect().IgnoreError();
}

void OrderedStreams::SetTracer(Tracer* tracer) {
  trace_.reset();
  if (tracer == nullptr) return;
  trace_ = std::make_unique<DeviceTrace>(&runtime_, tracer, device_);
  absl::Status status = Enter();
  if (status.ok()) status = trace_->Collect();
  Keep(std::move(status));
}

absl::Status OrderedStreams::AwaitStreams() {
  absl::Status status = compute_.Await(compute_.last());
  status.Update(in_.Await(in_.last()));
  status.Update(out_.Await(out_.last()));
  return status;
}

absl::Status OrderedStreams::Enter() {
  {
    absl::MutexLock lock(&mutex_);
    if (!error_.ok()) return error_;
  }
  return runtime_.BindThread();
}

void OrderedStreams::Keep(absl::Status status) {
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  if (error_.ok()) error_ = std::move(status);
}

absl::StatusOr<Block*> OrderedStreams::BlockOf(const float* value) {
  Block* const block = pool_.Find(value);
  if (block != nullptr) return block;
  return absl::InternalError(absl::StrCat("a matrix that was given to ",
                                          device_, " is not in its memory"));
}

absl::Status OrderedStreams::Reserve(int64_t size, DeviceBuffer* buffer) {
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

absl::Status OrderedStreams::CopyIn(absl::Span<const Source> sources,
                                    int64_t size, DeviceBuffer* buffer) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  status = Reserve(size, buffer);
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
      status = runtime_.CopyIn(static_cast<const float*>(source.host),
                               source.size, block->device + source.offset);
      if (!status.ok()) return status;
    }
    if (!direct.empty()) return absl::OkStatus();
    // The values that the host has moved and whose copy has not begun: [begin,
    // end).
    int64_t begin = 0;
    int64_t end = 0;
    const auto copy_piece = [&] {
      return runtime_.CopyIn(block->pinned + begin, end - begin,
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

absl::StatusOr<ConstMatrix> OrderedStreams::CopySmall(const void* host,
                                                      int64_t bytes) {
  DeviceBuffer* const buffer = &small_[next_small_++ % small_.size()];
  const int64_t size = bytes / int64_t{sizeof(float)};
  HOLDFAST_RETURN_IF_ERROR(CopyIn(host, size, buffer));
  return buffer->View(1, size);
}

absl::StatusOr<HostBuffer> OrderedStreams::AllocateHost(int64_t size) {
  absl::Status status = Enter();
  if (!status.ok()) return status;
  const absl::StatusOr<float*> memory = runtime_.AllocatePinned(size);
  if (!memory.ok()) return memory.status();
  pinned_->Add(*memory, size * sizeof(float));
  return HostBuffer(*memory, [this](float* memory) {
    // A copy may be under way, which must end first. Errors have been returned
    // before.
    runtime_.BindThread().IgnoreError();
    AwaitStreams().IgnoreError();
    pinned_->Remove(memory);
    runtime_.FreePinned(memory);
  });
}

absl::Status OrderedStreams::AwaitUploads() {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  HOLDFAST_RETURN_IF_ERROR(in_.Await(in_.last()));
  // This is the end of a step, when the device is idle.
  return CollectTrace();
}

absl::Status OrderedStreams::CollectTrace() {
  return trace_ == nullptr ? absl::OkStatus() : trace_->Collect();
}

std::vector<int64_t> OrderedStreams::PinnedSizes(const float* host,
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

absl::StatusOr<Download> OrderedStreams::StartDownload(ConstMatrix matrix) {
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
    return runtime_.CopyOut(matrix.data, matrix.size(), pinned);
  });
  if (!status.ok()) return status;
  status = out_.MarkHere();
  if (!status.ok()) return status;
  return Download{absl::MakeConstSpan(pinned, matrix.size()),
                  block->copied_out};
}

absl::StatusOr<bool> OrderedStreams::HasArrived(const Download& download) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  return out_.IsDone(download.ticket);
}

absl::Status OrderedStreams::Await(const Download& download) {
  HOLDFAST_RETURN_IF_ERROR(Enter());
  return out_.Await(download.ticket);
}

absl::Status OrderedStreams::Share(ConstMatrix matrix, SharedMatrix* shared) {
  shared->matrix = matrix;
  absl::Status status = Enter();
  if (!status.ok() || matrix.size() == 0) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto block, BlockOf(matrix.data));
  status = in_.LetWait(StreamId::kCompute, block->copied_in);
  if (!status.ok()) return status;
  if (shared->event < 0) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto event, runtime_.CreateEvent());
    shared->event = event;
  }
  status = runtime_.Record(shared->event, StreamId::kCompute);
  if (!status.ok()) return status;
  const DeviceRuntime::PeerEvent ready = runtime_.ForPeers(shared->event);
  shared->ready = ready.event;
  shared->device = ready.device;
  return absl::OkStatus();
}

absl::StatusOr<ConstMatrix> OrderedStreams::Fetch(const SharedMatrix& shared,
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
      runtime_.WaitForPeer(StreamId::kCopyIn, {shared.ready, shared.device});
  if (!status.ok()) return status;
  block->copied_in = in_.Next();
  const int64_t bytes = theirs.size() * int64_t{sizeof(float)};
  status = Traced(StreamId::kCopyIn, "copy from a peer", bytes, [&] {
    if (over_host) {
      return runtime_.CopyFromPeerOverHost(theirs.data, theirs.size(),
                                           block->pinned, copy.data);
    }
    return runtime_.CopyFromPeer(shared.device, theirs.data, theirs.size(),
                                 copy.data);
  });
  if (!status.ok()) return status;
  return copy;
}

void OrderedStreams::FetchOverHost(const SharedMatrix& shared) {
  over_host_.insert(shared.device);
}

absl::Status OrderedStreams::Order(absl::Span<const ConstMatrix> touched) {
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

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/host_runtime.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

namespace holdfast {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kAlignment = 256;

}  // namespace

HostRuntime::HostRuntime(const Options& options)
    : options_(options),
      random_(options.seed),
      machine_(options.machine != nullptr ? options.machine
                                          : std::make_shared<Machine>()) {
  // From 0, no work before the host waits, to 8, some work in every call.
  constexpr uint32_t kEagerness[] = {0, 1, 4, 8};
  eagerness_ = options.lazy ? 0 : kEagerness[random_() % 4];
  for (Stream& stream : streams_) stream.priority = random_() % 1024;
  absl::MutexLock lock(&machine_->mutex);
  machine_->devices.push_back(this);
}

HostRuntime::~HostRuntime() {
  absl::MutexLock lock(&machine_->mutex);
  for (const Allocation& made : made_) {
    if (!made.pinned) continue;
    machine_->pinned.erase(reinterpret_cast<const char*>(made.first));
  }
  std::vector<HostRuntime*>& devices = machine_->devices;
  devices.erase(std::find(devices.begin(), devices.end(), this));
}

void HostRuntime::Enqueue(StreamId stream, std::function<void()> work) {
  absl::MutexLock lock(&machine_->mutex);
  At(stream).queue.push_back({std::move(work), std::nullopt});
  Dawdle();
}

bool HostRuntime::IsIdle(StreamId stream) {
  absl::MutexLock lock(&machine_->mutex);
  return At(stream).queue.empty();
}

void HostRuntime::FailWith(absl::Status status) {
  absl::MutexLock lock(&machine_->mutex);
  failure_ = std::move(status);
}

absl::Status HostRuntime::BindThread() {
  absl::MutexLock lock(&machine_->mutex);
  return failure_;
}

absl::StatusOr<DeviceRuntime::Event> HostRuntime::CreateEvent() {
  absl::MutexLock lock(&machine_->mutex);
  events_.push_back({this});
  return static_cast<Event>(events_.size() - 1);
}

absl::Status HostRuntime::Record(Event event, StreamId stream) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  const Stream& recorded = At(stream);
  events_[event] = {this, stream,
                    recorded.done + static_cast<int64_t>(recorded.queue.size()),
                    machine_->time};
  Dawdle();
  return absl::OkStatus();
}

absl::Status HostRuntime::Wait(StreamId stream, Event event) {
  absl::MutexLock lock(&machine_->mutex);
  const Place place = events_[event];
  if (failure_.ok() &&
      options_.ignored_wait == std::make_pair(stream, place.stream)) {
    return absl::OkStatus();
  }
  return EnqueueWait(stream, place);
}

DeviceRuntime::PeerEvent HostRuntime::ForPeers(Event event) {
  absl::MutexLock lock(&machine_->mutex);
  return {&events_[event], 0};
}

absl::Status HostRuntime::WaitForPeer(StreamId stream, const PeerEvent& event) {
  absl::MutexLock lock(&machine_->mutex);
  if (failure_.ok() && options_.ignored_peer_wait) return absl::OkStatus();
  return EnqueueWait(stream, *static_cast<const Place*>(event.event));
}

absl::Status HostRuntime::EnqueueWait(StreamId stream, const Place& place) {
  if (!failure_.ok()) return failure_;
  At(stream).queue.push_back({nullptr, place});
  Dawdle();
  return absl::OkStatus();
}

absl::StatusOr<bool> HostRuntime::Query(Event event) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  Dawdle();
  return IsDone(events_[event]);
}

absl::Status HostRuntime::Synchronize(Event event) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  const Place place = events_[event];
  if (options_.ignored_synchronize == place.stream) return absl::OkStatus();
  bool possible = true;
  while (possible && !IsDone(place)) {
    possible = eagerness_ == 0 ? Reach(place) : Step();
  }
  return possible ? absl::OkStatus()
                  : absl::InternalError("the streams wait for each other");
}

absl::StatusOr<absl::Duration> HostRuntime::Elapsed(Event begin, Event end) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  if (!IsDone(events_[begin]) || !IsDone(events_[end])) {
    return absl::FailedPreconditionError("an event has not happened");
  }
  return absl::Microseconds(TimeOf(events_[end]) - TimeOf(events_[begin]));
}

int64_t HostRuntime::TimeOf(const Place& place) {
  if (place.items == 0) return place.recorded;
  const Stream& stream = place.device->At(place.stream);
  return std::max(place.recorded, stream.times[place.items - 1]);
}

float* HostRuntime::Make(int64_t size, int64_t device_bytes) {
  constexpr int64_t kSlack = kAlignment / sizeof(float);
  Allocation made;
  made.memory.assign(size + kSlack, kNan);
  made.bytes = device_bytes;
  const int64_t misaligned =
      reinterpret_cast<uintptr_t>(made.memory.data()) % kAlignment;
  made.first = made.memory.data() +
               (kAlignment - misaligned) % kAlignment / sizeof(float);
  made_.push_back(std::move(made));
  return made_.back().first;
}

absl::StatusOr<float*> HostRuntime::Allocate(int64_t size) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  const int64_t bytes = size * int64_t{sizeof(float)};
  if (bytes > options_.total_bytes - device_bytes_) {
    return absl::ResourceExhaustedError("out of memory");
  }
  device_bytes_ += bytes;
  ++allocations_;
  return Make(size, bytes);
}

void HostRuntime::Misused(absl::string_view what) {
  if (options_.misuse == nullptr) return;
  *options_.misuse = absl::FailedPreconditionError(what);
}

bool HostRuntime::IsRead(const void* begin, const void* end) const {
  for (const HostRuntime* const device : machine_->devices) {
    for (const Stream& stream : device->streams_) {
      for (const Item& item : stream.queue) {
        const absl::Span<const float> source = item.source;
        if (source.data() < end && begin < source.data() + source.size()) {
          return true;
        }
      }
    }
  }
  return false;
}

bool HostRuntime::HasWork() const {
  for (const Stream& stream : streams_) {
    for (const Item& item : stream.queue) {
      if (item.work != nullptr) return true;
    }
  }
  return false;
}

void HostRuntime::Free(float* memory) {
  absl::MutexLock lock(&machine_->mutex);
  if (HasWork()) Misused("memory was freed while there was work to do");
  Drop(memory);
}

void HostRuntime::Drop(float* memory) {
  for (Allocation& made : made_) {
    if (made.first != memory) continue;
    if (std::exchange(made.pinned, false)) {
      const auto found =
          machine_->pinned.find(reinterpret_cast<const char*>(memory));
      if (IsRead(found->first, found->second)) {
        Misused("host memory was freed before it was copied");
      }
      machine_->pinned.erase(found);
    }
    std::fill(made.memory.begin(), made.memory.end(), kNan);
    device_bytes_ -= made.bytes;
    made.bytes = 0;
  }
}

DeviceRuntime::Memory HostRuntime::GetMemory() {
  absl::MutexLock lock(&machine_->mutex);
  return {options_.total_bytes - device_bytes_, options_.total_bytes};
}

absl::StatusOr<float*> HostRuntime::AllocatePinned(int64_t size) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  float* const memory = Make(size, /*device_bytes=*/0);
  made_.back().pinned = true;
  machine_->pinned[reinterpret_cast<const char*>(memory)] =
      reinterpret_cast<const char*>(memory + size);
  return memory;
}

void HostRuntime::FreePinned(float* memory) {
  absl::MutexLock lock(&machine_->mutex);
  Drop(memory);
}

absl::Status HostRuntime::RegisterPinned(const void* memory, size_t bytes) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  if (options_.refuses_registration) {
    return absl::UnimplementedError("this device registers no memory");
  }
  const char* const begin = static_cast<const char*>(memory);
  const auto next = machine_->pinned.lower_bound(begin);
  if ((next != machine_->pinned.end() && next->first < begin + bytes) ||
      (next != machine_->pinned.begin() && std::prev(next)->second > begin)) {
    return absl::AlreadyExistsError("some of the memory is pinned");
  }
  machine_->pinned[begin] = begin + bytes;
  return absl::OkStatus();
}

void HostRuntime::UnregisterPinned(const void* memory) {
  absl::MutexLock lock(&machine_->mutex);
  const auto found = machine_->pinned.find(static_cast<const char*>(memory));
  if (found == machine_->pinned.end()) {
    return Misused("memory was unregistered that is not registered");
  }
  if (IsRead(found->first, found->second)) {
    Misused("memory was unregistered before it was copied");
  }
  machine_->pinned.erase(found);
}

bool HostRuntime::IsPinned(const float* host, int64_t size) const {
  const auto next =
      machine_->pinned.upper_bound(reinterpret_cast<const char*>(host));
  return next != machine_->pinned.begin() &&
         std::prev(next)->second >= reinterpret_cast<const char*>(host + size);
}

absl::Status HostRuntime::CopyIn(const float* host, int64_t size,
                                 float* device) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  if (!IsPinned(host, size)) Misused("a copy from memory that is not pinned");
  EnqueueCopy(StreamId::kCopyIn, host, size, device);
  return absl::OkStatus();
}

absl::Status HostRuntime::CopyOut(const float* device, int64_t size,
                                  float* host) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  EnqueueCopy(StreamId::kCopyOut, device, size, host);
  return absl::OkStatus();
}

absl::Status HostRuntime::CopyFromPeer(int, const float* theirs, int64_t size,
                                       float* device) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  EnqueueCopy(StreamId::kCopyIn, theirs, size, device);
  if (options_.wrong_peer_copies) {
    At(StreamId::kCopyIn)
        .queue.push_back({[device, size] { std::fill_n(device, size, 0.0f); },
                          std::nullopt});
  }
  return absl::OkStatus();
}

absl::Status HostRuntime::CopyFromPeerOverHost(const float* theirs,
                                               int64_t size, float* staging,
                                               float* device) {
  absl::MutexLock lock(&machine_->mutex);
  if (!failure_.ok()) return failure_;
  ++copies_over_host_;
  EnqueueCopy(StreamId::kCopyIn, theirs, size, staging);
  EnqueueCopy(StreamId::kCopyIn, staging, size, device);
  return absl::OkStatus();
}

void HostRuntime::EnqueueCopy(StreamId stream, const float* from, int64_t size,
                              float* to) {
  // Both items are enqueued before anything is done, so that they can be
  // separated by other work.
  At(stream).queue.push_back(
      {[to, size] { std::fill_n(to, size, kNan); }, std::nullopt});
  At(stream).queue.push_back(
      {[from, to, size] { std::memcpy(to, from, size * sizeof(float)); },
       std::nullopt, absl::MakeConstSpan(from, size)});
  Dawdle();
}

void HostRuntime::Dawdle() {
  if (random_() % 8 >= eagerness_) return;
  for (uint64_t steps = random_() % 4; steps > 0 && Step(); --steps) {
  }
}

bool HostRuntime::Step() {
  HostRuntime* device = nullptr;
  Stream* next = nullptr;
  for (HostRuntime* const other : machine_->devices) {
    for (Stream& stream : other->streams_) {
      if (stream.queue.empty()) continue;
      const std::optional<Place>& after = stream.queue.front().after;
      if (after.has_value() && !IsDone(*after)) continue;
      if (next != nullptr && stream.priority <= next->priority) continue;
      device = other;
      next = &stream;
    }
  }
  if (next == nullptr) return false;
  device->DoNext(next);
  // A stream may get far ahead of the others, and fall behind in the end.
  if (random_() % 8 == 0) next->priority = random_() % 1024;
  return true;
}

bool HostRuntime::Reach(const Place& place) {
  Stream& stream = place.device->At(place.stream);
  while (!IsDone(place)) {
    if (stream.queue.empty()) return false;
    // An event is recorded before it is waited for, so this ends.
    const std::optional<Place> after = stream.queue.front().after;
    if (after.has_value() && !Reach(*after)) return false;
    place.device->DoNext(&stream);
  }
  return true;
}

void HostRuntime::DoNext(Stream* stream) {
  const Item item = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (item.work != nullptr) item.work();
  ++stream->done;
  stream->times.push_back(++machine_->time);
}

}  // namespace holdfast

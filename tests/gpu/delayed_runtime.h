// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_GPU_DELAYED_RUNTIME_H_
#define HOLDFAST_TESTS_GPU_DELAYED_RUNTIME_H_

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/gpu/device_under_test.h"
#include "worker/backend/stream/device_runtime.h"

namespace holdfast {

// Another runtime whose streams pause at random: before copies, and, on the
// stream kCompute, at the beginning of any call of StreamBackend that uses the
// device, such as an operation. If OrderedStreams forgets a wait, a pause of
// the stream that should have been waited for shows it in the results.
//
// As thread-safe as a DeviceRuntime. Only the thread that makes the object
// pauses streams, so that the same seed gives the same pauses; another one may
// wait for results meanwhile (Backend::Await).
class DelayedRuntime final : public DeviceRuntime {
 public:
  // Enqueues a pause on a stream.
  using Delay = std::function<absl::Status(StreamId, absl::Duration)>;

  DelayedRuntime(std::unique_ptr<DeviceRuntime> runtime,
                 const DelayOptions& options, Delay delay)
      : runtime_(std::move(runtime)),
        options_(options),
        delay_(std::move(delay)),
        random_(options.seed) {}

  absl::Status BindThread() override;
  absl::StatusOr<Event> CreateEvent() override {
    return runtime_->CreateEvent();
  }
  absl::StatusOr<Event> CreateTimedEvent() override {
    return runtime_->CreateTimedEvent();
  }
  absl::Status Record(Event event, StreamId stream) override;
  absl::Status Wait(StreamId stream, Event event) override;
  PeerEvent ForPeers(Event event) override { return runtime_->ForPeers(event); }
  absl::Status WaitForPeer(StreamId stream, const PeerEvent& event) override {
    return runtime_->WaitForPeer(stream, event);
  }
  absl::StatusOr<bool> Query(Event event) override {
    return runtime_->Query(event);
  }
  absl::Status Synchronize(Event event) override {
    return runtime_->Synchronize(event);
  }
  absl::StatusOr<absl::Duration> Elapsed(Event begin, Event end) override {
    return runtime_->Elapsed(begin, end);
  }
  absl::StatusOr<float*> Allocate(int64_t size) override {
    return runtime_->Allocate(size);
  }
  void Free(float* memory) override { runtime_->Free(memory); }
  Memory GetMemory() override { return runtime_->GetMemory(); }
  absl::StatusOr<float*> AllocatePinned(int64_t size) override {
    return runtime_->AllocatePinned(size);
  }
  void FreePinned(float* memory) override { runtime_->FreePinned(memory); }
  absl::Status RegisterPinned(const void* memory, size_t bytes) override {
    return runtime_->RegisterPinned(memory, bytes);
  }
  void UnregisterPinned(const void* memory) override {
    runtime_->UnregisterPinned(memory);
  }
  absl::Status CopyIn(const float* host, int64_t size, float* device) override;
  absl::Status CopyOut(const float* device, int64_t size, float* host) override;
  absl::Status CopyFromPeer(int peer_device, const float* theirs, int64_t size,
                            float* device) override;
  absl::Status CopyFromPeerOverHost(const float* theirs, int64_t size,
                                    float* staging, float* device) override;

 private:
  // Enqueues a pause, or none.
  absl::Status MayDelay(StreamId stream);

  const std::unique_ptr<DeviceRuntime> runtime_;
  const DelayOptions options_;
  const Delay delay_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::mt19937_64 random_;
  // The stream on which each event was recorded last.
  std::map<Event, StreamId> recorded_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_DELAYED_RUNTIME_H_

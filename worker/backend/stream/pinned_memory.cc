// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/pinned_memory.h"

#include "absl/status/statusor.h"
#include "glog/logging.h"

namespace holdfast {

HostBuffer PinnedMemory::Allocate(int64_t size) {
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

bool PinnedMemory::Register(const void* data, size_t bytes) {
  absl::Status status = runtime_.BindThread();
  if (status.ok()) status = runtime_.RegisterPinned(data, bytes);
  if (status.ok()) {
    ranges_.Add(data, bytes);
  } else {
    Tell(status);
  }
  return status.ok();
}

void PinnedMemory::Unregister(const void* data) {
  ranges_.Remove(data);
  runtime_.BindThread().IgnoreError();
  runtime_.UnregisterPinned(data);
}

void PinnedMemory::Tell(const absl::Status& status) {
  if (told_.exchange(true)) return;
  LOG(WARNING) << "copies to " << device_
               << " go through unpinned host memory, which is slower: "
               << status.message();
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/push_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace holdfast {

PushMemory::Held PushMemory::Of(const TaskId& worker) const {
  const auto found = held_.find(worker);
  return found == held_.end() ? Held() : found->second;
}

size_t PushMemory::ExtraOf(const Held& held) const {
  return held.pushes - std::min(held.reserved, options_.reserved_per_worker);
}

absl::Status PushMemory::CheckRoom(const PushId& push, bool reserved) const {
  const Held before = Of(push.from.worker);
  const Held after{before.pushes + 1, before.reserved + (reserved ? 1 : 0)};
  if (ExtraOf(after) > options_.max_per_worker - options_.reserved_per_worker) {
    return absl::ResourceExhaustedError(
        absl::StrCat(push.ToString(), ": ", before.pushes,
                     " undecided pushes of this worker are held already"));
  }
  if (num_extra_ - ExtraOf(before) + ExtraOf(after) > options_.max_extra) {
    return absl::ResourceExhaustedError(
        absl::StrCat(push.ToString(), ": no room beside the ", num_pushes_,
                     " undecided pushes that are held, of ", bytes_, " bytes"));
  }
  return absl::OkStatus();
}

void PushMemory::Take(const TaskId& worker, bool reserved) {
  Count(worker, 1, reserved ? 1 : 0);
}

void PushMemory::Reserve(const TaskId& worker) { Count(worker, 0, 1); }

void PushMemory::Release(const TaskId& worker, bool reserved) {
  Count(worker, -1, reserved ? -1 : 0);
}

void PushMemory::Count(const TaskId& worker, int pushes, int reserved) {
  Held& held = held_[worker];
  num_extra_ -= ExtraOf(held);
  held.pushes += pushes;
  held.reserved += reserved;
  num_extra_ += ExtraOf(held);
  num_pushes_ += pushes;
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/block_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// Sizes are multiples of this number of values, 256 bytes, the alignment of
// device memory.
constexpr int64_t kGranularity = 64;
// Limits sizes so that their bytes do not overflow.
constexpr int64_t kMaxValues = int64_t{1} << 60;

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

int64_t Bytes(int64_t values) { return values * int64_t{sizeof(float)}; }

}  // namespace

BlockPool::BlockPool(DeviceRuntime* runtime, std::string device,
                     std::function<absl::Status()> await_streams)
    : runtime_(runtime),
      device_(std::move(device)),
      await_streams_(std::move(await_streams)) {}

BlockPool::~BlockPool() {
  for (const auto& [first, block] : blocks_) {
    runtime_->Free(block->device);
    if (block->pinned != nullptr) runtime_->FreePinned(block->pinned);
  }
}

absl::StatusOr<Block*> BlockPool::Take(int64_t size) {
  if (size <= kMaxValues) {
    size = (size + kGranularity - 1) / kGranularity * kGranularity;
  }
  Block* best = nullptr;
  for (const auto& [first, block] : blocks_) {
    if (block->taken || block->size < size || block->size / 2 >= size) continue;
    if (best == nullptr || block->size < best->size) best = block.get();
  }
  if (best != nullptr) {
    best->taken = true;
    return best;
  }

  absl::StatusOr<float*> memory = absl::ResourceExhaustedError("");
  if (size <= kMaxValues) {
    memory = runtime_->Allocate(size);
    if (absl::IsResourceExhausted(memory.status())) {
      HOLDFAST_RETURN_IF_ERROR(FreeUntaken());
      memory = runtime_->Allocate(size);
    }
  }
  if (absl::IsResourceExhausted(memory.status())) {
    const DeviceRuntime::Memory state = runtime_->GetMemory();
    const std::string asked = size <= kMaxValues
                                  ? Mebibytes(Bytes(size))
                                  : absl::StrCat(size, " values");
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory on ", device_, ": the model asked for ", asked, ", ",
        Mebibytes(state.free_bytes), " of ", Mebibytes(state.total_bytes),
        " are free, and the model holds ", Mebibytes(held_bytes_),
        "; a smaller batch_size, or more micro_batches, takes less"));
  }
  if (!memory.ok()) return memory.status();
  auto block = std::make_unique<Block>();
  block->device = *memory;
  block->size = size;
  block->taken = true;
  held_bytes_ += Bytes(size);
  Block* const taken = block.get();
  blocks_.emplace(*memory, std::move(block));
  return taken;
}

void BlockPool::GiveBack(float* device) {
  const auto found = blocks_.find(device);
  if (found != blocks_.end()) found->second->taken = false;
}

absl::Status BlockPool::Pin(Block* block) {
  if (block->pinned != nullptr) return absl::OkStatus();
  const absl::StatusOr<float*> memory = runtime_->AllocatePinned(block->size);
  if (absl::IsResourceExhausted(memory.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no pinned memory on the host for copies from and to ",
                     device_, ": asked for ", Mebibytes(Bytes(block->size)),
                     ": ", memory.status().message()));
  }
  if (!memory.ok()) return memory.status();
  block->pinned = *memory;
  return absl::OkStatus();
}

Block* BlockPool::Find(const float* value) {
  auto next = blocks_.upper_bound(value);
  if (next == blocks_.begin()) return nullptr;
  Block* const block = std::prev(next)->second.get();
  return block->taken && value < block->device + block->size ? block : nullptr;
}

absl::Status BlockPool::FreeUntaken() {
  HOLDFAST_RETURN_IF_ERROR(await_streams_());
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    Block* const block = it->second.get();
    if (block->taken) {
      ++it;
      continue;
    }
    runtime_->Free(block->device);
    if (block->pinned != nullptr) runtime_->FreePinned(block->pinned);
    held_bytes_ -= Bytes(block->size);
    it = blocks_.erase(it);
  }
  return absl::OkStatus();
}

}  // namespace holdfast

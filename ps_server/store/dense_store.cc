// SPDX-License-Identifier: Apache-2.0
#include "ps_server/store/dense_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/tensor/initializer.h"
#include "common/tensor/shape.h"
#include "glog/logging.h"

namespace holdfast {

size_t StoredSlice::chunk_size(size_t chunk) const {
  return std::min<uint64_t>(kChunkElements, size - chunk * kChunkElements);
}

absl::StatusOr<std::unique_ptr<DenseStore>> DenseStore::Create(
    const proto::Declaration& declaration,
    const std::vector<proto::Slice>& placed, uint32_t ps,
    const std::vector<std::vector<float>>& slots_by_optimizer,
    SharedArena* arena) {
  auto store = std::unique_ptr<DenseStore>(new DenseStore(arena));
  // Slices may differ from those of the previous store.
  if (arena != nullptr) arena->Renew();
  auto version = std::make_shared<StoreVersion>();
  absl::flat_hash_map<absl::string_view, const proto::Variable*> declared;
  for (const proto::Variable& variable : declaration.variables()) {
    declared.emplace(variable.name(), &variable);
  }
  for (const proto::Slice& place : placed) {
    if (place.ps() != ps) continue;
    const auto found = declared.find(place.variable());
    if (found == declared.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("slice of variable \"", place.variable(),
                       "\", which is not declared"));
    }
    const proto::Variable* const variable = found->second;
    HOLDFAST_ASSIGN_OR_RETURN(auto elements, NumElements(variable->shape()));
    if (place.begin() > static_cast<uint64_t>(elements) ||
        place.size() > static_cast<uint64_t>(elements) - place.begin()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", place.variable(), "\": slice [", place.begin(), ", +",
          place.size(), ") of ", elements, " elements"));
    }
    if (variable->optimizer() >= slots_by_optimizer.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", place.variable(), "\": optimizer ",
          variable->optimizer(), " of ", slots_by_optimizer.size()));
    }

    StoredSlice slice{*variable, place.begin(), place.size()};
    proto::Initializer initializer = variable->initializer();
    store->lacks_values_.push_back(initializer.has_given());
    if (initializer.has_given()) initializer.mutable_zeros();
    const std::vector<std::shared_ptr<float>> chunks = store->TakeValues(slice);
    const std::vector<float> first =
        slice.has_optimizer() ? slots_by_optimizer[variable->optimizer()]
                              : std::vector<float>();
    std::vector<std::vector<SlotChunk>> slots(first.size());
    const int64_t slice_bytes = slice.size * sizeof(float);
    store->value_bytes_ += slice_bytes;
    store->slot_bytes_ += slice_bytes * static_cast<int64_t>(slots.size());
    for (size_t c = 0; c < slice.num_chunks(); ++c) {
      const size_t size = slice.chunk_size(c);
      HOLDFAST_RETURN_IF_ERROR(
          Initialize(initializer, variable->shape(), variable->name(),
                     declaration.seed(), slice.begin + c * kChunkElements,
                     absl::MakeSpan(chunks[c].get(), size)));
      for (size_t s = 0; s < slots.size(); ++s) {
        slots[s].push_back({store->pool_.Take(size)});
        std::fill_n(slots[s].back().memory.get(), size, first[s]);
      }
    }
    store->by_variable_[variable->name()].emplace(slice.begin,
                                                  store->slices_.size());
    store->slices_.push_back(std::move(slice));
    store->slots_.push_back(std::move(slots));
    version->slices.emplace_back(chunks.begin(), chunks.end());
  }
  store->newest_ = std::move(version);
  return store;
}

const proto::Variable* DenseStore::FindVariable(absl::string_view name) const {
  const auto found = by_variable_.find(name);
  return found == by_variable_.end()
             ? nullptr
             : &slices_[found->second.begin()->second].variable;
}

absl::StatusOr<size_t> DenseStore::Find(absl::string_view variable,
                                        uint64_t begin, uint64_t size) const {
  const auto found = by_variable_.find(variable);
  if (found == by_variable_.end()) {
    return absl::NotFoundError(
        absl::StrCat("variable \"", variable, "\" is not on this ps"));
  }
  // The last slice that begins at or before `begin`.
  const auto after = found->second.upper_bound(begin);
  if (after != found->second.begin()) {
    const size_t i = std::prev(after)->second;
    const StoredSlice& slice = slices_[i];
    if (begin - slice.begin <= slice.size &&
        size <= slice.size - (begin - slice.begin)) {
      return i;
    }
  }
  return absl::NotFoundError(absl::StrCat("variable \"", variable,
                                          "\": elements [", begin, ", +", size,
                                          ") are not in a slice on this ps"));
}

StoreSnapshot DenseStore::Snapshot() {
  StoreSnapshot snapshot;
  snapshot.slices = slices_;
  snapshot.version = newest_;
  snapshot.slots.resize(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (std::vector<SlotChunk>& slot : slots_[i]) {
      auto& held = snapshot.slots[i].emplace_back();
      for (SlotChunk& chunk : slot) {
        chunk.in_snapshot = true;
        held.push_back(chunk.memory);
      }
    }
  }
  return snapshot;
}

float* DenseStore::ValuesToLoad(size_t slice, size_t chunk) {
  lacks_values_[slice] = false;
  // The memory is the store's own, and not read by anyone yet.
  return const_cast<float*>(newest_->slices[slice][chunk].get());
}

float* DenseStore::SlotToLoad(size_t slice, size_t slot, size_t chunk) {
  return slots_[slice][slot][chunk].memory.get();
}

void DenseStore::SetVersion(GlobalStep number) {
  auto version = std::make_shared<StoreVersion>(*newest_);
  version->number = number;
  newest_ = std::move(version);
}

Buffer DenseStore::Read(const StoreVersion& version, size_t slice,
                        uint64_t begin, uint64_t size) const {
  const StoredSlice& info = slices_[slice];
  CHECK_GE(begin, info.begin);
  const uint64_t at = begin - info.begin;
  CHECK_LE(at + size, info.size);
  Buffer values;
  if (size == 0) return values;
  const std::shared_ptr<const float>& first = version.slices[slice][0];
  values.Append(
      Buffer::FromMemory(first.get() + at, size * sizeof(float), first));
  return values;
}

std::vector<std::shared_ptr<float>> DenseStore::TakeValues(
    const StoredSlice& slice) {
  std::vector<std::shared_ptr<float>> chunks;
  if (slice.size == 0) return chunks;
  const std::shared_ptr<float> whole = pool_.TakeValues(slice.size);
  for (size_t c = 0; c < slice.num_chunks(); ++c) {
    chunks.emplace_back(whole, whole.get() + c * kChunkElements);
  }
  return chunks;
}

DenseStore::Draft DenseStore::Reserve() {
  Draft draft;
  draft.number = newest_->number.next();
  draft.written.resize(slices_.size());
  draft.slots.resize(slices_.size());
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (!slices_[i].trainable()) continue;
    draft.written[i] = TakeValues(slices_[i]);
    for (const std::vector<SlotChunk>& slot : slots_[i]) {
      auto& chunks = draft.slots[i].emplace_back(slot.size());
      for (size_t c = 0; c < slot.size(); ++c) {
        if (slot[c].in_snapshot) {
          chunks[c] = pool_.Take(slices_[i].chunk_size(c));
        }
      }
    }
  }
  return draft;
}

std::vector<DenseStore::SlotPlace> DenseStore::slots(const Draft& draft,
                                                     size_t slice,
                                                     size_t chunk) const {
  std::vector<SlotPlace> places;
  for (size_t s = 0; s < slots_[slice].size(); ++s) {
    float* const before = slots_[slice][s][chunk].memory.get();
    float* const other = draft.slots[slice][s][chunk].get();
    places.push_back({before, other != nullptr ? other : before});
  }
  return places;
}

void DenseStore::Publish(Draft draft) {
  auto version = std::make_shared<StoreVersion>(*newest_);
  version->number = draft.number;
  for (size_t i = 0; i < slices_.size(); ++i) {
    for (size_t c = 0; c < draft.written[i].size(); ++c) {
      version->slices[i][c] = std::move(draft.written[i][c]);
    }
    for (size_t s = 0; s < draft.slots[i].size(); ++s) {
      for (size_t c = 0; c < draft.slots[i][s].size(); ++c) {
        std::shared_ptr<float>& other = draft.slots[i][s][c];
        if (other != nullptr) slots_[i][s][c] = {std::move(other)};
      }
    }
  }
  newest_ = std::move(version);
}

void DenseStore::PublishUnchanged() {
  auto version = std::make_shared<StoreVersion>(*newest_);
  version->number = newest_->number.next();
  newest_ = std::move(version);
}

}  // namespace holdfast

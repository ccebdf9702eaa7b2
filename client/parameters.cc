// SPDX-License-Identifier: Apache-2.0
#include "client/parameters.h"

#include <algorithm>

namespace holdfast {

Parameters::Parameters(GlobalStep version,
                       std::vector<std::vector<float>> values)
    : version(version) {
  for (std::vector<float>& of_one : values) {
    places_.emplace_back().own = Own(std::move(of_one));
  }
}

Parameters::Own::Own(const Own& other)
    : heap_(other.values().begin(), other.values().end()) {}

Parameters::Own& Parameters::Own::operator=(const Own& other) {
  return *this = Own(other);
}

absl::Span<float> Parameters::Own::Make(size_t size, HostMemory* memory) {
  if (values().size() != size) {
    pinned_ = memory != nullptr ? memory->Allocate(size) : nullptr;
    pinned_size_ = size;
    heap_.resize(pinned_ != nullptr ? 0 : size);
  }
  if (pinned_ == nullptr) return absl::MakeSpan(heap_);
  return absl::MakeSpan(pinned_.get(), size);
}

bool Parameters::AllAt(GlobalStep step) const {
  return version == step &&
         std::all_of(versions.begin(), versions.end(),
                     [step](GlobalStep of_ps) { return of_ps <= step; });
}

absl::Span<const float> Parameters::Of(size_t variable) const {
  const Place& place = places_[variable];
  if (place.owner != nullptr) return place.kept;
  if (HasMemory(variable)) return place.given;
  return place.own.values();
}

std::vector<absl::Span<const float>> Parameters::All() const {
  std::vector<absl::Span<const float>> all;
  all.reserve(size());
  for (size_t i = 0; i < size(); ++i) all.push_back(Of(i));
  return all;
}

void Parameters::SetMemory(absl::Span<const absl::Span<float>> memory) {
  places_.resize(std::max(places_.size(), memory.size()));
  for (size_t i = 0; i < memory.size(); ++i) places_[i].given = memory[i];
}

void Parameters::Release() {
  for (Place& place : places_) {
    if (place.owner == nullptr) continue;
    place.kept = {};
    place.owner = nullptr;
  }
}

absl::Span<const float> Parameters::AtFixedPlace(size_t variable) {
  Place& place = places_[variable];
  if (place.owner == nullptr) return Of(variable);
  if (!place.copied) {
    const absl::Span<float> copy =
        place.own.Make(place.kept.size(), host_memory_);
    std::copy(place.kept.begin(), place.kept.end(), copy.begin());
    place.copied = true;
  }
  return place.own.values();
}

bool Parameters::HasMemory(size_t variable) const {
  return variable < size() && places_[variable].given.data() != nullptr;
}

absl::Span<float> Parameters::Write(size_t variable, size_t size) {
  Place& place = places_[variable];
  if (place.owner != nullptr) {
    place.kept = {};
    place.owner = nullptr;
  }
  if (HasMemory(variable)) return place.given;
  return place.own.Make(size, host_memory_);
}

void Parameters::Keep(size_t variable, absl::Span<const float> values,
                      std::shared_ptr<const void> owner) {
  Place& place = places_[variable];
  place.kept = values;
  place.owner = std::move(owner);
  place.copied = false;
}

void Parameters::WantRows(size_t table, absl::Span<const uint64_t> ids) {
  if (rows_.size() <= table) rows_.resize(table + 1);
  rows_[table].ids.assign(ids.begin(), ids.end());
  rows_[table].num_values = 0;
}

absl::Span<const uint64_t> Parameters::RowIds(size_t table) const {
  if (table >= rows_.size()) return {};
  return rows_[table].ids;
}

absl::Span<const float> Parameters::RowsOf(size_t table) const {
  if (table >= rows_.size()) return {};
  return absl::MakeConstSpan(rows_[table].memory.data(),
                             rows_[table].num_values);
}

absl::Span<float> Parameters::WriteRows(size_t table, size_t row_length) {
  Rows& rows = rows_[table];
  const size_t num_values = rows.ids.size() * row_length;
  if (rows.num_values != num_values) {
    if (rows.memory.size() < num_values) rows.memory.resize(num_values);
    rows.num_values = num_values;
  }
  return absl::MakeSpan(rows.memory.data(), num_values);
}

}  // namespace holdfast

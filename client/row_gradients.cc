// SPDX-License-Identifier: Apache-2.0
#include "client/row_gradients.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"

namespace holdfast::client {

RowGradients::RowGradients(const Layout* layout, const Plan* plan,
                           Neighbors* neighbors, GlobalStep step)
    : layout_(*layout),
      dense_plan_(*plan),
      neighbors_(neighbors),
      rounding_{layout->declaration().seed(), step.value()},
      plan_(layout),
      taken_(layout->tables().size(), false),
      gradients_(layout->tables().size()) {}

absl::Status RowGradients::Check(size_t table, absl::Span<const uint64_t> ids,
                                 absl::Span<const float> gradients) const {
  HOLDFAST_RETURN_IF_ERROR(CheckRowIds(layout_, table, ids));
  const Layout::Table& declared = layout_.tables()[table];
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", declared.name, "\": ", what...));
  };
  if (ids.size() > declared.max_rows_per_push) {
    return error(ids.size(), " rows, but max_rows_per_push is ",
                 declared.max_rows_per_push);
  }
  if (gradients.size() != ids.size() * declared.row_length) {
    return error("the gradients of ", ids.size(), " rows of ",
                 declared.row_length, " values are ", gradients.size(),
                 " numbers");
  }
  if (taken_[table]) return error("its rows were handed in before");
  if (closed_) {
    return error("rows must be handed in before AwaitHeld and Contribute");
  }
  return absl::OkStatus();
}

void RowGradients::Take(size_t table, absl::Span<const uint64_t> ids,
                        absl::Span<const float> gradients) {
  plan_.Set(table, ids);
  const absl::Span<const uint32_t> order = plan_.order(table);
  const Layout::Table& declared = layout_.tables()[table];
  const size_t length = declared.row_length;
  const size_t bytes = gradients.size() * sizeof(float);
  const bool encodes = declared.push != proto::EXACT;
  const bool lends = !encodes && MayBeLent(bytes);
  std::shared_ptr<const void> owner = loan_.owner();
  if (!order.empty() || lends) {
    const std::shared_ptr<float> copy = TakeMemory(gradients.size(), lends);
    if (order.empty()) {
      std::copy(gradients.begin(), gradients.end(), copy.get());
    } else {
      float* to = copy.get();
      for (const uint32_t place : order) {
        to = std::copy_n(gradients.data() + place * length, length, to);
      }
    }
    gradients = {copy.get(), gradients.size()};
    owner = copy;
  }
  gradients_[table] =
      encodes ? EncodeRows(declared.push, length, plan_.ids(table), gradients,
                           rounding_)
              : Buffer::FromMemory(gradients.data(), bytes, std::move(owner));
  taken_[table] = true;
  ++num_taken_;
}

bool RowGradients::MayBeLent(size_t bytes) const {
  if (neighbors_ == nullptr || bytes < kMinLentBytes) return false;
  const std::vector<bool> linked = neighbors_->linked();
  return std::find(linked.begin(), linked.end(), true) != linked.end();
}

std::shared_ptr<float> RowGradients::TakeMemory(size_t size, bool lends) const {
  if (lends) {
    absl::StatusOr<std::shared_ptr<char>> region =
        neighbors_->TakeAtLeast(size * sizeof(float));
    if (region.ok()) {
      auto* const values = reinterpret_cast<float*>(region->get());
      return std::shared_ptr<float>(*std::move(region), values);
    }
  }
  // Unlike a vector's memory, this is not cleared first.
  return std::shared_ptr<float>(new float[size],
                                std::default_delete<float[]>());
}

bool RowGradients::Close() {
  if (closed_) return false;
  closed_ = true;
  plan_.Cut(dense_plan_.part_bytes);
  plan_.AddEmptyParts(dense_plan_);
  return true;
}

std::vector<TensorPiece> RowGradients::PiecesOf(uint32_t ps,
                                                uint32_t part) const {
  std::vector<TensorPiece> pieces;
  for (const RowPlan::RowRange& range : plan_.parts(ps)[part]) {
    const Layout::Table& table = layout_.tables()[range.table];
    const size_t row_bytes = EncodedRowBytes(table.push, table.row_length);
    TensorPiece& piece = pieces.emplace_back();
    piece.variable = table.name;
    piece.encoding = table.push;
    piece.rows = plan_.EncodedIds(ps, range);
    piece.data = gradients_[range.table].Sub(
        plan_.FirstPlace(ps, range) * row_bytes, range.size * row_bytes);
  }
  return pieces;
}

void RowGradients::AwaitReturn() {
  gradients_.clear();
  loan_.AwaitReturn();
}

}  // namespace holdfast::client

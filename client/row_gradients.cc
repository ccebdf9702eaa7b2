// SPDX-License-Identifier: Apache-2.0
#include "client/row_gradients.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast::client {
namespace {

// Copies rows of `length` each: row i of the result is row order[i] of
// `gradients`.
Buffer Gather(absl::Span<const uint32_t> order,
              absl::Span<const float> gradients, size_t length) {
  // Unlike a vector's memory, this is not cleared first.
  const std::shared_ptr<float[]> copy(new float[gradients.size()]);
  float* to = copy.get();
  for (const uint32_t place : order) {
    to = std::copy_n(gradients.data() + place * length, length, to);
  }
  return Buffer::FromMemory(copy.get(), gradients.size() * sizeof(float), copy);
}

}  // namespace

RowGradients::RowGradients(const Layout* layout, const Plan* plan,
                           GlobalStep step)
    : layout_(*layout),
      dense_plan_(*plan),
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
  Buffer& bytes = gradients_[table];
  if (declared.push != proto::EXACT) {
    const Buffer gathered =
        order.empty() ? Buffer() : Gather(order, gradients, length);
    if (!order.empty()) {
      const auto* const first =
          reinterpret_cast<const float*>(gathered.spans().front().data);
      gradients = {first, gradients.size()};
    }
    bytes = EncodeRows(declared.push, length, plan_.ids(table), gradients,
                       rounding_);
  } else if (order.empty()) {
    bytes = Buffer::FromMemory(gradients.data(),
                               gradients.size() * sizeof(float), loan_.owner());
  } else {
    bytes = Gather(order, gradients, length);
  }
  taken_[table] = true;
  ++num_taken_;
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

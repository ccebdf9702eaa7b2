// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/placement.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

constexpr uint64_t kElementBytes = sizeof(float);
// The maximum size of declaration and slices together: the maximum size of a
// message, less room for the addresses of the ps and for the encoding of the
// fields.
constexpr uint64_t kMaxPlacementBytes = kMaxMessageBytes - (1 << 20);
// The maximum overhead of encoding a slice in a message.
constexpr uint64_t kSliceHeaderBytes = 6;

constexpr uint64_t kDefaultMinSliceBytes = 256 << 10;

uint64_t DivideRoundingUp(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// The number of slices for a variable with this many rows and bytes, neither of
// them 0: from 1 to `rows`, even for a partitioner that breaks the rules of the
// proto.
uint64_t NumSlices(const proto::Partitioner& partitioner, uint64_t rows,
                   uint64_t bytes, uint32_t num_ps) {
  uint64_t slices = 1;
  uint64_t most = rows;
  switch (partitioner.kind_case()) {
    case proto::Partitioner::kFixedShards:
      slices = partitioner.fixed_shards().shards();
      break;
    case proto::Partitioner::kMinSize: {
      const proto::Partitioner::MinSize& by = partitioner.min_size();
      const uint64_t least = by.has_min_slice_bytes() ? by.min_slice_bytes()
                                                      : kDefaultMinSliceBytes;
      slices = DivideRoundingUp(bytes, std::max<uint64_t>(1, least));
      most = by.has_max_shards() ? by.max_shards() : num_ps;
      break;
    }
    case proto::Partitioner::kMaxSize: {
      const proto::Partitioner::MaxSize& by = partitioner.max_size();
      const uint64_t rows_per_slice =
          std::max<uint64_t>(1, by.max_slice_bytes() / (bytes / rows));
      slices = DivideRoundingUp(rows, rows_per_slice);
      if (by.has_max_shards()) most = by.max_shards();
      break;
    }
    case proto::Partitioner::KIND_NOT_SET:
      break;
  }
  return std::clamp<uint64_t>(std::min(slices, most), 1, rows);
}

// Cuts variables into slices, one after another.
class Cutter {
 public:
  Cutter(const proto::Declaration& declaration, uint32_t num_ps)
      : declaration_(declaration),
        num_ps_(num_ps),
        message_bytes_(declaration.ByteSizeLong()) {}

  absl::Status Cut(const proto::Variable& variable) {
    const auto error = [&variable](const auto&... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name(), "\"", what...));
    };
    const absl::StatusOr<int64_t> elements = NumElements(variable.shape());
    if (!elements.ok()) return error(": ", elements.status().message());
    const uint64_t size = *elements;
    if (size > bytes_left_ / kElementBytes) {
      return error(" of shape ", ShapeString(variable.shape()),
                   ": the variables up to it have more bytes than 64 bits "
                   "can count");
    }
    const uint64_t bytes = size * kElementBytes;
    bytes_left_ -= bytes;

    const bool cut = variable.shape_size() > 0 && size > 0;
    const uint64_t rows = cut ? variable.shape(0) : 1;
    const proto::Partitioner& partitioner = variable.has_partitioner()
                                                ? variable.partitioner()
                                                : declaration_.partitioner();
    const uint64_t slices =
        cut ? NumSlices(partitioner, rows, bytes, num_ps_) : 1;
    uint64_t begin = 0;
    for (uint64_t i = 0; i < slices; ++i) {
      const uint64_t slice_rows = rows / slices + (i < rows % slices ? 1 : 0);
      proto::Slice& slice = slices_.emplace_back();
      slice.set_variable(variable.name());
      slice.set_begin(begin);
      slice.set_size(slice_rows * (size / rows));
      // Uses the ps whose index has the longest encoding, because the real ps
      // is not known yet.
      slice.set_ps(num_ps_ - 1);
      begin += slice.size();
      message_bytes_ += slice.ByteSizeLong() + kSliceHeaderBytes;
      if (message_bytes_ > kMaxPlacementBytes) {
        return error(", cut into ", slices,
                     ": the slices up to it do not fit in the ",
                     kMaxPlacementBytes,
                     " bytes of the message that carries variables and "
                     "slices; cut into fewer");
      }
    }
    return absl::OkStatus();
  }

  std::vector<proto::Slice> Take() { return std::move(slices_); }

 private:
  const proto::Declaration& declaration_;
  const uint32_t num_ps_;
  uint64_t message_bytes_;
  uint64_t bytes_left_ = std::numeric_limits<int64_t>::max();
  std::vector<proto::Slice> slices_;
};

void PlaceGreedily(uint32_t num_ps, std::vector<proto::Slice>* slices) {
  using Load = std::pair<uint64_t, uint32_t>;  // bytes, ps
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  for (uint32_t ps = 0; ps < num_ps; ++ps) loads.push({0, ps});
  for (proto::Slice& slice : *slices) {
    const auto [bytes, ps] = loads.top();
    loads.pop();
    slice.set_ps(ps);
    loads.push({bytes + slice.size() * kElementBytes, ps});
  }
}

}  // namespace

absl::StatusOr<std::vector<proto::Slice>> PlaceVariables(
    const proto::Declaration& declaration, uint32_t num_ps) {
  if (num_ps == 0) {
    return absl::InvalidArgumentError("variables need a ps to be placed on");
  }
  Cutter cutter(declaration, num_ps);
  for (const proto::Variable& variable : declaration.variables()) {
    HOLDFAST_RETURN_IF_ERROR(cutter.Cut(variable));
  }
  std::vector<proto::Slice> slices = cutter.Take();
  switch (declaration.placement()) {
    case proto::ROUND_ROBIN:
      for (size_t i = 0; i < slices.size(); ++i) {
        slices[i].set_ps(static_cast<uint32_t>(i % num_ps));
      }
      return slices;
    case proto::GREEDY_BY_BYTES:
      PlaceGreedily(num_ps, &slices);
      return slices;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown placement strategy ",
                       static_cast<int>(declaration.placement())));
  }
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "ps_server/optimizer/optimizer.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/received_rows.h"

namespace holdfast {
namespace {

constexpr uint64_t kElementBytes = sizeof(float);
// The maximum number of pinned versions, even if memory permits more; it
// suffices in practice.
constexpr size_t kMaxPinnedVersions = 64;
// More than the rows of the messages that a few workers pull at a time.
constexpr uint64_t kMaxLentRowBytes = uint64_t{64} << 20;

// Saturating sums and products: on overflow the result is the greatest number,
// far above any limit.
uint64_t Add(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum)
             ? std::numeric_limits<uint64_t>::max()
             : sum;
}
uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<uint64_t>::max()
             : product;
}

std::string InBytes(uint64_t bytes) { return absl::StrCat(bytes, " bytes"); }

std::string Text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? InBytes(bytes)
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

// The sizes of one shard's variables, in bytes.
struct Sizes {
  uint64_t values = 0;
  uint64_t trainable = 0;
  uint64_t slots = 0;
};

Sizes SizesOn(const proto::Declaration& declaration,
              const std::vector<proto::Slice>& slices, uint32_t ps) {
  std::vector<size_t> num_slots;
  for (const proto::Optimizer& config : declaration.optimizers()) {
    num_slots.push_back(MakeOptimizer(config)->initial_slots().size());
  }
  std::map<absl::string_view, const proto::Variable*> variables;
  for (const proto::Variable& variable : declaration.variables()) {
    variables[variable.name()] = &variable;
  }
  Sizes sizes;
  for (const proto::Slice& slice : slices) {
    const auto variable = variables.find(slice.variable());
    if (slice.ps() != ps || variable == variables.end()) continue;
    const uint64_t bytes = Times(slice.size(), kElementBytes);
    sizes.values = Add(sizes.values, bytes);
    const proto::Variable& declared = *variable->second;
    if (declared.has_trainable() && !declared.trainable()) continue;
    sizes.trainable = Add(sizes.trainable, bytes);
    if (declared.has_moving_average()) continue;
    if (declared.optimizer() < num_slots.size()) {
      sizes.slots =
          Add(sizes.slots, Times(bytes, num_slots[declared.optimizer()]));
    }
  }
  return sizes;
}

// The sizes of the embedding tables on one shard, in bytes.
struct TableSizes {
  // All rows of the tables with max_rows.
  uint64_t bounded = 0;
  // Whether there are tables without max_rows.
  bool unbounded = false;
  // The most rows that a push can have.
  uint64_t push = 0;
};

absl::StatusOr<TableSizes> SizesOfTables(const proto::Declaration& declaration,
                                         BucketRange buckets) {
  TableSizes sizes;
  for (const proto::EmbeddingTable& declared : declaration.tables()) {
    if (declared.optimizer() >=
        static_cast<uint32_t>(declaration.optimizers_size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "table \"", declared.name(), "\": optimizer ", declared.optimizer(),
          " of ", declaration.optimizers_size()));
    }
    EmbeddingTable::Options options;
    options.buckets = buckets;
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto table,
        EmbeddingTable::Create(
            declared, declaration.optimizers(declared.optimizer()), options));
    sizes.bounded = Add(sizes.bounded, table->MaxBytes());
    sizes.unbounded |= !declared.has_max_rows();
    const uint64_t row =
        declared.row_length() * kElementBytes + kReceivedRowBytes;
    sizes.push = Add(sizes.push, Times(declared.max_rows_per_push(), row));
  }
  return sizes;
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const proto::Declaration& declaration,
                                      const std::vector<proto::Slice>& slices,
                                      uint32_t ps, int64_t limit_bytes,
                                      bool lends, BucketRange buckets) {
  const uint64_t workers = std::max(1u, declaration.num_workers());
  const auto& synchronous = declaration.consistency().synchronous();
  MemoryPlan plan;
  if (declaration.consistency().has_asynchronous()) {
    plan.max_pushes_per_worker =
        std::max(1u, declaration.consistency().asynchronous().pipeline_depth());
  } else {
    plan.reserved_per_worker = std::max<size_t>(
        1, (synchronous.replicas_to_aggregate() + workers - 1) / workers);
    // A worker may abandon a push and begin another in its place.
    plan.max_pushes_per_worker = 2 * plan.reserved_per_worker;
  }
  const uint64_t reserved = workers * plan.reserved_per_worker;
  const uint64_t wanted_extra =
      workers * (plan.max_pushes_per_worker - plan.reserved_per_worker);

  const Sizes sizes = SizesOn(declaration, slices, ps);
  HOLDFAST_ASSIGN_OR_RETURN(const auto tables,
                            SizesOfTables(declaration, buckets));
  const uint64_t t = sizes.trainable;
  const uint64_t push = Add(t, tables.push);
  uint64_t needed = Add(sizes.values, sizes.slots);
  needed = Add(needed, Times(t, 2));
  needed = Add(needed, tables.bounded);
  needed = Add(needed, Times(push, reserved));
  const uint64_t held = declaration.has_checkpoints() ? Add(t, sizes.slots) : 0;
  needed = Add(needed, held);
  const uint64_t limit =
      limit_bytes > 0 ? limit_bytes : std::numeric_limits<int64_t>::max();
  if (needed > limit) {
    // The sizes in bytes are given if they look the same when rounded.
    const bool exact = Text(limit) == Text(needed);
    return absl::ResourceExhaustedError(absl::StrCat(
        "/job:ps/task:", ps, " may take ", exact ? InBytes(limit) : Text(limit),
        limit_bytes > 0 ? " (--memory_limit; 80 % of the memory unless set)"
                        : "",
        ", the job needs ", exact ? InBytes(needed) : Text(needed),
        " there: values ", Text(sizes.values), " + optimizer slots ",
        Text(sizes.slots), " + next version ", Text(t),
        " + a version being read ", Text(t),
        held > 0 ? absl::StrCat(" + a checkpoint being written ", Text(held))
                 : "",
        tables.bounded > 0
            ? absl::StrCat(" + embedding tables ", Text(tables.bounded))
            : "",
        " + ", reserved, " pushes of ", Text(push), " each"));
  }
  plan.needed_bytes = static_cast<int64_t>(needed);
  uint64_t left = limit - needed;
  plan.extra_pushes =
      push == 0 ? wanted_extra : std::min(wanted_extra, left / push);
  left -= plan.extra_pushes * push;
  if (tables.unbounded) {
    plan.table_bytes = static_cast<int64_t>(left - left / 10);
    left -= plan.table_bytes;
  }
  if (lends && !declaration.tables().empty()) {
    plan.lent_row_bytes =
        static_cast<int64_t>(std::min(kMaxLentRowBytes, left));
    left -= plan.lent_row_bytes;
  }
  if (lends) {
    const uint64_t wanted =
        declaration.consistency().has_asynchronous() ? 2 * workers + 2 : 4;
    plan.max_lent_versions = t == 0 ? wanted : std::min(wanted, left / t);
    left -= plan.max_lent_versions * t;
  }
  if (!declaration.tables().empty()) {
    plan.held_row_bytes = static_cast<int64_t>(left / 2);
    left -= plan.held_row_bytes;
  }
  plan.max_pinned_versions =
      t == 0 ? kMaxPinnedVersions
             : std::min<uint64_t>(kMaxPinnedVersions, 1 + left / t);
  return plan;
}

}  // namespace holdfast

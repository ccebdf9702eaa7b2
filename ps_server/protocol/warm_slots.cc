// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/warm_slots.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "ps_server/optimizer/optimizer.h"

namespace holdfast {
namespace {

bool HasOptimizer(const proto::Variable& variable) {
  return (!variable.has_trainable() || variable.trainable()) &&
         !variable.has_moving_average();
}

// The number of updates that the slots of optimizer `optimizer` have seen.
uint64_t UpdatesIn(const proto::Manifest& manifest, uint32_t optimizer) {
  const proto::Position& position = manifest.position();
  const bool asynchronous =
      manifest.declaration().consistency().has_asynchronous();
  const uint64_t own = asynchronous ? position.step() : position.updates();
  const bool has_before =
      optimizer < static_cast<uint32_t>(position.updates_before_size());
  return own + (has_before ? position.updates_before(optimizer) : 0);
}

}  // namespace

bool SameTensor(const proto::Variable& a, const proto::Variable& b) {
  return a.dtype() == b.dtype() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(),
                    b.shape().end());
}

absl::StatusOr<WarmSlots> PlanWarmSlots(const proto::Declaration& declaration,
                                        const proto::Manifest& from) {
  std::map<absl::string_view, const proto::Variable*> stored;
  for (const proto::Variable& variable : from.declaration().variables()) {
    stored.emplace(variable.name(), &variable);
  }
  std::map<absl::string_view, const proto::EmbeddingTable*> stored_tables;
  for (const proto::EmbeddingTable& table : from.declaration().tables()) {
    stored_tables.emplace(table.name(), &table);
  }
  WarmSlots plan;
  plan.updates_before.resize(declaration.optimizers_size());
  // Keyed by optimizer: the first variable or table whose slots take part in
  // bias correction, like "variable "w"".
  std::map<uint32_t, std::string> first;
  // Adds a variable or table (`what`) with this name and optimizer. Its slots
  // come from optimizer `from_optimizer`, if any.
  const auto add = [&](absl::string_view what, const std::string& name,
                       uint32_t optimizer,
                       std::optional<uint32_t> from_optimizer) {
    const proto::Optimizer& rule = declaration.optimizers(optimizer);
    if (MakeOptimizer(rule)->initial_slots().empty()) return absl::OkStatus();
    const bool fits =
        from_optimizer.has_value() &&
        SameSlots(rule, from.declaration().optimizers(*from_optimizer));
    (fits ? plan.taken : plan.anew).push_back(name);
    if (!CorrectsBias(rule)) return absl::OkStatus();
    const uint64_t updates = fits ? UpdatesIn(from, *from_optimizer) : 0;
    uint64_t& before = plan.updates_before[optimizer];
    const std::string quoted = absl::StrCat(what, " \"", name, "\"");
    const auto [earlier, is_first] = first.emplace(optimizer, quoted);
    if (is_first) {
      before = updates;
    } else if (before != updates) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--warm_start_slots: the slots of ", earlier->second,
          " would begin with ", before, " updates, those of ", quoted, " with ",
          updates,
          ", but their optimizer corrects bias by one number of updates: give "
          "them separate optimizers, or leave out --warm_start_slots"));
    }
    return absl::OkStatus();
  };
  for (const proto::Variable& variable : declaration.variables()) {
    if (!HasOptimizer(variable)) continue;
    std::optional<uint32_t> from_optimizer;
    const auto found = stored.find(variable.name());
    if (found != stored.end() && SameTensor(*found->second, variable) &&
        HasOptimizer(*found->second)) {
      from_optimizer = found->second->optimizer();
    }
    HOLDFAST_RETURN_IF_ERROR(
        add("variable", variable.name(), variable.optimizer(), from_optimizer));
  }
  for (const proto::EmbeddingTable& table : declaration.tables()) {
    std::optional<uint32_t> from_optimizer;
    const auto found = stored_tables.find(table.name());
    if (found != stored_tables.end() &&
        found->second->row_length() == table.row_length() &&
        found->second->row_wise() == table.row_wise()) {
      from_optimizer = found->second->optimizer();
    }
    HOLDFAST_RETURN_IF_ERROR(
        add("table", table.name(), table.optimizer(), from_optimizer));
  }
  return plan;
}

}  // namespace holdfast

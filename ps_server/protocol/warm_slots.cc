#include "ps_server/protocol/warm_slots.h"

#include <algorithm>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ps_server/optimizer/optimizer.h"

namespace holdfast {
namespace {

bool HasOptimizer(const proto::Variable& variable) {
  return (!variable.has_trainable() || variable.trainable()) &&
         !variable.has_moving_average();
}

// That the slots of optimizer `optimizer` have seen.
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
  WarmSlots plan;
  plan.updates_before.resize(declaration.optimizers_size());
  // By optimizer: the first of its variables.
  std::map<uint32_t, absl::string_view> first;
  for (const proto::Variable& variable : declaration.variables()) {
    const uint32_t optimizer = variable.optimizer();
    if (!HasOptimizer(variable)) continue;
    const proto::Optimizer& rule = declaration.optimizers(optimizer);
    if (MakeOptimizer(rule)->initial_slots().empty()) continue;
    const auto found = stored.find(variable.name());
    const bool fits =
        found != stored.end() && SameTensor(*found->second, variable) &&
        HasOptimizer(*found->second) &&
        SameSlots(rule,
                  from.declaration().optimizers(found->second->optimizer()));
    (fits ? plan.taken : plan.anew).push_back(variable.name());
    if (!CorrectsBias(rule)) continue;
    const uint64_t updates =
        fits ? UpdatesIn(from, found->second->optimizer()) : 0;
    uint64_t& before = plan.updates_before[optimizer];
    const auto [earlier, is_first] = first.emplace(optimizer, variable.name());
    if (is_first) {
      before = updates;
    } else if (before != updates) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--warm_start_slots: the slots of variable \"", earlier->second,
          "\" would begin with ", before, " updates, those of \"",
          variable.name(), "\" with ", updates,
          ", but their optimizer corrects bias by one number of updates: give "
          "them separate optimizers, or leave out --warm_start_slots"));
    }
  }
  return plan;
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/evaluations.h"

#include <algorithm>
#include <iterator>

#include "ps_server/coordinator/evaluation_metric.h"

namespace holdfast {

bool SameCheckpoint(const proto::CheckpointName& a,
                    const proto::CheckpointName& b) {
  return a.generation() == b.generation() && a.step() == b.step();
}

const proto::CheckpointName* FindCheckpoint(const proto::Journal& journal,
                                            uint64_t step) {
  const auto& names = journal.checkpoints();
  const auto found =
      std::find_if(names.rbegin(), names.rend(),
                   [step](const auto& name) { return name.step() == step; });
  return found == names.rend() ? nullptr : &*found;
}

const proto::Evaluation& Evaluations::config() const {
  return declared_->has_value() ? (*declared_)->evaluation()
                                : proto::Evaluation::default_instance();
}

void Evaluations::TakeUp(const proto::Journal& journal) {
  for (const proto::EvaluationResult& result : journal.evaluations()) {
    results_[result.step()] = result;
  }
}

void Evaluations::GoBack(uint64_t step) {
  results_.erase(results_.upper_bound(step), results_.end());
  if (newest_by_evaluator_ > step) newest_by_evaluator_ = 0;
}

bool Evaluations::decide() const {
  return config().has_keep_best() || config().has_early_stopping();
}

void Evaluations::Add(const proto::EvaluationResult& result,
                      bool by_evaluator) {
  results_[result.step()] = result;
  if (by_evaluator) {
    newest_by_evaluator_ =
        std::max<uint64_t>(newest_by_evaluator_, result.step());
  }
  Trim();
}

// The best result of a metric and all newer results determine the same
// decisions as all results do.
void Evaluations::Trim() {
  if (results_.size() <= kMost) return;
  std::set<uint64_t> kept;
  if (config().has_early_stopping()) kept.insert(Improve().best_step);
  if (config().has_keep_best()) {
    const proto::KeepBest& keep = config().keep_best();
    std::vector<std::pair<double, uint64_t>> ranked;
    for (const auto& [step, result] : results_) {
      const auto value = FigureOf(result, keep.metric());
      if (value.has_value()) ranked.emplace_back(*value, step);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](const auto& a, const auto& b) {
                       return IsBetter(keep.metric(), a.first, b.first);
                     });
    const size_t count = std::max(1u, keep.count());
    for (size_t i = 0; i < std::min(count, ranked.size()); ++i) {
      kept.insert(ranked[i].second);
    }
  }
  for (auto it = results_.begin();
       results_.size() > kMost && it != results_.end();) {
    it = kept.count(it->first) > 0 ? std::next(it) : results_.erase(it);
  }
}

void Evaluations::AddTo(proto::Journal* journal) const {
  journal->clear_evaluations();
  if (!decide()) return;
  for (const auto& [step, result] : results_) {
    *journal->add_evaluations() = result;
  }
}

// ---- Which checkpoint is evaluated next ----

std::optional<proto::CheckpointName> Evaluations::NextDue(
    const proto::Journal& journal, const Moment& moment) const {
  const auto& names = journal.checkpoints();
  if (names.empty()) return std::nullopt;
  const auto is_free = [this](const proto::CheckpointName& name) {
    return std::none_of(assigned_.begin(), assigned_.end(),
                        [&](const auto& assigned) {
                          return SameCheckpoint(assigned.second, name);
                        });
  };
  const proto::CheckpointName& newest = *names.rbegin();
  if (moment.done) {
    if (newest.step() > newest_by_evaluator_ && is_free(newest)) return newest;
    return std::nullopt;
  }
  if (fixed_every() > 0) {
    for (const proto::CheckpointName& name : names) {
      if (NeedsCheckpointOf(name.step()) && !Has(name.step()) &&
          is_free(name)) {
        return name;
      }
    }
    return std::nullopt;
  }
  if (newest.step() == 0 || Has(newest.step()) || !is_free(newest)) {
    return std::nullopt;
  }
  const auto seconds = [](double s) { return absl::Seconds(s); };
  if (moment.now - last_assigned_ < seconds(config().every_seconds())) {
    return std::nullopt;
  }
  if (config().start_delay_seconds() > 0 &&
      (!moment.training_begun.has_value() ||
       moment.now - *moment.training_begun <
           seconds(config().start_delay_seconds()))) {
    return std::nullopt;
  }
  if (const uint64_t every = config().every_steps(); every > 0) {
    uint64_t last = results_.empty() ? 0 : results_.rbegin()->first;
    for (const auto& [task, name] : assigned_) {
      last = std::max<uint64_t>(last, name.step());
    }
    if (newest.step() / every == last / every) return std::nullopt;
  }
  return newest;
}

void Evaluations::Assign(const TaskId& evaluator,
                         const proto::CheckpointName& name, absl::Time now) {
  assigned_[evaluator] = name;
  last_assigned_ = now;
}

bool Evaluations::Holds(const proto::CheckpointName& name) const {
  if (NeedsCheckpointOf(name.step()) && !Has(name.step())) return true;
  return std::any_of(assigned_.begin(), assigned_.end(),
                     [&](const auto& assigned) {
                       return SameCheckpoint(assigned.second, name);
                     });
}

// ---- The best ----

std::vector<proto::CheckpointName> Evaluations::Best(
    const proto::Journal& journal) const {
  if (!config().has_keep_best()) return {};
  const proto::KeepBest& keep = config().keep_best();
  // Keyed by step: a job's course has at most one checkpoint of each step.
  std::map<uint64_t, proto::CheckpointName> there;
  for (const auto* names : {&journal.best(), &journal.checkpoints()}) {
    for (const proto::CheckpointName& name : *names) {
      if (forsaken_.count({name.generation(), name.step()}) == 0) {
        there[name.step()] = name;
      }
    }
  }
  std::vector<std::pair<double, proto::CheckpointName>> ranked;
  for (const auto& [step, result] : results_) {
    const auto value = FigureOf(result, keep.metric());
    const auto found = there.find(step);
    if (value.has_value() && found != there.end()) {
      ranked.emplace_back(*value, found->second);
    }
  }
  // Of equal results, the one of the lower step comes first.
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const auto& a, const auto& b) {
                     return IsBetter(keep.metric(), a.first, b.first);
                   });
  std::vector<proto::CheckpointName> best;
  const size_t count = keep.has_count() ? keep.count() : 1;
  for (const auto& [value, name] : ranked) {
    if (best.size() == count) break;
    best.push_back(name);
  }
  return best;
}

void Evaluations::Forsake(const proto::CheckpointName& name) {
  forsaken_.insert({name.generation(), name.step()});
}

// ---- Early stopping ----

Evaluations::Improvement Evaluations::Improve() const {
  Improvement found;
  const proto::EarlyStopping& early = config().early_stopping();
  for (const auto& [step, result] : results_) {
    const std::optional<double> value = FigureOf(result, early.metric());
    if (!found.best.has_value()
            ? value.has_value()
            : value.has_value() && IsBetter(early.metric(), *value, *found.best,
                                            early.min_delta())) {
      found.best = value;
      found.best_step = step;
      found.without = 0;
      continue;
    }
    if (++found.without >= early.patience() && !found.stop_after.has_value()) {
      found.stop_after = step;
    }
  }
  return found;
}

std::optional<uint64_t> Evaluations::StopAfter() const {
  if (!config().has_early_stopping()) return std::nullopt;
  return Improve().stop_after;
}

std::optional<proto::EarlyStoppingStatus> Evaluations::status() const {
  if (!config().has_early_stopping()) return std::nullopt;
  const Improvement found = Improve();
  proto::EarlyStoppingStatus status;
  if (found.best.has_value()) status.set_best(*found.best);
  status.set_best_step(found.best_step);
  status.set_without_improvement(found.without);
  status.set_patience(config().early_stopping().patience());
  return status;
}

uint64_t Evaluations::fixed_every() const {
  return config().early_stopping().at_fixed_steps() ? config().every_steps()
                                                    : 0;
}

bool Evaluations::NeedsCheckpointOf(uint64_t step) const {
  const uint64_t every = fixed_every();
  return every > 0 && step > 0 && step % every == 0;
}

bool Evaluations::MayCommit(uint64_t step, const proto::Journal& journal,
                            std::optional<uint64_t>* missing) const {
  if (!NeedsCheckpointOf(step)) return true;
  const uint64_t before = step - fixed_every();
  // A step without a checkpoint is skipped, such as one from before the job had
  // evaluations. First values are not evaluated, though they may be saved.
  if (NeedsCheckpointOf(before) && !Has(before) &&
      FindCheckpoint(journal, before) != nullptr) {
    if (missing != nullptr) *missing = before;
    return false;
  }
  // The job ends here once this decision is on disk.
  const std::optional<uint64_t> last = StopAfter();
  if (last.has_value() && step >= *last + fixed_every()) return false;
  return FindCheckpoint(journal, step) != nullptr;
}

}  // namespace holdfast

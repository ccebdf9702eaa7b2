// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/worker_paces.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// Returns the lower median: of two workers, the time of the faster one, so that
// the other can be slow.
double MedianOf(std::vector<double>* values) {
  const auto middle = values->begin() + (values->size() - 1) / 2;
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

std::string Text(double seconds) {
  return seconds >= 1 ? absl::StrCat(std::round(seconds * 100) / 100, "s")
                      : absl::StrCat(std::round(seconds * 1e5) / 100, "ms");
}

}  // namespace

WorkerPaces::Worker& WorkerPaces::At(uint32_t replica) {
  if (replica >= workers_.size()) workers_.resize(replica + 1);
  return workers_[replica];
}

void WorkerPaces::OnJoined(uint32_t replica, absl::Time now) {
  Worker& worker = At(replica);
  const uint32_t times_last = worker.times_last;
  worker = Worker();
  worker.times_last = times_last;
  worker.done_at = now;
}

void WorkerPaces::Reset(absl::Time now) {
  for (Worker& worker : workers_) {
    worker.fresh = true;
    worker.slow = false;
    worker.above = 0;
    worker.calm = 0;
    worker.done_at = now;
    worker.step.reset();
  }
  first_open_.reset();
  last_offer_.reset();
  all_overdue_at_ = absl::InfinitePast();
}

void WorkerPaces::OnStepOpened(GlobalStep step, absl::Time now) {
  if (openings_.empty()) openings_.resize(kOpenings);
  if (!first_open_.has_value()) first_open_ = step;
  open_ = step;
  openings_[step.value() % kOpenings] = now;
}

absl::Time WorkerPaces::OpenedAt(GlobalStep step) const {
  const bool known = first_open_.has_value() && *first_open_ <= step &&
                     step <= open_ && open_.value() - step.value() < kOpenings;
  return known ? openings_[step.value() % kOpenings] : absl::InfinitePast();
}

void WorkerPaces::AddPush(absl::Duration time, Worker* worker) {
  if (worker->fresh) {
    worker->fresh = false;
    return;
  }
  worker->seconds[worker->next] =
      static_cast<float>(absl::ToDoubleSeconds(time));
  worker->next = (worker->next + 1) % kPushes;
  if (worker->num_pushes < kPushes) ++worker->num_pushes;
}

void WorkerPaces::OnOffer(uint32_t replica, GlobalStep step, bool counts,
                          absl::Time now) {
  Worker& worker = At(replica);
  AddPush(now - std::max({worker.done_at, OpenedAt(step), all_overdue_at_}),
          &worker);
  worker.done_at = now;
  worker.step = step;
  if (counts) last_offer_ = replica;
}

void WorkerPaces::OnStepClosed() {
  if (!last_offer_.has_value()) return;
  if (last_.size() < kSteps) {
    last_.push_back(*last_offer_);
  } else {
    --workers_[last_[next_last_]].times_last;
    last_[next_last_] = *last_offer_;
    next_last_ = (next_last_ + 1) % kSteps;
  }
  ++workers_[*last_offer_].times_last;
  last_offer_.reset();
}

void WorkerPaces::OnSpent(uint32_t replica, absl::Time granted,
                          absl::Time now) {
  Worker& worker = At(replica);
  AddPush(now - std::max({worker.done_at, granted, all_overdue_at_}), &worker);
  worker.done_at = now;
}

double WorkerPaces::Mean(const Worker& worker) {
  double sum = 0;
  for (size_t i = 0; i < worker.num_pushes; ++i) sum += worker.seconds[i];
  return worker.num_pushes == 0 ? 0 : sum / worker.num_pushes;
}

absl::Time WorkerPaces::OwesSince(const Worker& worker,
                                  const Sight& sight) const {
  absl::Time since = std::max(worker.done_at, sight.granted);
  // A push that counted was decided when its step was closed.
  if (worker.step.has_value()) {
    since = std::max(since, OpenedAt(worker.step->next()));
  } else if (first_open_.has_value()) {
    since = std::max(since, OpenedAt(*first_open_));
  }
  return std::max(since, all_overdue_at_);
}

std::vector<WorkerPaces::Change> WorkerPaces::Judge(
    const std::vector<Sight>& live, absl::Time now) {
  std::vector<double> means;
  for (const Sight& sight : live) {
    const Worker& worker = At(sight.replica);
    if (worker.num_pushes >= kLeastPushes) means.push_back(Mean(worker));
  }
  const bool compare = !means.empty();
  const double median = compare ? MedianOf(&means) : 0;
  const absl::Duration patience =
      std::max(kOverdue * absl::Seconds(median), kLeastOverdue);
  const auto is_overdue = [&](const Sight& sight) {
    return compare && sight.owes &&
           now - OwesSince(workers_[sight.replica], sight) > patience;
  };
  // A stalled shard, or a checkpoint, holds up all workers, until one of them
  // completes a push again.
  const auto is_held_up = [&](const Sight& sight) {
    return sight.owes && workers_[sight.replica].done_at < all_overdue_at_;
  };
  if (std::all_of(live.begin(), live.end(), is_overdue) ||
      std::all_of(live.begin(), live.end(), is_held_up)) {
    all_overdue_at_ = now;
  }

  std::vector<bool> judged(workers_.size());
  std::vector<Change> changes;
  for (const Sight& sight : live) {
    Worker& worker = workers_[sight.replica];
    judged[sight.replica] = true;
    const double mean = Mean(worker);
    const bool known = compare && worker.num_pushes >= kLeastPushes;
    const auto exceeds = [&](double factor) {
      return known && mean > factor * median &&
             mean - median > absl::ToDoubleSeconds(kLeastExcess);
    };
    worker.above = exceeds(kSlow) ? worker.above + 1 : 0;
    std::string why;
    if (worker.above >= (worker.slow ? 1 : kSure)) {
      why = absl::StrCat(Text(mean), " per push, where the median is ",
                         Text(median));
    } else if (is_overdue(sight)) {
      why = absl::StrCat(
          "no push for ",
          Text(absl::ToDoubleSeconds(now - OwesSince(worker, sight))),
          ", where the median is ", Text(median));
    } else if (sight.silent.has_value()) {
      why = absl::StrCat("silent for ",
                         Text(absl::ToDoubleSeconds(*sight.silent)));
    }
    if (!why.empty()) {
      worker.calm = 0;
      if (!worker.slow) changes.push_back({sight.replica, true, why});
      worker.slow = true;
      continue;
    }
    if (!worker.slow) continue;
    worker.calm = exceeds(kNotSlow) ? 0 : worker.calm + 1;
    if (worker.calm < kCalm) continue;
    worker.slow = false;
    changes.push_back(
        {sight.replica, false,
         known ? absl::StrCat(Text(mean), " per push, where the median is ",
                              Text(median))
               : ""});
  }
  for (size_t replica = 0; replica < workers_.size(); ++replica) {
    if (!judged[replica]) workers_[replica].slow = false;
  }
  return changes;
}

void WorkerPaces::AddTo(uint32_t replica, proto::WorkerPace* pace) const {
  if (replica >= workers_.size()) return;
  const Worker& worker = workers_[replica];
  pace->set_seconds_per_push(Mean(worker));
  if (!last_.empty()) {
    pace->set_last_share(static_cast<double>(worker.times_last) /
                         static_cast<double>(last_.size()));
  }
  pace->set_slow(worker.slow);
}

}  // namespace holdfast

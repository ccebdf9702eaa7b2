// SPDX-License-Identifier: Apache-2.0
#include "tests/exploration/explorer.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast::exploration {
namespace {

struct Deviation {
  uint64_t at;
  Choice choice;
};
using Deviations = std::vector<Deviation>;

std::string Describe(const Scenario& scenario, const Deviations& deviations) {
  Schedule run(scenario, Schedule::Tracing::kAll);
  auto next = deviations.begin();
  for (uint64_t step = 0; !run.over(); ++step) {
    const bool deviates = next != deviations.end() && next->at == step;
    run.Take(deviates ? (next++)->choice : Choice());
  }
  std::vector<std::string> texts;
  for (const Deviation& deviation : deviations) {
    texts.push_back(
        absl::StrCat(deviation.choice.ToString(), " at ", deviation.at));
  }
  return absl::StrCat(run.violation(),
                      "\nDeviations: ", absl::StrJoin(texts, "; "), "\n",
                      absl::StrJoin(run.trace(), "\n"));
}

}  // namespace

std::string Explored::ToString() const {
  return absl::StrCat(
      schedules, " schedules, of which ", merged, " reached a known state; ",
      states, " states with more than one continuation, ", ends, " ends, ",
      events, " events; ", length, " events without a deviation");
}

Explored Explore(const Scenario& scenario, const Budget& budget) {
  Explored explored;
  absl::flat_hash_map<uint64_t, std::vector<Budget>> known;
  absl::flat_hash_set<uint64_t> ends;
  const auto is_known = [&](uint64_t state, const Budget& left) {
    // With no budget left, the rest of the run is shorter than the list of its
    // states.
    if (!left.any()) {
      return known.contains(state);
    }
    std::vector<Budget>& budgets = known[state];
    for (const Budget& before : budgets) {
      if (before.Covers(left)) return true;
    }
    budgets.erase(
        std::remove_if(budgets.begin(), budgets.end(),
                       [&](const Budget& b) { return left.Covers(b); }),
        budgets.end());
    budgets.push_back(left);
    return false;
  };

  // Oldest first: the fewest deviations, which leave the largest budgets.
  std::deque<Deviations> to_run = {{}};
  while (!to_run.empty()) {
    const Deviations deviations = std::move(to_run.front());
    to_run.pop_front();
    ++explored.schedules;
    Schedule run(scenario);
    Budget left = budget;
    auto next = deviations.begin();
    bool merged = false;
    uint64_t step = 0;
    for (; !run.over(); ++step, ++explored.events) {
      if (next != deviations.end()) {
        const bool deviates = next->at == step;
        run.Take(deviates ? (next++)->choice : Choice(), &left);
        continue;
      }
      if (is_known(run.Fingerprint(left), left)) {
        merged = true;
        break;
      }
      for (const Choice& choice : run.Alternatives(left)) {
        to_run.push_back(deviations);
        to_run.back().push_back({step, choice});
      }
      run.Take(Choice());
    }
    if (!run.violation().empty()) {
      explored.failure = Describe(scenario, deviations);
      break;
    }
    if (deviations.empty()) explored.length = step;
    if (merged) {
      ++explored.merged;
    } else {
      ends.insert(run.EndFingerprint());
    }
  }
  explored.states = known.size();
  explored.ends = ends.size();
  return explored;
}

}  // namespace holdfast::exploration

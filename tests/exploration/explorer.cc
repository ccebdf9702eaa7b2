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
using Schedule = std::vector<Deviation>;

std::string Describe(const Job& job, const Schedule& schedule) {
  World world(job, /*trace=*/true);
  auto next = schedule.begin();
  for (uint64_t step = 0; !world.over(); ++step) {
    const bool deviates = next != schedule.end() && next->at == step;
    world.Take(deviates ? (next++)->choice : Choice());
  }
  std::vector<std::string> deviations;
  for (const Deviation& deviation : schedule) {
    deviations.push_back(
        absl::StrCat(deviation.choice.ToString(), " at ", deviation.at));
  }
  return absl::StrCat(world.violation(),
                      "\nDeviations: ", absl::StrJoin(deviations, "; "), "\n",
                      absl::StrJoin(world.trace(), "\n"));
}

}  // namespace

std::string Explored::ToString() const {
  return absl::StrCat(
      schedules, " schedules, of which ", merged, " came to what was known; ",
      states, " states with more than one way on, ", ends, " ends, ", events,
      " events; ", length, " events without a deviation");
}

Explored Explore(const Job& job, const Budget& budget) {
  Explored explored;
  absl::flat_hash_map<uint64_t, std::vector<Budget>> known;
  absl::flat_hash_set<uint64_t> ends;
  const auto is_known = [&](uint64_t state, const Budget& left) {
    // Where nothing is open the rest of the run is shorter than the list of its
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

  // The oldest first: the fewest deviations, which leave the most open.
  std::deque<Schedule> to_run = {{}};
  while (!to_run.empty()) {
    const Schedule schedule = std::move(to_run.front());
    to_run.pop_front();
    ++explored.schedules;
    World world(job);
    Budget left = budget;
    auto next = schedule.begin();
    bool merged = false;
    uint64_t step = 0;
    for (; !world.over(); ++step, ++explored.events) {
      if (next != schedule.end()) {
        const bool deviates = next->at == step;
        world.Take(deviates ? (next++)->choice : Choice(), &left);
        continue;
      }
      if (is_known(world.Fingerprint(left), left)) {
        merged = true;
        break;
      }
      for (const Choice& choice : world.Alternatives(left)) {
        to_run.push_back(schedule);
        to_run.back().push_back({step, choice});
      }
      world.Take(Choice());
    }
    if (!world.violation().empty()) {
      explored.failure = Describe(job, schedule);
      break;
    }
    if (schedule.empty()) explored.length = step;
    if (merged) {
      ++explored.merged;
    } else {
      ends.insert(world.EndFingerprint());
    }
  }
  explored.states = known.size();
  explored.ends = ends.size();
  return explored;
}

}  // namespace holdfast::exploration

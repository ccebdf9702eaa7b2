#ifndef HOLDFAST_TESTS_EXPLORATION_EXPLORER_H_
#define HOLDFAST_TESTS_EXPLORATION_EXPLORER_H_

#include <cstdint>
#include <string>

#include "tests/exploration/schedule.h"

namespace holdfast::exploration {

struct Explored {
  // Runs from the beginning; of them those that came to what was known.
  uint64_t schedules = 0;
  uint64_t merged = 0;
  uint64_t events = 0;
  // Those from which a deviation was open.
  uint64_t states = 0;
  // Outcomes: values, checkpoints, generations.
  uint64_t ends = 0;
  // Of a run without a deviation.
  uint64_t length = 0;
  // Of the first schedule that breaks a promise: which one, and how it came to
  // it. Empty: none does.
  std::string failure;

  std::string ToString() const;
};

// Goes through all schedules of `scenario` that deviate from the canonical
// order by no more than `budget`, at whatever places.
//
// The canonical order delivers messages by the length of the chain that led to
// them, which is that of a network in which each takes equally long; time
// passes, and what is dead is reborn, when nothing is in flight. A Schedule
// cannot be copied, so a schedule is its deviations, and is run from the
// beginning. A run ends early where it comes to a state (Schedule::Fingerprint)
// from which no less was open before.
Explored Explore(const Scenario& scenario, const Budget& budget);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_EXPLORER_H_

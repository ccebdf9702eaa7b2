// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_EXPLORATION_EXPLORER_H_
#define HOLDFAST_TESTS_EXPLORATION_EXPLORER_H_

#include <cstdint>
#include <string>

#include "tests/exploration/schedule.h"

namespace holdfast::exploration {

struct Explored {
  // Runs from the beginning, and how many of them were cut short at a known
  // state.
  uint64_t schedules = 0;
  uint64_t merged = 0;
  uint64_t events = 0;
  // States from which deviations were still possible.
  uint64_t states = 0;
  // Distinct outcomes: values, checkpoints, generations.
  uint64_t ends = 0;
  // The number of events of a run without deviations.
  uint64_t length = 0;
  // The first schedule that breaks a promise, and how it did; empty if none
  // does.
  std::string failure;

  std::string ToString() const;
};

// Runs all schedules of `scenario` that deviate from the canonical order within
// `budget`, wherever the deviations occur.
//
// The canonical order delivers messages by the length of the chain that led to
// them, as a network does in which every message takes equally long. Time
// passes, and dead processes are reborn, when nothing is in flight. A Schedule
// cannot be copied, so a schedule is represented by its deviations and is run
// from the beginning. A run ends early when it reaches a state
// (Schedule::Fingerprint) that an earlier run reached with at least the same
// budget left.
Explored Explore(const Scenario& scenario, const Budget& budget);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_EXPLORER_H_

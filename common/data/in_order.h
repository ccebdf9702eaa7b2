// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IN_ORDER_H_
#define HOLDFAST_COMMON_DATA_IN_ORDER_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace holdfast {

// Runs work in pieces, so that the result does not depend on the number of
// threads:
//
//   bool take(Work* piece)   fills the next piece; false if there is none
//   void make(Work* piece)   works on it
//   bool give(Work* piece)   adds it to the result; false if the rest is not
//                            wanted
//
// Calls of take are made one at a time, and so are calls of give, in the order
// of take; make runs in `threads` threads concurrently, including the caller's.
// Each thread uses one Work, so there are `threads` of them. Returns when all
// calls have returned.
template <typename Work, typename Take, typename Make, typename Give>
void RunInOrder(int threads, Take take, Make make, Give give) {
  absl::Mutex taking;
  bool ended = false;
  uint64_t taken = 0;
  absl::Mutex giving;
  bool unwanted = false;
  uint64_t given = 0;
  const auto run = [&] {
    Work piece;
    while (true) {
      uint64_t number = 0;
      {
        absl::MutexLock lock(&taking);
        if (!ended) ended = !take(&piece);
        if (ended) return;
        number = taken++;
      }
      make(&piece);
      bool stop = false;
      {
        const auto is_next = [&] { return given == number; };
        absl::MutexLock lock(&giving);
        giving.Await(absl::Condition(&is_next));
        if (!unwanted) unwanted = !give(&piece);
        stop = unwanted;
        ++given;
      }
      if (stop) {
        absl::MutexLock lock(&taking);
        ended = true;
      }
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IN_ORDER_H_

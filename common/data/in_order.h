#ifndef HOLDFAST_COMMON_DATA_IN_ORDER_H_
#define HOLDFAST_COMMON_DATA_IN_ORDER_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace holdfast {

// Work in pieces, whose result does not depend on the number of threads:
//
//   bool take(Work* piece)   fills the next piece; false: there is none
//   void make(Work* piece)   works on it
//   bool give(Work* piece)   adds it to the result; false: the rest is not
//                            wanted
//
// Calls of take are one at a time, and so are calls of give, which are in the
// order of take; make runs in `threads` threads at once, the caller's among
// them. A thread uses one Work, so there are `threads` of them. Returns when
// the last call has.
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

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_PUSH_ID_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_PUSH_ID_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/ids.h"
#include "common/job/task_id.h"

namespace holdfast {

// One life of a worker.
struct WorkerLife {
  TaskId worker;
  Incarnation incarnation;

  std::string ToString() const {
    return absl::StrCat(worker.ToString(), " (incarnation ",
                        incarnation.value(), ")");
  }
  // Returns a negative number, 0 or a positive number if this is below, equal
  // to or above `other`. Reads the job's name only once: the machines' maps
  // compare lives and pushes at each call, and their jobs are nearly always the
  // same.
  int Compare(const WorkerLife& other) const {
    if (const int job = worker.job.compare(other.worker.job); job != 0) {
      return job;
    }
    if (worker.index != other.worker.index) {
      return worker.index < other.worker.index ? -1 : 1;
    }
    if (incarnation != other.incarnation) {
      return incarnation < other.incarnation ? -1 : 1;
    }
    return 0;
  }
  friend bool operator<(const WorkerLife& a, const WorkerLife& b) {
    return a.Compare(b) < 0;
  }
  friend bool operator==(const WorkerLife& a, const WorkerLife& b) {
    return a.Compare(b) == 0;
  }
  template <typename H>
  friend H AbslHashValue(H state, const WorkerLife& life) {
    return H::combine(std::move(state), life.worker, life.incarnation);
  }
};

// One push, regardless of its contents and of how often it is sent.
struct PushId {
  WorkerLife from;
  PushSequence sequence;

  std::string ToString() const {
    return absl::StrCat("push ", sequence.value(), " of ", from.ToString());
  }
  friend bool operator<(const PushId& a, const PushId& b) {
    const int from = a.from.Compare(b.from);
    return from != 0 ? from < 0 : a.sequence < b.sequence;
  }
  friend bool operator==(const PushId& a, const PushId& b) {
    return a.sequence == b.sequence && a.from == b.from;
  }
  template <typename H>
  friend H AbslHashValue(H state, const PushId& push) {
    return H::combine(std::move(state), push.from, push.sequence);
  }
};

// The first and last pushes that a life can make.
inline PushId FirstOf(const WorkerLife& life) {
  return {life, PushSequence(0)};
}
inline PushId LastOf(const WorkerLife& life) {
  return {life, PushSequence(std::numeric_limits<uint64_t>::max())};
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_PUSH_ID_H_

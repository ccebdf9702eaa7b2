#ifndef HOLDFAST_PS_SERVER_SHARD_PUSH_ID_H_
#define HOLDFAST_PS_SERVER_SHARD_PUSH_ID_H_

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "common/task_id.h"

namespace holdfast {

// One life of a worker.
struct WorkerLife {
  TaskId worker;
  Incarnation incarnation;

  std::string ToString() const {
    return absl::StrCat(worker.ToString(), " (incarnation ",
                        incarnation.value(), ")");
  }
  friend bool operator<(const WorkerLife& a, const WorkerLife& b) {
    return std::tie(a.worker, a.incarnation) <
           std::tie(b.worker, b.incarnation);
  }
};

// One push, whatever it is made of and however often it is sent.
struct PushId {
  WorkerLife from;
  PushSequence sequence;

  std::string ToString() const {
    return absl::StrCat("push ", sequence.value(), " of ", from.ToString());
  }
  friend bool operator<(const PushId& a, const PushId& b) {
    return std::tie(a.from, a.sequence) < std::tie(b.from, b.sequence);
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_PUSH_ID_H_

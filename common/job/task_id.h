// SPDX-License-Identifier: Apache-2.0

// The name of a task in a cluster: a job and an index within the job.
#ifndef HOLDFAST_COMMON_JOB_TASK_ID_H_
#define HOLDFAST_COMMON_JOB_TASK_ID_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

// The jobs of a ClusterSpec.
inline constexpr char kPsJob[] = "ps";
inline constexpr char kWorkerJob[] = "worker";
inline constexpr char kChiefJob[] = "chief";
inline constexpr char kEvaluatorJob[] = "evaluator";

// A plain value.
struct TaskId {
  std::string job;
  uint32_t index = 0;

  // "/job:ps/task:0", as TensorFlow writes it.
  std::string ToString() const {
    return absl::StrCat("/job:", job, "/task:", index);
  }

  friend bool operator==(const TaskId& a, const TaskId& b) {
    return std::tie(a.job, a.index) == std::tie(b.job, b.index);
  }
  friend bool operator!=(const TaskId& a, const TaskId& b) { return !(a == b); }
  friend bool operator<(const TaskId& a, const TaskId& b) {
    return std::tie(a.job, a.index) < std::tie(b.job, b.index);
  }
  friend std::ostream& operator<<(std::ostream& out, const TaskId& task) {
    return out << task.ToString();
  }
  template <typename H>
  friend H AbslHashValue(H state, const TaskId& task) {
    return H::combine(std::move(state), task.job, task.index);
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_TASK_ID_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_JOB_HISTORY_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_JOB_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The course of a job, for users: one point per step, thinned evenly, and the
// results of evaluations.
//
// Steps are divided into ranges of `stride` steps, and the first point of each
// range is kept. When there are too many points, the stride doubles; the loss
// of a point that is removed is merged into the next one, weighted by examples.
// So which points are kept depends only on the steps.
//
// Thread-compatible. Most steps cost one comparison.
// Invariants: points are in order of increasing step, and there are at most
// kMostPoints; the same holds for evaluations.
class JobHistory {
 public:
  static constexpr size_t kMostPoints = 10000;

  // Continues from the history found on disk.
  void TakeUp(const proto::History& history);
  // Called when the job resumes from `step`. Forgets the points and evaluations
  // of later steps.
  void GoBack(uint64_t step);

  // Whether a point is due at `step`.
  bool WantsPoint(uint64_t step) const { return step >= next_; }
  // Adds a point, whose step must be after that of the last point.
  void AddPoint(proto::HistoryPoint point);
  // Adds the result of an evaluation, in place of an earlier result for the
  // same step. Returns false if that one was the same.
  bool AddEvaluation(const proto::EvaluationResult& result);

  // The step of the last point; 0 if there is none.
  uint64_t last_step() const {
    return points_.empty() ? 0 : points_.back().step();
  }
  // The evaluation of the greatest step; null if there is none.
  const proto::EvaluationResult* last_evaluation() const {
    return evaluations_.empty() ? nullptr : &evaluations_.back();
  }
  // The number of times that the history has changed.
  uint64_t changes() const { return changes_; }
  proto::GetHistoryResponse Answer(
      const proto::GetHistoryRequest& request) const;
  void AddTo(proto::History* history) const;

 private:
  // Returns the points with indices [begin, end) merged into one: the last of
  // them, with the mean loss of all.
  proto::HistoryPoint Merged(size_t begin, size_t end) const;
  void Thin();
  void SetNext();

  uint64_t stride_ = 1;
  // The first step at which a point is due.
  uint64_t next_ = 1;
  std::vector<proto::HistoryPoint> points_;
  std::vector<proto::EvaluationResult> evaluations_;
  uint64_t changes_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_HISTORY_H_

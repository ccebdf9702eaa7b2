#ifndef HOLDFAST_PS_SERVER_COORDINATOR_JOB_HISTORY_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_JOB_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// The course of a job, for people: a point per step, thinned evenly, and the
// results of evaluations.
//
// Steps are divided into ranges of `stride` steps, and the first point of
// each range is kept. When there are too many points the stride doubles; a
// point that goes leaves its loss to the next one, weighted by the examples. So
// what is kept follows from the steps alone.
//
// Thread-compatible. Most steps cost one comparison.
// Invariants: points rise by step, and are at most kMostPoints; evaluations
// likewise.
class JobHistory {
 public:
  static constexpr size_t kMostPoints = 10000;

  // Goes on where the file ends.
  void TakeUp(const proto::History& history);
  // The job goes on from `step`: what is known of later ones did not happen.
  void GoBack(uint64_t step);

  // Whether the job at `step` becomes a point.
  bool WantsPoint(uint64_t step) const { return step >= next_; }
  // The job at a step after that of the last point.
  void AddPoint(proto::HistoryPoint point);
  // Takes the place of an earlier result of the same step. False when that is
  // the same.
  bool AddEvaluation(const proto::EvaluationResult& result);

  // Of the last point; 0 where there is none.
  uint64_t last_step() const {
    return points_.empty() ? 0 : points_.back().step();
  }
  // That of the greatest step; null where there is none.
  const proto::EvaluationResult* last_evaluation() const {
    return evaluations_.empty() ? nullptr : &evaluations_.back();
  }
  // How often it has changed.
  uint64_t changes() const { return changes_; }
  proto::GetHistoryResponse Answer(
      const proto::GetHistoryRequest& request) const;
  void AddTo(proto::History* history) const;

 private:
  // Points [begin, end) as one: the last of them, with the mean loss of all.
  proto::HistoryPoint Merged(size_t begin, size_t end) const;
  void Thin();
  void SetNext();

  uint64_t stride_ = 1;
  // The first step that becomes a point.
  uint64_t next_ = 1;
  std::vector<proto::HistoryPoint> points_;
  std::vector<proto::EvaluationResult> evaluations_;
  uint64_t changes_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_HISTORY_H_

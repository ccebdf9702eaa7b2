// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/job_history.h"

#include <algorithm>
#include <utility>

namespace holdfast {
namespace {

template <typename Entries>
auto FirstAfter(Entries& entries, uint64_t step) {
  return std::upper_bound(
      entries.begin(), entries.end(), step,
      [](uint64_t s, const auto& entry) { return s < entry.step(); });
}

// Removes every second entry, and keeps the newest.
template <typename Entry>
void Halve(std::vector<Entry>* entries) {
  std::vector<Entry> kept;
  for (size_t i = (entries->size() + 1) % 2; i < entries->size(); i += 2) {
    kept.push_back(std::move((*entries)[i]));
  }
  *entries = std::move(kept);
}

}  // namespace

void JobHistory::TakeUp(const proto::History& history) {
  stride_ = std::max<uint64_t>(history.stride(), 1);
  points_.clear();
  for (const proto::HistoryPoint& point : history.points()) {
    if (point.step() > last_step()) points_.push_back(point);
  }
  while (points_.size() >= kMostPoints) Thin();
  evaluations_.clear();
  for (const proto::EvaluationResult& result : history.evaluations()) {
    AddEvaluation(result);
  }
  SetNext();
  changes_ = 0;
}

void JobHistory::GoBack(uint64_t step) {
  ++changes_;
  points_.erase(FirstAfter(points_, step), points_.end());
  evaluations_.erase(FirstAfter(evaluations_, step), evaluations_.end());
  SetNext();
}

void JobHistory::SetNext() { next_ = (last_step() / stride_ + 1) * stride_; }

void JobHistory::AddPoint(proto::HistoryPoint point) {
  ++changes_;
  if (points_.empty()) points_.reserve(kMostPoints);
  points_.push_back(std::move(point));
  // Done now rather than with the next point, so that the newest point is also
  // the first of its range with the doubled stride.
  if (points_.size() >= kMostPoints) Thin();
  SetNext();
}

bool JobHistory::AddEvaluation(const proto::EvaluationResult& result) {
  const auto after = FirstAfter(evaluations_, result.step());
  if (after != evaluations_.begin() && (after - 1)->step() == result.step()) {
    // Compared as bytes, in which NaN equals itself.
    if ((after - 1)->SerializeAsString() == result.SerializeAsString()) {
      return false;
    }
    *(after - 1) = result;
  } else {
    evaluations_.insert(after, result);
    if (evaluations_.size() > kMostPoints) Halve(&evaluations_);
  }
  ++changes_;
  return true;
}

void JobHistory::Thin() {
  stride_ *= 2;
  std::vector<proto::HistoryPoint> kept;
  size_t begin = 0;
  uint64_t last = 0;
  for (size_t i = 0; i < points_.size(); ++i) {
    const uint64_t range = points_[i].step() / stride_;
    if (range == last) continue;
    kept.push_back(Merged(begin, i + 1));
    begin = i + 1;
    last = range;
  }
  // The points left over at the end are merged into one, so that nothing is
  // lost.
  if (begin < points_.size()) kept.push_back(Merged(begin, points_.size()));
  points_ = std::move(kept);
}

proto::HistoryPoint JobHistory::Merged(size_t begin, size_t end) const {
  proto::HistoryPoint merged = points_[end - 1];
  if (end - begin == 1) return merged;
  merged.clear_loss();
  double examples = 0;
  double loss_sum = 0;
  for (size_t i = begin; i < end; ++i) {
    if (!points_[i].has_loss()) continue;
    const uint64_t before = i == 0 ? 0 : points_[i - 1].examples();
    const double since =
        static_cast<double>(std::max(points_[i].examples(), before) - before);
    examples += since;
    loss_sum += since * points_[i].loss();
  }
  if (examples > 0) merged.set_loss(loss_sum / examples);
  return merged;
}

proto::GetHistoryResponse JobHistory::Answer(
    const proto::GetHistoryRequest& request) const {
  proto::GetHistoryResponse response;
  const size_t first =
      FirstAfter(points_, request.after_step()) - points_.begin();
  const size_t count = points_.size() - first;
  const size_t most = request.max_points() == 0 ? count : request.max_points();
  if (count > 0) {
    // All groups but the first have the same size, so that the newest point is
    // the last of its group.
    const size_t size = (count + most - 1) / most;
    size_t begin = first;
    for (size_t end = first + (count - 1) % size + 1; end <= points_.size();
         end += size) {
      *response.add_points() = Merged(begin, end);
      begin = end;
    }
  }
  const uint64_t evaluated = request.has_evaluations_after_step()
                                 ? request.evaluations_after_step()
                                 : request.after_step();
  response.mutable_evaluations()->Assign(FirstAfter(evaluations_, evaluated),
                                         evaluations_.end());
  return response;
}

void JobHistory::AddTo(proto::History* history) const {
  history->set_stride(stride_);
  history->mutable_points()->Assign(points_.begin(), points_.end());
  history->mutable_evaluations()->Assign(evaluations_.begin(),
                                         evaluations_.end());
}

}  // namespace holdfast

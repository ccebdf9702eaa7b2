// SPDX-License-Identifier: Apache-2.0
#include "ps_server/tensorboard/scalar_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/evaluation_figures.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// The version with which TensorFlow's own files have begun since 2012. It makes
// readers heed START.
constexpr char kFileVersion[] = "brain.Event:2";

void AddValue(const std::string& tag, double value,
              proto::tensorboard::Summary* summary) {
  proto::tensorboard::Summary::Value& added = *summary->add_value();
  added.set_tag(tag);
  added.set_simple_value(static_cast<float>(value));
}

// The factor of the step after `step`.
float FactorAt(uint64_t step, const proto::GetHistoryResponse& history) {
  float factor = 1;
  for (const proto::LearningRateChange& change :
       history.learning_rate_changes()) {
    if (change.step() <= step) factor = change.factor();
  }
  return factor;
}

proto::tensorboard::Event EventOf(const proto::HistoryPoint& point,
                                  const proto::GetHistoryResponse& history) {
  proto::tensorboard::Event event;
  event.set_wall_time(point.time());
  event.set_step(static_cast<int64_t>(point.step()));
  if (point.has_loss()) AddValue("loss", point.loss(), event.mutable_summary());
  AddValue("steps_per_second", point.steps_per_second(),
           event.mutable_summary());
  AddValue("examples_per_second", point.examples_per_second(),
           event.mutable_summary());
  if (!history.learning_rate_changes().empty()) {
    AddValue("learning_rate_factor", FactorAt(point.step(), history),
             event.mutable_summary());
  }
  return event;
}

proto::tensorboard::Event EventOf(const proto::EvaluationResult& result,
                                  double time) {
  proto::tensorboard::Event event;
  event.set_wall_time(time);
  event.set_step(static_cast<int64_t>(result.step()));
  AddValue("evaluation/loss", result.loss(), event.mutable_summary());
  for (const EvaluationFigure& figure : FiguresOf(result)) {
    AddValue(absl::StrCat("evaluation/", figure.name), figure.value,
             event.mutable_summary());
  }
  return event;
}

}  // namespace

ScalarLog::ScalarLog(FileSystem* files, std::string folder, std::string process,
                     std::function<absl::Time()> date)
    : files_(files),
      folder_(std::move(folder)),
      process_(std::move(process)),
      date_(std::move(date)) {}

void ScalarLog::Begin(uint64_t step) {
  file_.reset();
  step_ = step;
  Write({});
}

void ScalarLog::Add(const proto::GetHistoryResponse& news) {
  std::vector<proto::tensorboard::Event> events;
  const double now = absl::ToDoubleSeconds(date_() - absl::UnixEpoch());
  uint64_t last = step_;
  for (const proto::HistoryPoint& point : news.points()) {
    events.push_back(EventOf(point, news));
    last = std::max(last, point.step());
  }
  for (const proto::EvaluationResult& result : news.evaluations()) {
    events.push_back(EventOf(result, now));
    last = std::max(last, result.step());
  }
  if (events.empty()) return;
  Write(events);
  step_ = last;
}

void ScalarLog::Write(const std::vector<proto::tensorboard::Event>& events) {
  const absl::Status status = TryToWrite(events);
  if (status.ok()) {
    if (failing_) LOG(INFO) << "files for TensorBoard can be written again";
    failing_ = false;
    return;
  }
  file_.reset();
  if (!failing_) {
    LOG(WARNING) << "failed to write files for TensorBoard, which will lack "
                    "everything until that works again: "
                 << status.message();
  }
  failing_ = true;
}

absl::Status ScalarLog::TryToWrite(
    const std::vector<proto::tensorboard::Event>& events) {
  if (file_ == nullptr) {
    const absl::Time date = date_();
    HOLDFAST_ASSIGN_OR_RETURN(
        auto made, EventFile::Create(files_, folder_, date, process_));
    proto::tensorboard::Event version, start;
    version.set_wall_time(absl::ToDoubleSeconds(date - absl::UnixEpoch()));
    version.set_file_version(kFileVersion);
    start.set_wall_time(version.wall_time());
    start.set_step(static_cast<int64_t>(step_ + 1));
    start.mutable_session_log()->set_status(
        proto::tensorboard::SessionLog::START);
    absl::Status status = made->Append({version, start});
    if (!status.ok()) return status;
    file_ = std::move(made);
  }
  return file_->Append(events);
}

}  // namespace holdfast

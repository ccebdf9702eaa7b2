// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/chronicle.h"

#include <utility>

#include "common/base/printable_text.h"
#include "ps_server/coordinator/job_declaration.h"

namespace holdfast {
namespace {

// The maximum size, in bytes, of an event's text, which may contain text from a
// disk or another process.
constexpr size_t kMostTextBytes = 4000;

}  // namespace

Chronicle::Chronicle(std::function<absl::Time()> date, const Clock* clock,
                     Archive* archive, Outbox* outbox,
                     const JournalWriter* journal, Progress* progress,
                     std::function<Moment()> now)
    : date_(std::move(date)),
      clock_(clock),
      journal_(*journal),
      progress_(*progress),
      now_(std::move(now)),
      writer_(
          clock, archive, outbox,
          [this] { return events_.last_number() + history_.changes(); },
          [this] { return Make(); }) {}

void Chronicle::TakeUp(const proto::History& history) {
  events_.TakeUp(history);
  history_.TakeUp(history);
}

void Chronicle::Tell(proto::Event::Kind kind, const std::string& text,
                     const std::optional<TaskId>& about) {
  const Moment now = now_();
  proto::Event event;
  event.set_time(Date());
  event.set_kind(kind);
  if (about.has_value()) {
    event.mutable_task()->set_job(about->job);
    event.mutable_task()->set_index(about->index);
  }
  event.set_generation(now.generation.value());
  event.set_step(now.step);
  event.set_text(Shorten(PrintableText(text), kMostTextBytes));
  events_.Add(std::move(event));
}

void Chronicle::OnTraining() { rates_.Begin(clock_->Now(), Reached()); }

void Chronicle::OnProgress() {
  if (history_.WantsPoint(progress_.committed().value())) AddPoint();
}

void Chronicle::AddPoint() {
  proto::HistoryPoint point;
  point.set_step(progress_.committed().value());
  point.set_time(Date());
  if (const auto loss = progress_.TakeLoss()) point.set_loss(*loss);
  point.set_examples(progress_.examples());
  const RecentRates::Rates recent = rates();
  point.set_steps_per_second(recent.steps_per_second);
  point.set_examples_per_second(recent.examples_per_second);
  history_.AddPoint(std::move(point));
}

bool Chronicle::OnEvaluation(const proto::EvaluationResult& result) {
  return history_.AddEvaluation(result);
}

void Chronicle::Close() {
  if (progress_.committed().value() > history_.last_step()) AddPoint();
  rates_.End(clock_->Now(), Reached());
}

void Chronicle::Write() {
  // A directory without a generation does not belong to any job yet.
  if (journal_.journal().generation() > 0) writer_.Write();
}

void Chronicle::Look() {
  rates_.Look(clock_->Now(), Reached());
  if (journal_.journal().generation() > 0) writer_.Tick();
}

RecentRates::Rates Chronicle::rates() const {
  return rates_.At(clock_->Now(), Reached());
}

double Chronicle::Date() const {
  return date_ == nullptr ? 0
                          : absl::ToDoubleSeconds(date_() - absl::UnixEpoch());
}

RecentRates::Position Chronicle::Reached() const {
  return {now_().step, progress_.examples()};
}

proto::History Chronicle::Make() const {
  proto::History made;
  made.set_directory_nonce(journal_.journal().directory_nonce());
  history_.AddTo(&made);
  events_.AddTo(&made);
  return made;
}

}  // namespace holdfast

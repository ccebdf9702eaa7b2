// SPDX-License-Identifier: Apache-2.0
#include "client/context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/job_phase.h"

namespace holdfast::client {

Context::Context(Options options, Transport* transport)
    : timing(options.timing),
      ps_names(std::move(options.ps_names)),
      on_waiting(std::move(options.on_waiting)),
      on_unexplained(std::move(options.on_unexplained)),
      on_refused(std::move(options.on_refused)),
      transport(*transport),
      mutex(transport->mutex()) {
  sender_.mutable_task()->set_job(options.task.job);
  sender_.mutable_task()->set_index(options.task.index);
}

void Context::Hear(const SessionNews& news) {
  absl::MutexLock lock(&mutex);
  // Set before NoteState, because a silent coordinator does not mean that the
  // job has failed.
  if (ended_.ok()) ended_ = news.status;
  durable_step_ = IsRolledBack(news.sender)
                      ? news.durable_step
                      : std::max(durable_step_, news.durable_step);
  sender_ = news.sender;
  NoteState(news.state);
}

void Context::End(const absl::Status& why) {
  absl::MutexLock lock(&mutex);
  if (ended_.ok()) ended_ = why;
}

void Context::Note(uint64_t generation, const proto::JobState* state,
                   std::optional<uint64_t> durable_step) {
  const bool has_session = sender_.incarnation() > 0;
  if (!has_session && generation > sender_.generation()) {
    sender_.set_generation(generation);
    durable_step_ = 0;
  }
  if (generation == sender_.generation() && durable_step.has_value()) {
    durable_step_ = std::max(durable_step_, *durable_step);
  }
  if (state != nullptr) NoteState(*state);
}

void Context::NoteState(const proto::JobState& state) {
  const bool is_news =
      IsEnd(state_.phase())
          ? IsEnd(state.phase()) && state.phase() > state_.phase()
          : state.phase() != proto::JOB_PHASE_UNSPECIFIED;
  if (is_news) state_ = state;
  const bool ended_early = IsEnd(state.phase()) && state.phase() != proto::DONE;
  if (ended_early && ended_.ok()) ended_ = absl::AbortedError(state.reason());
}

bool Context::IsRolledBack(const proto::Sender& sender) const {
  return sender.generation() != sender_.generation() ||
         sender.incarnation() != sender_.incarnation();
}

bool Context::IsOver(const proto::Sender* sender) const {
  return !ended_.ok() || (sender != nullptr && IsRolledBack(*sender));
}

absl::Status Context::WhyOver(const proto::Sender* sender) const {
  if (!ended_.ok() || !IsOver(sender)) return ended_;
  return absl::AbortedError(
      absl::StrCat("the job went back to an earlier state (generation ",
                   sender_.generation(), " begins)"));
}

}  // namespace holdfast::client

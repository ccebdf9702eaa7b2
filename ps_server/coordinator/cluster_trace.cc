// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/cluster_trace.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/join_some.h"
#include "common/trace/trace_parts.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

using proto::TraceResponse;

const TaskId kOwn = {kPsJob, 0};

}  // namespace

// ---- Operators ----

absl::StatusOr<TraceResponse> ClusterTrace::Answer(
    const proto::TraceRequest& request) {
  if (request.action() == proto::TraceRequest::BEGIN) return Begin(request);
  const bool any =
      request.action() == proto::TraceRequest::LOOK && request.trace() == 0;
  if (any) return Describe();
  if (!held() || request.trace() != trace_) return NotHere(request.trace());
  asked_ = job_.clock->Now();
  switch (request.action()) {
    case proto::TraceRequest::FINISH:
      if (state_ == TraceResponse::ARMING ||
          state_ == TraceResponse::RECORDING) {
        Close("the operator stopped waiting for it");
      }
      return Describe();
    case proto::TraceRequest::FETCH:
      return Fetch(request);
    case proto::TraceRequest::DROP:
      Drop();
      return TraceResponse();
    default:
      return Describe();
  }
}

absl::Status ClusterTrace::NotHere(uint64_t trace) const {
  return absl::NotFoundError(absl::StrCat(
      "trace ", trace,
      " does not exist: it was dropped because it had not been "
      "asked for within ",
      absl::FormatDuration(kAbandoned), ", or /job:ps/task:0 has restarted"));
}

absl::StatusOr<TraceResponse> ClusterTrace::Begin(
    const proto::TraceRequest& request) {
  if (request.trace() == 0 || request.steps() == 0) {
    return absl::InvalidArgumentError(
        "to begin a trace, give a number and steps, both at least 1");
  }
  const absl::Time now = job_.clock->Now();
  if (held() && request.trace() != trace_) {
    return absl::AlreadyExistsError(absl::StrCat(
        "another trace, of ", steps_, " steps, is ",
        state_ == TraceResponse::COMPLETE ? "being fetched" : "being recorded",
        "; there can be only one at a time: try again when it is over"));
  }
  asked_ = now;
  if (held()) return Describe();  // asked again
  if (job_.ended()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job has ended (", proto::JobPhase_Name(job_.state.phase()),
        "): there are no steps to trace"));
  }
  trace_ = request.trace();
  steps_ = request.steps();
  state_ = TraceResponse::ARMING;
  changed_ = true;
  // Tasks with a parked renewal learn of the order at once, all others within a
  // third of a lease.
  deadline_ = now + job_.options.lease / 2;
  begin_time_ = end_time_ = now;
  own_dropped_until_ = absl::InfinitePast();
  return Describe();
}

TraceResponse ClusterTrace::Describe() const {
  TraceResponse response;
  response.set_state(state_);
  if (!held()) return response;
  response.set_trace(trace_);
  response.set_first_step(first_);
  response.set_end_step(end_);
  response.set_asynchronous(job_.declared.asynchronous());
  response.set_global_step(job_.progress.committed().value());
  response.set_waiting_for(WaitingFor());
  response.set_cut_short(cut_short_);
  response.set_begin_ns(ToTraceNanos(begin_time_));
  response.set_end_ns(ToTraceNanos(end_time_));
  for (const auto& [task, part] : parts_) {
    proto::TraceTask& told = *response.add_tasks();
    told.mutable_task()->set_job(task.job);
    told.mutable_task()->set_index(task.index);
    told.set_incarnation(part.incarnation.value());
    told.set_process(part.process);
    told.set_missing(Missing(task, part));
    told.set_pieces(part.pieces.size());
    told.set_spans(part.spans);
    told.set_clock_offset_ns(part.first.clock_offset_ns());
    told.set_clock_error_ns(part.first.clock_error_ns());
    if (part.first.has_complete_from_ns()) {
      told.set_complete_from_ns(part.first.complete_from_ns());
    }
    *told.mutable_tracks() = part.first.tracks();
  }
  if (state_ != TraceResponse::COMPLETE) return response;
  // Tasks that are members and have never reported anything for the trace.
  for (const auto& [task, session] : job_.members.sessions()) {
    if (parts_.count(task) > 0) continue;
    proto::TraceTask& told = *response.add_tasks();
    told.mutable_task()->set_job(task.job);
    told.mutable_task()->set_index(task.index);
    told.set_incarnation(session.incarnation.value());
    told.set_process(session.process);
    told.set_missing(session.live()   ? "it did not answer in time"
                     : session.left() ? "it had left"
                                      : "it was lost");
  }
  return response;
}

absl::StatusOr<TraceResponse> ClusterTrace::Fetch(
    const proto::TraceRequest& request) const {
  const TaskId task = ToTaskId(request.task());
  const auto part = parts_.find(task);
  if (part == parts_.end() || request.piece() >= part->second.pieces.size()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no piece ", request.piece(), " of ", task.ToString()));
  }
  proto::TracePart piece;
  if (!piece.ParseFromString(part->second.pieces[request.piece()])) {
    return absl::InternalError("a piece of the trace cannot be read");
  }
  TraceResponse response;
  response.set_state(state_);
  response.set_trace(trace_);
  response.mutable_spans()->Swap(piece.mutable_spans());
  return response;
}

std::string ClusterTrace::WaitingFor() const {
  std::vector<std::string> names;
  switch (state_) {
    case TraceResponse::ARMING:
      if (armed_) {
        return job_.training() ? "the next step to begin" : "training to begin";
      }
      for (const auto& [task, session] : job_.members.sessions()) {
        const auto found = parts_.find(task);
        if (session.live() &&
            (found == parts_.end() || !found->second.recording)) {
          names.push_back(job_.members.Describe(task));
        }
      }
      return absl::StrCat("tasks to record: ", JoinSome(names));
    case TraceResponse::RECORDING:
      return absl::StrCat("step ", end_ - 1, " to be committed");
    case TraceResponse::COLLECTING:
      for (const auto& [task, part] : parts_) {
        if (part.recording && !part.sent) {
          names.push_back(task == kOwn ? task.ToString()
                                       : job_.members.Describe(task));
        }
      }
      return absl::StrCat("the spans of ", JoinSome(names));
    default:
      return "";
  }
}

std::string ClusterTrace::Missing(const TaskId& task, const Part& part) const {
  if (state_ != TraceResponse::COMPLETE) return "";
  if (part.cut) {
    return absl::StrCat(
        "its last spans: those of all tasks together take more than ",
        kMaxBytes >> 20, " MiB");
  }
  if (part.sent && part.again) {
    return "it was started again meanwhile, and what it had recorded before is "
           "lost";
  }
  if (part.sent) return "";
  if (part.unable) return "its program cannot record cluster traces";
  if (IsLive(task, part)) return "it did not send its spans in time";
  const Member* session = job_.members.Find(task);
  if (session == nullptr || session->incarnation != part.incarnation) {
    return "it ended before it had sent its spans, and was started again";
  }
  return session->left() ? "it left before it had sent its spans"
                         : "it was lost before it had sent its spans";
}

// ---- Tasks ----

ClusterTrace::Part& ClusterTrace::PartOf(const TaskId& task,
                                         Incarnation incarnation) {
  Part& part = parts_[task];
  if (part.incarnation == incarnation) return part;
  for (const std::string& piece : part.pieces) bytes_ -= piece.size();
  const bool again = part.recording || part.again;
  part = Part();
  part.again = again;
  part.incarnation = incarnation;
  if (const Member* session = job_.members.Find(task)) {
    part.process = session->process;
  }
  return part;
}

bool ClusterTrace::Hear(const proto::RenewLeaseRequest& request) {
  const bool recorded =
      state_ == TraceResponse::ARMING || state_ == TraceResponse::RECORDING;
  if (recorded) {
    const WorkerLife life = ToWorkerLife(request.sender());
    if (!request.has_recording()) {
      PartOf(life.worker, life.incarnation).unable = true;
    } else if (request.recording() == trace_) {
      PartOf(life.worker, life.incarnation).recording = true;
    }
  }
  return !request.has_recording() ||
         request.recording() == (recorded ? trace_ : 0);
}

std::optional<proto::TraceOrder> ClusterTrace::order() const {
  if (!held() || state_ == TraceResponse::COMPLETE) return std::nullopt;
  proto::TraceOrder order;
  order.set_trace(trace_);
  if (state_ == TraceResponse::COLLECTING) {
    order.set_over(true);
    order.set_begin_ns(ToTraceNanos(begin_time_));
    order.set_end_ns(ToTraceNanos(end_time_));
  }
  return order;
}

absl::Status ClusterTrace::Add(const proto::ReportTraceRequest& request) {
  const bool collected =
      state_ == TraceResponse::COLLECTING || state_ == TraceResponse::COMPLETE;
  if (!collected || request.trace() != trace_) return NotHere(request.trace());
  const WorkerLife life = ToWorkerLife(request.sender());
  Part& part = PartOf(life.worker, life.incarnation);
  const proto::TracePart& piece = request.part();
  if (piece.piece() < part.pieces.size()) return absl::OkStatus();  // again
  if (piece.piece() > part.pieces.size() || part.sent) {
    return absl::InvalidArgumentError(absl::StrCat(
        "piece ", piece.piece(), ": expected piece ", part.pieces.size()));
  }
  const int tracks =
      piece.piece() == 0 ? piece.tracks_size() : part.first.tracks_size();
  for (const proto::TraceSpan& span : piece.spans()) {
    if (static_cast<int>(span.track()) < tracks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a span is on track ", span.track(), " of ", tracks));
  }
  return Keep(piece, &part);
}

absl::Status ClusterTrace::Keep(const proto::TracePart& piece, Part* part) {
  std::string bytes = piece.SerializeAsString();
  if (bytes_ + bytes.size() > kMaxBytes) {
    part->cut = true;
    part->sent = true;
    return absl::ResourceExhaustedError(
        absl::StrCat("the spans of all tasks together take more than ",
                     kMaxBytes, " bytes"));
  }
  if (piece.piece() == 0) {
    part->first = piece;
    part->first.clear_spans();
  }
  bytes_ += bytes.size();
  part->spans += piece.spans_size();
  part->pieces.push_back(std::move(bytes));
  part->sent = piece.last();
  return absl::OkStatus();
}

void ClusterTrace::AddOwn(std::vector<TraceTrack> tracks,
                          std::optional<absl::Time> complete_from) {
  if (state_ != TraceResponse::COLLECTING) return;
  Part& part = PartOf(kOwn, Incarnation(0));
  if (part.sent) return;
  std::vector<TraceTrack> all(kNumOwnRows);
  all[kCollecting].name = "coordinator: collecting";
  all[kVerdict].name = "coordinator: verdict";
  all[kCommit].name = "coordinator: commit";
  all[kTickets].name = "coordinator: tickets";
  all[kTickets].kind = TraceTrack::Kind::kOverlapping;
  for (OwnSpan& own : own_) {
    if (own.span.end < begin_time_ || own.span.begin > end_time_) continue;
    all[own.row].spans.push_back(std::move(own.span));
  }
  own_.clear();
  if (own_dropped_until_ > begin_time_) {
    complete_from = std::max(complete_from.value_or(absl::InfinitePast()),
                             own_dropped_until_);
  }
  all.insert(all.end(), std::make_move_iterator(tracks.begin()),
             std::make_move_iterator(tracks.end()));
  part.process = job_.options.process;
  part.recording = true;
  for (const proto::TracePart& piece :
       ToTraceParts(all, ClockReading(), complete_from)) {
    if (!Keep(piece, &part).ok()) return;
  }
}

// ---- The job ----

void ClusterTrace::AddOwnSpan(OwnRow row, TraceSpan span) {
  if (static_cast<int64_t>(own_.size()) == kMaxClusterTraceSpans) {
    own_dropped_until_ = std::max(own_dropped_until_, own_.front().span.end);
    own_.pop_front();
  }
  own_.push_back({row, std::move(span)});
}

void ClusterTrace::OnStepOpened(GlobalStep step, absl::Time now) {
  if (state_ == TraceResponse::ARMING && armed_ &&
      step.value() < job_.declared->total_steps()) {
    Start(step.value(), now);
  }
}

void ClusterTrace::OnStepClosed(GlobalStep step, absl::Time opened,
                                absl::Time complete, absl::Time now) {
  if (!held()) return;
  const auto number = static_cast<int64_t>(step.value());
  const std::string name = absl::StrCat("step ", number);
  AddOwnSpan(
      kCollecting,
      {TraceKind::kStep, name, opened, complete, {{"step", number}}, ""});
  AddOwnSpan(kVerdict,
             {TraceKind::kStep, name, complete, now, {{"step", number}}, ""});
}

void ClusterTrace::OnStepCommitted(GlobalStep step, absl::Time closed,
                                   absl::Time now) {
  if (!held()) return;
  const auto number = static_cast<int64_t>(step.value());
  AddOwnSpan(kCommit, {TraceKind::kStep,
                       absl::StrCat("step ", number),
                       closed,
                       now,
                       {{"step", number}},
                       ""});
}

void ClusterTrace::OnTicketSpent(uint64_t ticket, const WorkerLife& worker,
                                 absl::Time granted, absl::Time now) {
  if (!held()) return;
  const auto number = static_cast<int64_t>(ticket);
  AddOwnSpan(kTickets,
             {TraceKind::kStep,
              absl::StrCat("ticket ", number),
              granted,
              now,
              {{"ticket", number},
               {"replica",
                static_cast<int64_t>(job_.members.ReplicaOf(worker.worker))}},
              ""});
}

void ClusterTrace::OnGenerationOver() {
  if (state_ != TraceResponse::RECORDING) return;
  Close(absl::StrCat("the job goes back to its last checkpoint: generation ",
                     job_.generation.value(), " is over"));
}

bool ClusterTrace::Advance() {
  if (!held()) return std::exchange(changed_, false);
  const absl::Time now = job_.clock->Now();
  if (now - asked_ > kAbandoned) {
    Drop();
    return std::exchange(changed_, false);
  }
  const bool recorded =
      state_ == TraceResponse::ARMING || state_ == TraceResponse::RECORDING;
  if (state_ == TraceResponse::ARMING && !armed_) {
    armed_ = AllRecord() || now >= deadline_;
  }
  if (state_ == TraceResponse::ARMING && armed_ && job_.training() &&
      job_.declared.asynchronous() && !job_.AllMade()) {
    Start(job_.progress.committed().value(), now);
  }
  if (state_ == TraceResponse::RECORDING &&
      job_.progress.committed().value() >= end_) {
    Close("");
  } else if (recorded && job_.ended()) {
    Close(absl::StrCat("the job has ended (",
                       proto::JobPhase_Name(job_.state.phase()), ")"));
  }
  if (state_ == TraceResponse::COLLECTING && (AllSent() || now >= deadline_)) {
    state_ = TraceResponse::COMPLETE;
  }
  return std::exchange(changed_, false);
}

bool ClusterTrace::AllRecord() const {
  if (own_recording_ != trace_) return false;
  for (const auto& [task, session] : job_.members.sessions()) {
    if (!session.live()) continue;
    const auto found = parts_.find(task);
    if (found == parts_.end() ||
        found->second.incarnation != session.incarnation ||
        !(found->second.recording || found->second.unable)) {
      return false;
    }
  }
  return true;
}

bool ClusterTrace::IsLive(const TaskId& task, const Part& part) const {
  if (task == kOwn) return true;
  const Member* session = job_.members.Find(task);
  return session != nullptr && session->live() &&
         session->incarnation == part.incarnation;
}

bool ClusterTrace::AllSent() const {
  return std::all_of(parts_.begin(), parts_.end(), [this](const auto& entry) {
    const auto& [task, part] = entry;
    return !part.recording || part.sent || !IsLive(task, part);
  });
}

void ClusterTrace::Start(uint64_t step, absl::Time now) {
  state_ = TraceResponse::RECORDING;
  first_ = step;
  end_ = std::min(step + steps_, job_.declared->total_steps());
  begin_time_ = now;
}

void ClusterTrace::Close(const std::string& why) {
  // So that the coordinator's own part is reported even if it has not confirmed
  // that it records.
  if (own_recording_ == trace_) PartOf(kOwn, Incarnation(0)).recording = true;
  if (state_ == TraceResponse::ARMING) begin_time_ = job_.clock->Now();
  state_ = TraceResponse::COLLECTING;
  cut_short_ = why;
  end_time_ = job_.clock->Now();
  deadline_ = end_time_ + job_.options.lease + kToSend;
  changed_ = true;
}

void ClusterTrace::Drop() {
  state_ = TraceResponse::NONE;
  changed_ = true;
  trace_ = 0;
  steps_ = 0;
  first_ = 0;
  end_ = 0;
  armed_ = false;
  cut_short_.clear();
  own_recording_ = 0;
  parts_.clear();
  bytes_ = 0;
  own_.clear();
}

}  // namespace holdfast

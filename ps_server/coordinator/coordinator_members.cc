// SPDX-License-Identifier: Apache-2.0

// How the coordinator reacts to changes of membership:
// docs/protocol/recovery.md, L1 to L5.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// Why a task leaves a job that is not done, for users; empty if it does not
// say.
std::string DepartureIn(const proto::LeaveRequest& request) {
  if (request.program_ended()) return "its program has ended without an error";
  if (request.stepped_down()) return "its program has closed the cluster";
  return "";
}

}  // namespace

void Coordinator::Register(const proto::RegisterRequest& request,
                           Reply<proto::RegisterResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  job_.members.Register(request, std::move(reply));
}

void Coordinator::RenewLease(const proto::RenewLeaseRequest& request,
                             Reply<proto::RenewLeaseResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  job_.members.RenewLease(request, std::move(reply));
}

void Coordinator::Leave(const proto::LeaveRequest& request,
                        Reply<proto::LeaveResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  // The sender may not have heard of the generation.
  const absl::StatusOr<const Member*> session =
      job_.members.FindLife(request.sender());
  if (!session.ok()) {
    return job_.outbox.Answer(std::move(reply), session.status());
  }
  const WorkerLife life = ToWorkerLife(request.sender());
  if ((*session)->live()) {
    if (!request.error().empty()) {
      if (!job_.ended()) {
        job_.Tell(proto::Event::LEFT,
                  absl::StrCat(NameOf(life.worker),
                               " left before the end: ", request.error()),
                  life.worker);
      }
      // [E2] A job that is stopping no longer needs the task; no job ever needs
      // an evaluator.
      if (!job_.stopping() && !IsEvaluator(life.worker)) {
        FailUnlessFinishing(
            absl::StrCat(job_.members.Describe(life.worker),
                         " left before the end: ", request.error()));
      }
    }
    job_.members.OnLeave(life.worker, DepartureIn(request));
    if (IsWorker(life.worker) && (job_.ended() || job_.AllStepsFixed())) {
      end_.OnTold(life);
    }
    OnGone(life.worker);
  }
  proto::LeaveResponse response;
  *response.mutable_state() = job_.state;
  job_.outbox.Answer(std::move(reply), std::move(response));
  job_.members.RetryRegisters(life.worker);
}

absl::Status Coordinator::CheckDigests(const TaskId& task,
                                       const proto::RegisterRequest& request) {
  return job_.declared.CheckDigests(task, request,
                                    job_.journal.journal().has_declaration());
}

void Coordinator::OnReplaced(const TaskId& task) {
  if (IsWorker(task) && job_.created && !job_.ended() &&
      !job_.members.Find(task)->fenced()) {
    ShutOut(task);
  }
}

void Coordinator::OnJoined(const TaskId& task, bool again) {
  const Member& session = *job_.members.Find(task);
  if (!job_.ended()) {
    job_.Tell(proto::Event::JOINED, absl::StrCat(NameOf(task), " joined"),
              task);
  }
  if (IsWorker(task)) {
    job_.paces.OnJoined(job_.members.ReplicaOf(task), session.renewed_at);
    job_.tickets.OnJoined({task, session.incarnation},
                          job_.members.ReplicaOf(task));
    return end_.OnJoined(task);
  }
  if (IsEvaluator(task)) return;
  job_.outbox.Send([links = job_.links, ps = task.index,
                    address = job_.members.ps_addresses()[task.index]] {
    links->SetAddress(ps, address);
  });
  // [R4] A shard that may have had state of this generation has lost it.
  if (again && (job_.created || job_.running == &restore_)) {
    restore_.BeginGeneration(absl::StrCat(task.ToString(), " (",
                                          session.process,
                                          ") has restarted without its state"));
  }
}

void Coordinator::OnBack(const TaskId& task) {
  if (IsWorker(task)) job_.tickets.SetLive(task, true);
  job_.Tell(proto::Event::BACK, absl::StrCat(NameOf(task), " is back"), task);
  patience_.OnBack();
}

void Coordinator::OnLost(const TaskId& task) { OnGone(task); }

std::string Coordinator::DescribeGone(const TaskId& task) const {
  const Member& session = *job_.members.Find(task);
  if (!session.left()) {
    return absl::StrCat(NameOf(task),
                        " is lost: nothing was heard from it for ",
                        absl::FormatDuration(job_.options.lease));
  }
  // A worker that has nothing more to do may end without waiting for the end.
  if (session.departure.empty() || !IsWorker(task) || job_.AllStepsFixed()) {
    return absl::StrCat(NameOf(task), " left before the end");
  }
  return absl::StrCat(
      NameOf(task), " left ",
      job_.created ? absl::StrCat("at step ", job_.global_step(), " of ",
                                  job_.declared->total_steps())
                   : "before training began",
      ": ", session.departure,
      "; to end the job for all, call finish() (holdfast_finish)");
}

void Coordinator::OnGone(const TaskId& task) {
  if (IsWorker(task)) job_.tickets.SetLive(task, false);
  if (IsEvaluator(task)) job_.evaluations.Release(task);
  if (job_.ended()) return;
  job_.declared.OnGone(task);
  const bool left = job_.members.Find(task)->left();
  const std::string what = DescribeGone(task);
  const auto tell = [&](const std::string& consequence) {
    job_.Tell(left ? proto::Event::LEFT : proto::Event::LOST,
              absl::StrCat(what, consequence), task);
  };
  if (IsEvaluator(task)) return tell("; training does not depend on it");
  if (job_.AllStepsFixed() && IsWorker(task)) {
    return tell(", with nothing more to do");
  }
  if (IsWorker(task) && job_.declared.continues()) {
    tell("; the job continues without it");
    if (job_.created) ShutOut(task);
    return;
  }
  if (!IsWorker(task) && job_.archive == nullptr) {
    tell("");
    return FailUnlessFinishing(
        absl::StrCat(what,
                     ", and there are no checkpoints to resume "
                     "from (--checkpoint_dir)"));
  }
  const absl::Duration recovery = job_.timeouts.Recovery();
  if (recovery == absl::ZeroDuration()) {
    tell("");
    return FailUnlessFinishing(what);
  }
  tell(absl::StrCat("; the job waits for it for ",
                    absl::FormatDuration(recovery), " at most"));
}

void Coordinator::ShutOut(const TaskId& worker) {
  job_.members.Fence(worker);
  job_.tickets.SetLive(worker, false);
  const WorkerLife life{worker, job_.members.Find(worker)->incarnation};
  job_.Tell(
      proto::Event::FENCED,
      absl::StrCat(NameOf(worker), " is fenced",
                   job_.declared.continues() ? "; the job continues" : ""),
      worker);
  fence_.Add(life);
  job_.step.Remove(life);
  for (auto& parked : job_.step.TakeOf(life)) {
    Refuse(parked.key, proto::FENCED);
    job_.outbox.Answer(std::move(parked.reply),
                       ContributeAnswer(proto::FENCED));
  }
  RefuseTickets(job_.tickets.TakeOf(life), proto::FENCED);
}

void Coordinator::Expel(const TaskId& worker, const absl::Status& why) {
  LOG(ERROR) << job_.members.Describe(worker)
             << " made a false statement: " << why.message();
  ShutOut(worker);
  job_.members.RetryRegisters(worker);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "tests/world/evaluator.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "proto/coordinator.pb.h"
#include "tests/world/session.h"

namespace holdfast::sim {
namespace {

constexpr absl::Duration kRetryAfter = absl::Milliseconds(50);
constexpr absl::Duration kLongestEvaluation = absl::Seconds(2);

// Makes one call at a time. An answer about another life, or about a checkpoint
// that the job has rolled back past, is not an error.
class Evaluator : public WorkerProgram {
 public:
  Evaluator(World* world, Process process, uint64_t nonce)
      : world_(world),
        process_(process),
        node_(World::NodesOf(process).front()),
        session_(world, node_,
                 RegisterRequestOf(*world, kEvaluatorJob, 0, nonce),
                 {[this](const proto::Sender&) {
                    if (!std::exchange(joined_, true)) Ask();
                  },
                  [](const proto::RenewLeaseResponse&) {},
                  // Another process has its place: its supervisor starts it
                  // again.
                  [this](const absl::Status&) {
                    world_->Exit(process_, /*for_good=*/false);
                  }}) {}

  void Start() override { session_.Start(); }
  void StepDown() override { Leave(/*for_good=*/false); }
  const proto::Sender& sender() const override { return session_.sender(); }

 private:
  void After(absl::Duration delay, void (Evaluator::*then)()) {
    world_->After(node_, delay, [this, then] { (this->*then)(); });
  }

  void Ask() {
    if (leaving_) return;
    proto::NextEvaluationRequest request;
    *request.mutable_sender() = sender();
    request.set_wait_ms(absl::ToInt64Milliseconds(world_->job().park));
    world_->Call<proto::NextEvaluationRequest>(
        node_, kCoordinator, request,
        [this](const absl::StatusOr<proto::NextEvaluationResponse>& next) {
          if (!next.ok()) return After(kRetryAfter, &Evaluator::Ask);
          if (next->has_checkpoint()) return Evaluate(next->checkpoint());
          if (IsEnd(next->state().phase())) return Leave(/*for_good=*/true);
          After(kRetryAfter, &Evaluator::Ask);
        });
  }

  void Evaluate(const proto::CheckpointName& name) {
    const Disk& disk = world_->disk();
    if (!disk.damaged_any() && disk.HasInJournal(Disk::NameOf(name))) {
      world_->Check(world_->oracle().CheckCheckpoint(disk, Disk::NameOf(name)));
    }
    found_.Clear();
    *found_.mutable_checkpoint() = name;
    found_.mutable_result()->set_step(name.step());
    found_.mutable_result()->set_loss(LossOf(name.step()));
    After(world_->scheduler()->RandomDuration(kLongestEvaluation),
          &Evaluator::Report);
  }

  void Report() {
    if (leaving_) return;
    *found_.mutable_sender() = sender();
    world_->Call<proto::ReportEvaluationRequest>(
        node_, kCoordinator, found_,
        [this](const absl::StatusOr<proto::ReportEvaluationResponse>& told) {
          if (told.ok()) return Ask();
          After(kRetryAfter, absl::IsUnavailable(told.status())
                                 ? &Evaluator::Report
                                 : &Evaluator::Ask);
        });
  }

  void Leave(bool for_good) {
    leaving_ = true;
    proto::LeaveRequest request;
    *request.mutable_sender() = sender();
    world_->Call<proto::LeaveRequest>(
        node_, kCoordinator, request,
        [this, for_good](const absl::StatusOr<proto::LeaveResponse>&) {
          world_->Exit(process_, for_good);
        });
  }

  World* const world_;
  const Process process_;
  const Node node_;
  Session session_;
  bool joined_ = false;
  bool leaving_ = false;
  // The result to report.
  proto::ReportEvaluationRequest found_;
};

}  // namespace

std::unique_ptr<WorkerProgram> MakeEvaluator(World* world, Process process,
                                             uint64_t nonce) {
  return std::make_unique<Evaluator>(world, process, nonce);
}

}  // namespace holdfast::sim

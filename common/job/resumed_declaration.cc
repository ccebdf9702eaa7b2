// SPDX-License-Identifier: Apache-2.0
#include "common/job/resumed_declaration.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/agreed_facts.h"
#include "common/job/declaration_change.h"
#include "proto/job.pb.h"

namespace holdfast {
namespace {

void ClearRate(proto::Optimizer* optimizer) {
  optimizer->clear_learning_rate();
  optimizer->clear_schedule();
}

// Clears the number of workers; `fields` is a Declaration or a Job.
template <typename Fields>
void ClearWorkers(Fields* fields) {
  if (fields->consistency().has_synchronous()) {
    fields->mutable_consistency()
        ->mutable_synchronous()
        ->clear_total_num_replicas();
  }
  if (fields->has_lost_workers()) {
    fields->mutable_lost_workers()->clear_min_replicas();
    fields->mutable_lost_workers()->clear_max_workers();
  }
}

// The declaration without the fields that may change.
proto::Declaration Fixed(proto::Declaration declaration) {
  declaration.clear_total_steps();
  declaration.clear_total_tickets();
  declaration.clear_timeouts();
  declaration.clear_checkpoints();
  declaration.clear_evaluation();
  declaration.clear_job();
  for (proto::Optimizer& optimizer : *declaration.mutable_optimizers()) {
    ClearRate(&optimizer);
  }
  if (declaration.examples() == proto::BY_TICKET) {
    declaration.clear_num_workers();
    ClearWorkers(&declaration);
  }
  return declaration;
}

proto::Job Fixed(proto::Job job, proto::ExampleAssignment examples) {
  job.clear_local();
  job.clear_length();
  job.clear_evaluation();
  job.clear_checkpoints();
  job.clear_timeouts();
  if (job.has_data()) job.mutable_data()->clear_prefetch();
  ClearRate(job.mutable_optimizer());
  if (examples == proto::BY_TICKET) ClearWorkers(&job);
  return job;
}

absl::Status MayNotChange(const std::string& change) {
  return absl::AlreadyExistsError(
      absl::StrCat("cannot change when a job continues: ", change));
}

absl::StatusOr<proto::Job> ParseJob(const std::string& bytes) {
  proto::Job job;
  if (job.ParseFromString(bytes)) return job;
  return absl::InvalidArgumentError("the declared job file does not parse");
}

absl::Status Compare(const proto::Job& before, const proto::Job& now,
                     proto::ExampleAssignment examples) {
  const std::string change =
      FirstChange(Fixed(before, examples), Fixed(now, examples));
  return change.empty() ? absl::OkStatus() : MayNotChange(change);
}

absl::Status CheckLength(const proto::Declaration& stands,
                         const proto::Declaration& declared,
                         const ResumePoint& at) {
  if (declared.total_steps() < at.step) {
    return absl::FailedPreconditionError(absl::StrCat(
        "total_steps is ", declared.total_steps(), ", but the job has made ",
        at.step, " steps, which cannot be undone"));
  }
  const uint64_t before = stands.total_tickets();
  const uint64_t tickets = declared.total_tickets();
  if (stands.examples() != proto::BY_TICKET || tickets == before) {
    return absl::OkStatus();
  }
  // Tickets beyond the new end may already be spent, because they are spent in
  // any order.
  if (tickets < before) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job has ", before, " tickets, and cannot continue with fewer; ",
        tickets,
        " are declared: `holdfast stop` ends it before its last step"));
  }
  if (stands.consistency().has_synchronous() &&
      at.step == stands.total_steps() &&
      before % stands.consistency().synchronous().replicas_to_aggregate() !=
          0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the last of ", before,
        " tickets have made a step of fewer than replicas_to_aggregate, which "
        "ends a job: it can have no further steps"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResumedDeclaration> ResumeDeclaration(
    const proto::Declaration& stands, const proto::Declaration& declared,
    const ResumePoint& at) {
  ResumedDeclaration resumed;
  resumed.declaration = declared;
  const std::string change = FirstChange(
      Fixed(stands), Fixed(declared),
      at.has_values ? Declarer::kChiefWithoutValues : Declarer::kChief);
  if (!change.empty()) return MayNotChange(change);
  *resumed.declaration.mutable_variables() = stands.variables();
  AddFacts(stands.agreed(), resumed.declaration.mutable_agreed());
  absl::Status status;
  if (declared.has_job()) {
    status = CompareJobFiles(stands, declared.job().job_file());
  }
  status.Update(CheckLength(stands, declared, at));
  if (!status.ok()) return status;
  resumed.changes = AllChanges(stands, resumed.declaration);
  return resumed;
}

absl::Status CompareJobFiles(const proto::Declaration& stands,
                             const std::string& job_file) {
  if (!stands.has_job()) return absl::OkStatus();
  HOLDFAST_ASSIGN_OR_RETURN(const auto before,
                            ParseJob(stands.job().job_file()));
  HOLDFAST_ASSIGN_OR_RETURN(const auto now, ParseJob(job_file));
  return Compare(before, now, stands.examples());
}

absl::Status CompareWrittenJobFile(const proto::Declaration& stands,
                                   const proto::Job& job) {
  if (!stands.has_job()) return absl::OkStatus();
  HOLDFAST_ASSIGN_OR_RETURN(auto before, ParseJob(stands.job().job_file()));
  before.clear_data();
  proto::Job now = job;
  now.clear_data();
  return Compare(before, now, stands.examples());
}

}  // namespace holdfast

#ifndef HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/resumed_declaration.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// `text` within the limit, not cut inside a character of UTF-8.
std::string Shorten(const std::string& text, size_t limit);
// The limit on what a task says of itself, which is kept, and is part of many
// an answer.
inline constexpr size_t kMaxTextBytes = 256;

// Errors: ALREADY_EXISTS, with the first field that differs.
absl::Status CheckSameDeclaration(const TaskId& task,
                                  const proto::Declaration& declared,
                                  const proto::Declaration& other);

// What the job is: the job file and data that its workers came with, and what
// the first of them declared.
//
// A job that goes on from a journal is open to change until it is settled:
// docs/protocol/recovery.md, J1 to J3.
//
// Thread-compatible.
class JobDeclaration {
 public:
  // Of a cluster with so many tasks, the chief among the workers.
  // `has_archive`: it has a checkpoint directory.
  JobDeclaration(uint32_t num_ps, uint32_t num_workers, bool has_archive)
      : num_ps_(num_ps), num_workers_(num_workers), has_archive_(has_archive) {}

  // [J1] A job that goes on from a journal is what that says, until it is
  // settled. There must be a declaration in it.
  // Errors: of a job that is not finished, why it cannot go on in this cluster.
  absl::Status TakeUp(const proto::Journal& journal);

  // The same with defaults filled in.
  // Errors: INVALID_ARGUMENT when it breaks a rule, or does not fit the
  // cluster.
  absl::StatusOr<proto::Declaration> Complete(
      const proto::Declaration& declaration) const;
  // `complete`: with defaults filled in. Errors: those of PlaceVariables.
  absl::Status Set(const proto::Declaration& complete);
  // [J3] `complete` is declared of a job that is open, and goes on with its
  // newest checkpoint. What it changes stands from now on; without a change the
  // job is settled, otherwise once the owner calls Settle.
  // Returns the changes. Errors: those of ResumeDeclaration,
  // FAILED_PRECONDITION when it cannot be told what changes, and those of
  // PlaceVariables.
  absl::StatusOr<std::vector<std::string>> Resume(
      const proto::Declaration& complete, const ResumePoint& at);
  // It is known what the job is.
  bool settled() const { return standing_ == Standing::kSettled; }
  // Nobody has declared it yet in this life of the coordinator.
  bool open() const { return standing_ == Standing::kOpen; }
  // It is as it stands, whatever else workers came with.
  void Settle() {
    standing_ = Standing::kSettled;
    offered_.reset();
  }
  // The job cannot go on with what the workers of this start declare.
  void Refuse(const absl::Status& why) { refusal_ = why; }
  const absl::Status& refusal() const { return refusal_; }
  // `complete` may pass for what stands: a worker of another version declares
  // more, or less, of the same job file.
  bool IsOfSameFile(const proto::Declaration& complete) const;

  bool has_value() const { return declaration_.has_value(); }
  const proto::Declaration& operator*() const { return *declaration_; }
  const proto::Declaration* operator->() const { return &*declaration_; }
  // Where its variables are.
  const std::vector<proto::Slice>& slices() const { return slices_; }

  // False until there is a declaration.
  bool asynchronous() const {
    return declaration_.has_value() &&
           declaration_->consistency().has_asynchronous();
  }
  // The job goes on without workers that are lost.
  bool continues() const {
    return declaration_.has_value() && declaration_->lost_workers().policy() ==
                                           proto::LostWorkers::CONTINUE;
  }

  // That a worker has the job file and the data of the first one. [J2] While
  // the job is open to change its job file may be another, and settles it when
  // it is the same.
  // Errors: FAILED_PRECONDITION. `journaled`: the job is in a journal, so that
  // the worker cannot be the one who is right.
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request,
                            bool journaled);
  // Of what was declared, as it goes into the journal.
  void AddTo(proto::Journal* journal) const;

 private:
  enum class Standing {
    // Of a job from a journal: it may be declared otherwise.
    kOpen,
    // Another declaration stands, and is not in the journal yet.
    kChanged,
    kSettled,
  };
  // Whose job file it is, as people are told, and its digest.
  struct JobFile {
    std::string from;
    std::string digest;
  };

  absl::Status CheckJobFile(const TaskId& task,
                            const proto::RegisterRequest& request,
                            bool journaled);

  const uint32_t num_ps_;
  const uint32_t num_workers_;
  const bool has_archive_;
  std::optional<proto::Declaration> declaration_;
  std::vector<proto::Slice> slices_;
  Standing standing_ = Standing::kSettled;
  absl::Status refusal_;
  // The cluster has the workers that were declared.
  bool fits_cluster_ = true;
  std::optional<JobFile> job_file_;
  // [J2] With which the workers come while the job is open.
  std::optional<JobFile> offered_;
  std::string data_digest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_

// SPDX-License-Identifier: Apache-2.0
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

// `text` cut to at most `limit` bytes, never inside a UTF-8 character.
std::string Shorten(const std::string& text, size_t limit);
// The limit on texts that a task supplies about itself: they are kept, and are
// part of many answers.
inline constexpr size_t kMaxTextBytes = 256;

// Errors: ALREADY_EXISTS, naming the first field that differs.
absl::Status CheckSameDeclaration(const TaskId& task,
                                  const proto::Declaration& declared,
                                  const proto::Declaration& other);

// What the job is: the job file and the data that its workers brought, and what
// the first of them declared.
//
// A job that resumes from a journal is open to change until it is settled:
// docs/protocol/recovery.md, J1 to J3.
//
// Thread-compatible.
class JobDeclaration {
 public:
  // The job of a cluster with these numbers of tasks; `num_workers` includes
  // the chief. `has_archive`: there is a checkpoint directory.
  JobDeclaration(uint32_t num_ps, uint32_t num_workers, bool has_archive)
      : num_ps_(num_ps), num_workers_(num_workers), has_archive_(has_archive) {}

  // [J1] Takes the declaration of the journal that the job resumes from. It
  // stands until the job is settled. The journal must have one.
  // Errors: for an unfinished job, why it cannot continue in this cluster.
  absl::Status TakeUp(const proto::Journal& journal);

  // The declaration with defaults filled in.
  // Errors: INVALID_ARGUMENT when it breaks a rule, or does not fit the
  // cluster.
  absl::StatusOr<proto::Declaration> Complete(
      const proto::Declaration& declaration) const;
  // `complete`: a declaration with defaults filled in. Errors: those of
  // PlaceVariables.
  absl::Status Set(const proto::Declaration& complete);
  // [J3] `complete` is declared for a job that is open and resumes from its
  // newest checkpoint. Its changes take effect at once; if there are none, the
  // job is settled, and otherwise once the owner calls Settle.
  // Returns the changes. Errors: those of ResumeDeclaration,
  // FAILED_PRECONDITION when the changes cannot be determined, and those of
  // PlaceVariables.
  absl::StatusOr<std::vector<std::string>> Resume(
      const proto::Declaration& complete, const ResumePoint& at);
  // The declaration is settled.
  bool settled() const { return standing_ == Standing::kSettled; }
  // No worker has declared it yet in this life of the coordinator.
  bool open() const { return standing_ == Standing::kOpen; }
  // Settles the job as it stands, whatever other job files workers brought.
  void Settle() {
    standing_ = Standing::kSettled;
    offered_.reset();
  }
  // The job cannot continue with what the workers of this start declare.
  void Refuse(const absl::Status& why) { refusal_ = why; }
  const absl::Status& refusal() const { return refusal_; }
  // Whether `complete` may stem from the same job file as the standing
  // declaration: a worker of another version declares more, or less, of the
  // same file.
  bool IsOfSameFile(const proto::Declaration& complete) const;

  bool has_value() const { return declaration_.has_value(); }
  const proto::Declaration& operator*() const { return *declaration_; }
  const proto::Declaration* operator->() const { return &*declaration_; }
  // The placement of the variables.
  const std::vector<proto::Slice>& slices() const { return slices_; }

  // False until there is a declaration.
  bool asynchronous() const {
    return declaration_.has_value() &&
           declaration_->consistency().has_asynchronous();
  }
  // The job continues without lost workers.
  bool continues() const {
    return declaration_.has_value() && declaration_->lost_workers().policy() ==
                                           proto::LostWorkers::CONTINUE;
  }

  // Checks that a worker has the job file and the data of the first worker.
  // [J2] While the job is open to change, a worker may have another job file;
  // one with the same file settles the job. `journaled`: the job is in a
  // journal, so a worker that differs is the one at fault.
  // Errors: FAILED_PRECONDITION.
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request,
                            bool journaled);
  // Adds what was declared to the journal.
  void AddTo(proto::Journal* journal) const;

 private:
  enum class Standing {
    // A job from a journal that may still be declared differently.
    kOpen,
    // Another declaration has taken effect, and is not in the journal yet.
    kChanged,
    kSettled,
  };
  // A job file: its origin, in words for users, and its digest.
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
  // Whether the cluster has the declared number of workers.
  bool fits_cluster_ = true;
  std::optional<JobFile> job_file_;
  // [J2] The job file that workers bring while the job is open.
  std::optional<JobFile> offered_;
  std::string data_digest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_

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
#include "common/job/agreed_facts.h"
#include "common/job/resumed_declaration.h"
#include "common/job/task_id.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// Returns `text` cut to at most `limit` bytes, never inside a UTF-8 character.
std::string Shorten(const std::string& text, size_t limit);
// The maximum size of a text that a task supplies about itself. Such texts are
// kept, and are part of many answers.
inline constexpr size_t kMaxTextBytes = 256;

// Checks that `other`, which `task` declares, is the same as `declared`, apart
// from agreed facts.
// Errors: ALREADY_EXISTS, naming the first field that differs.
absl::Status CheckSameDeclaration(const TaskId& task,
                                  const proto::Declaration& declared,
                                  const proto::Declaration& other);

// What the job is: the declaration, and the digests of the job file and of the
// data that its workers have.
//
// A job that resumes from a journal is open to change until it is settled:
// docs/protocol/recovery.md, J1 to J4.
//
// Thread-compatible.
class JobDeclaration {
 public:
  // Makes the job of a cluster with these numbers of tasks. `num_workers`
  // includes the chief. `has_archive` says whether there is a checkpoint
  // directory.
  JobDeclaration(uint32_t num_ps, uint32_t num_workers, bool has_archive)
      : num_ps_(num_ps), num_workers_(num_workers), has_archive_(has_archive) {}

  // [J1] Takes the declaration from the journal that the job resumes from,
  // which must have one. The declaration is in force until a worker's
  // declaration replaces it.
  // Errors: the reason why an unfinished job cannot continue in this cluster.
  absl::Status TakeUp(const proto::Journal& journal);

  // Returns `declaration` with defaults filled in.
  // Errors: INVALID_ARGUMENT when it breaks a rule, or does not fit the
  // cluster.
  absl::StatusOr<proto::Declaration> Complete(
      const proto::Declaration& declaration) const;
  // Sets the declaration to `complete`, which must have its defaults filled in,
  // and places its variables. Errors: those of PlaceVariables.
  absl::Status Set(const proto::Declaration& complete);
  // [J3] Called when a worker declares `complete` for a job that is open and
  // resumes from its newest checkpoint, `at`. Changes take effect at once. If
  // there are none, the job is settled; otherwise the owner settles it by
  // calling Settle. Returns the changes, in words for users. Errors: those of
  // ResumeDeclaration, FAILED_PRECONDITION when the changes cannot be
  // determined, and those of PlaceVariables.
  absl::StatusOr<std::vector<std::string>> Resume(
      const proto::Declaration& complete, const ResumePoint& at);
  // Whether the declaration is settled: it can no longer change.
  bool settled() const { return standing_ == Standing::kSettled; }
  // Whether the job comes from a journal, and no worker has declared it yet in
  // this life of the coordinator.
  bool open() const { return standing_ == Standing::kOpen; }
  // Settles the job with the current declaration, even if workers brought other
  // job files.
  void Settle() {
    standing_ = Standing::kSettled;
    offered_.reset();
  }
  // Records why the job cannot continue with what `task` has declared since the
  // start; refusal() is OK if it can, also once `task` has declared something
  // else or is gone.
  void Refuse(const TaskId& task, const absl::Status& why) {
    refusal_ = why;
    refused_ = task;
  }
  const absl::Status& refusal() const { return refusal_; }
  // [J4] Adds the facts that the job does not have. CheckAgreed must have
  // accepted them. Returns whether there were any. Errors: INVALID_ARGUMENT
  // when the declaration would be too large for a message.
  absl::StatusOr<bool> Agree(const AgreedFacts& facts);
  // `task` has left, or is lost.
  void OnGone(const TaskId& task) {
    if (task == refused_) refusal_ = absl::OkStatus();
  }
  // Whether `complete` may have been made from the same job file as the current
  // declaration. The two may still differ, because a worker of another version
  // may declare more fields of the same file, or fewer.
  bool IsOfSameFile(const proto::Declaration& complete) const;

  bool has_value() const { return declaration_.has_value(); }
  const proto::Declaration& operator*() const { return *declaration_; }
  const proto::Declaration* operator->() const { return &*declaration_; }
  // The slices of the variables, each with its ps.
  const std::vector<proto::Slice>& slices() const { return slices_; }

  // Whether the job is asynchronous. False until there is a declaration.
  bool asynchronous() const {
    return declaration_.has_value() &&
           declaration_->consistency().has_asynchronous();
  }
  // Whether the job continues without lost workers. False until there is a
  // declaration.
  bool continues() const {
    return declaration_.has_value() && declaration_->lost_workers().policy() ==
                                           proto::LostWorkers::CONTINUE;
  }

  // Checks that a worker has the same job file and data as the first worker.
  // [J2] While the job is open to change, a worker may have another job file; a
  // worker with the same file settles the job. An evaluator may have other
  // data. `journaled` says whether the job is in a journal; if it is, the error
  // blames the worker that differs. Errors: FAILED_PRECONDITION.
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request,
                            bool journaled);
  // Adds the declaration and the digests to the journal.
  void AddTo(proto::Journal* journal) const;

 private:
  enum class Standing {
    // The declaration is from a journal, and workers may still declare another.
    kOpen,
    // A worker's declaration has replaced that of the journal, but is not in
    // the journal yet.
    kChanged,
    kSettled,
  };
  // A job file: who brought it, in words for users, and its digest.
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
  TaskId refused_;
  // Whether the cluster has the declared number of workers.
  bool fits_cluster_ = true;
  std::optional<JobFile> job_file_;
  // [J2] The job file that workers bring while the job is open.
  std::optional<JobFile> offered_;
  std::string data_digest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_

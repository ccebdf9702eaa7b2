#ifndef HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/task_id.h"
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
// Thread-compatible.
class JobDeclaration {
 public:
  // Of a cluster with so many tasks, the chief among the workers.
  // `has_archive`: it has a checkpoint directory.
  JobDeclaration(uint32_t num_ps, uint32_t num_workers, bool has_archive)
      : num_ps_(num_ps), num_workers_(num_workers), has_archive_(has_archive) {}

  // A job that goes on from a journal is what that says. There must be a
  // declaration in it.
  void TakeUp(const proto::Journal& journal);

  // The same with defaults filled in.
  // Errors: INVALID_ARGUMENT when it breaks a rule, or does not fit the
  // cluster.
  absl::StatusOr<proto::Declaration> Complete(
      const proto::Declaration& declaration) const;
  // `complete`: with defaults filled in. Errors: those of PlaceVariables.
  absl::Status Set(const proto::Declaration& complete);
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

  // That a worker has the job file and the data of the first one.
  // Errors: FAILED_PRECONDITION. `journaled`: the job is in a journal, so that
  // the worker cannot be the one who is right.
  absl::Status CheckDigests(const TaskId& task,
                            const proto::RegisterRequest& request,
                            bool journaled);
  // Of what was declared, as it goes into the journal.
  void AddTo(proto::Journal* journal) const;

 private:
  const uint32_t num_ps_;
  const uint32_t num_workers_;
  const bool has_archive_;
  std::optional<proto::Declaration> declaration_;
  std::vector<proto::Slice> slices_;
  // Whose digests these are, as people are told.
  std::optional<std::string> digests_from_;
  std::string job_digest_;
  std::string data_digest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_JOB_DECLARATION_H_

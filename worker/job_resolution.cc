// SPDX-License-Identifier: Apache-2.0
#include "worker/job_resolution.h"

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/data/computed_fields.h"
#include "common/data/reading_progress.h"
#include "common/job/job_file.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// The limit of DeclaredJob.job_file.
constexpr size_t kMostJobBytes = 1 << 20;

absl::Status Compute(const DataOptions& reading, proto::Job* job) {
  const SteadyClock clock;
  ReadingProgress progress(
      {&clock, [](const std::string& line) { LOG(INFO) << line; }});
  const absl::Status status = FillInComputedFields(
      {reading.threads, reading.cache.get(), &progress}, job->mutable_data());
  if (!status.ok()) return status;
  LOG(INFO)
      << "computed from the training set: the fields that the job file leaves "
         "to it";
  return absl::OkStatus();
}

absl::Status CheckSize(const proto::Job& job) {
  const size_t bytes = SharedJob(job).size();
  if (bytes <= kMostJobBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the job with the values or classes of its training set takes ", bytes,
      " bytes, but a declaration at most ", kMostJobBytes,
      ": there are too many of them"));
}

}  // namespace

absl::Status ResolveJob(
    const std::function<absl::StatusOr<std::optional<proto::Job>>()>& declared,
    const DataOptions& reading, proto::Job* job) {
  if (HasComputedFields(job->data())) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto found, declared());
    HOLDFAST_RETURN_IF_ERROR(
        found.has_value() ? CopyOpenFields(found->data(), job->mutable_data())
                          : Compute(reading, job));
    LOG_IF(INFO, found.has_value())
        << "taken from the declaration: the fields that the job file leaves to "
           "its training set";
  }
  const absl::Status status = FillInImageClasses(job->mutable_data());
  return status.ok() ? CheckSize(*job) : status;
}

absl::Status ResolveFrom(const proto::Job& declared, proto::Job* job) {
  if (!HasOpenFields(job->data())) return absl::OkStatus();
  const absl::Status status =
      CopyOpenFields(declared.data(), job->mutable_data());
  if (!status.ok() || !HasOpenFields(job->data())) return status;
  return FillInImageClasses(job->mutable_data());
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_JOBS_H_
#define HOLDFAST_TESTS_FAULTS_JOBS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/faults/cluster.h"

namespace holdfast {

// Small jobs that take some seconds, save checkpoints often and have short
// timeouts, and checks of their results.
enum class JobKind {
  // Synchronous by step, with all workers in each step: the digest is known
  // from an undisturbed run.
  kSynchronous,
  // N = 1 of M = 2, by ticket: the examples of a late push are used again.
  kByTicket,
  kAsynchronous,
  // Asynchronous with staleness bound 1 and two pushes under way.
  kBounded,
  // Synchronous by step, and goes on without lost workers.
  kGoingOn,
  // With embedding tables (rows_job.h), otherwise like kSynchronous, kByTicket
  // and kBounded.
  kTables,
  kTablesByTicket,
  kTablesBounded,
};
inline constexpr JobKind kJobKinds[] = {
    JobKind::kSynchronous,    JobKind::kByTicket,     JobKind::kAsynchronous,
    JobKind::kBounded,        JobKind::kGoingOn,      JobKind::kTables,
    JobKind::kTablesByTicket, JobKind::kTablesBounded};
const char* NameOf(JobKind kind);

// The number of steps, or pushes, of each job.
inline constexpr uint64_t kJobSteps = 80;
inline constexpr absl::Duration kJobLease = absl::Seconds(1);

// Returns a cluster for a job of this kind, and writes the job's files to
// `folder`.
TaskCluster::Options SmallCluster(JobKind kind, const std::string& folder);

// Checks the results of a finished job. `digest` is the digest of an
// undisturbed run of the same job, if it is known.
absl::Status CheckEnd(JobKind kind, const TaskCluster& cluster,
                      const std::string& digest);

// Checks that tensors have passed through shared memory
// (docs/protocol/same_host.md), if the system supports that. All of these jobs
// have slices that are large enough; in a short job whose ps are killed, the
// transfers may go unseen.
absl::Status CheckShared(const TaskCluster& cluster);

// Runs a synchronous job by step (with or without tables) undisturbed, and
// returns its digest. Errors: also those of CheckShared.
absl::StatusOr<std::string> DigestInPeace(JobKind kind,
                                          const std::string& folder);
// Returns the digests of all kinds of jobs; empty for kinds that have none.
absl::StatusOr<std::map<JobKind, std::string>> DigestsInPeace(
    const std::string& folder);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_JOBS_H_

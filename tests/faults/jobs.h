#ifndef HOLDFAST_TESTS_FAULTS_JOBS_H_
#define HOLDFAST_TESTS_FAULTS_JOBS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/faults/cluster.h"

namespace holdfast {

// Small jobs of some seconds that are saved often and wait briefly, and what is
// known of their end.
enum class JobKind {
  // By step, all workers each: the digest is known from a run in peace.
  kSynchronous,
  // N = 1 of M = 2, by ticket: a late push's examples are used again.
  kByTicket,
  kAsynchronous,
  // Staleness bound 1, two pushes under way.
  kBounded,
  // By step, of whoever is there.
  kGoingOn,
  // With embedding tables (rows_job.h): as kSynchronous, kByTicket and
  // kBounded.
  kTables,
  kTablesByTicket,
  kTablesBounded,
};
inline constexpr JobKind kJobKinds[] = {
    JobKind::kSynchronous,    JobKind::kByTicket,     JobKind::kAsynchronous,
    JobKind::kBounded,        JobKind::kGoingOn,      JobKind::kTables,
    JobKind::kTablesByTicket, JobKind::kTablesBounded};
const char* NameOf(JobKind kind);

// Steps, or pushes, of each of them.
inline constexpr uint64_t kJobSteps = 80;
inline constexpr absl::Duration kJobLease = absl::Seconds(1);

// A cluster for such a job, whose files are written to `folder`.
TaskCluster::Options SmallCluster(JobKind kind, const std::string& folder);

// Tests what a finished one has left. `digest` is that of the same job in
// peace, where that is known.
absl::Status CheckEnd(JobKind kind, const TaskCluster& cluster,
                      const std::string& digest);

// Whether tensors have passed through shared memory
// (docs/protocol/same_host.md), so far as a system can. All of these jobs have
// slices that are large enough; of a short one whose ps are killed it may not
// be seen.
absl::Status CheckShared(const TaskCluster& cluster);

// The digest of a synchronous job by step (with tables or without), run in
// peace. Errors: CheckShared's, too.
absl::StatusOr<std::string> DigestInPeace(JobKind kind,
                                          const std::string& folder);
// Of all that have one; of the others it is empty.
absl::StatusOr<std::map<JobKind, std::string>> DigestsInPeace(
    const std::string& folder);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_JOBS_H_

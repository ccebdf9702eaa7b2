// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/jobs.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/shared_memory/arena.h"
#include "tests/faults/outcome.h"
#include "tests/faults/rows_job.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr char kOnesWorker[] = "tests/faults/ones_worker";
constexpr int kOnesBatch = 5;

// The number of positions of the training stream that the job of OnesModel
// uses: a step of kGoingOn has two seats.
uint64_t PositionsOf(JobKind kind) {
  return kJobSteps * kOnesBatch * (kind == JobKind::kGoingOn ? 2 : 1);
}

// Checkpoints are at odd steps, and the last one is not at a multiple.
constexpr char kCommon[] = R"(
checkpoints { every_steps: 7 keep: 2 }
timeouts { start_seconds: 20 step_seconds: 30 recovery_seconds: 20 }
)";

constexpr char kOnesJob[] = R"(
name: "ones"
model {
  registered {
    name: "ones"
    options { key: "positions" value: "POSITIONS" }
  }
}
data { train { idx { images: "images.idx" labels: "labels.idx" } } }
batch_size: BATCH
steps: STEPS
optimizer { learning_rate: 1 sgd {} }
consistency { CONSISTENCY }
partitioner { fixed_shards { shards: 3 } }
seed: 1
)";

std::string ConsistencyOf(JobKind kind) {
  switch (kind) {
    case JobKind::kByTicket:
    case JobKind::kTablesByTicket:
      return "synchronous { replicas_to_aggregate: 1 total_num_replicas: 2 }";
    case JobKind::kBounded:
    case JobKind::kTablesBounded:
      return "asynchronous { staleness_bound: 1 pipeline_depth: 2 }";
    case JobKind::kGoingOn:
    case JobKind::kTables:
      return "synchronous {}";
    default:
      return "asynchronous {}";
  }
}

std::string WriteOnesJob(JobKind kind, const std::string& folder) {
  const std::string path = folder + "/job.textproto";
  const std::string text = absl::StrReplaceAll(
      kOnesJob, {{"POSITIONS", absl::StrCat(PositionsOf(kind))},
                 {"BATCH", absl::StrCat(kOnesBatch)},
                 {"STEPS", absl::StrCat(kJobSteps)},
                 {"CONSISTENCY", ConsistencyOf(kind)}});
  std::string more;
  if (kind == JobKind::kByTicket) more = "examples: BY_TICKET\n";
  if (kind == JobKind::kGoingOn) more = "lost_workers { policy: CONTINUE }\n";
  WriteText(path, absl::StrCat(text, more, kCommon));
  return path;
}

bool HasTables(JobKind kind) {
  return kind == JobKind::kTables || kind == JobKind::kTablesByTicket ||
         kind == JobKind::kTablesBounded;
}

std::string WriteRowsJob(JobKind kind, const std::string& folder) {
  const std::string path = folder + "/declaration.textproto";
  RowsJob job;
  job.consistency = ConsistencyOf(kind);
  job.by_ticket = kind != JobKind::kTables;
  job.steps = kJobSteps;
  WriteText(path, RowsDeclaration(job));
  return path;
}

// Whether an undisturbed run determines the digest.
bool HasDigest(JobKind kind) {
  return kind == JobKind::kSynchronous || kind == JobKind::kTables;
}

}  // namespace

const char* NameOf(JobKind kind) {
  switch (kind) {
    case JobKind::kSynchronous:
      return "synchronous";
    case JobKind::kByTicket:
      return "by ticket";
    case JobKind::kAsynchronous:
      return "asynchronous";
    case JobKind::kBounded:
      return "bounded";
    case JobKind::kGoingOn:
      return "going on";
    case JobKind::kTables:
      return "tables";
    case JobKind::kTablesByTicket:
      return "tables by ticket";
    case JobKind::kTablesBounded:
      return "tables bounded";
  }
  return "";
}

TaskCluster::Options SmallCluster(JobKind kind, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  WriteExamples(folder);
  TaskCluster::Options options;
  options.folder = folder;
  if (kind == JobKind::kSynchronous) {
    SmallJob job;
    job.steps = kJobSteps;
    job.units = 256;
    job.more = kCommon;
    options.job_file = WriteJob(folder, job);
    options.worker_binary = kSlowWorker;
  } else if (HasTables(kind)) {
    options.job_file = WriteRowsJob(kind, folder);
    options.worker_binary = kRowsWorker;
  } else {
    options.job_file = WriteOnesJob(kind, folder);
    options.worker_binary = kOnesWorker;
  }
  options.ps_flags = {absl::StrCat("--lease=", absl::FormatDuration(kJobLease)),
                      "--start_timeout=20s", "--recovery_timeout=20s",
                      "--grace=5s"};
  // The slowest worker determines the time of a synchronous step; in other
  // jobs, workers share the steps.
  const bool whole_steps = HasDigest(kind) || kind == JobKind::kGoingOn;
  options.worker_flags = {whole_steps ? "--slow_step_ms_max=30"
                                      : "--slow_step_ms_max=80"};
  return options;
}

absl::Status CheckEnd(JobKind kind, const TaskCluster& cluster,
                      const std::string& digest) {
  if (kind == JobKind::kGoingOn) {
    return CheckSteps(cluster.checkpoint_dir(), kJobSteps);
  }
  if (HasTables(kind) && !HasDigest(kind)) {
    return CheckRows(cluster.checkpoint_dir(), kJobSteps);
  }
  if (!HasDigest(kind)) {
    return CheckOnes(cluster.checkpoint_dir(), kJobSteps, PositionsOf(kind));
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto found,
      DigestAtEnd(cluster.checkpoint_dir(), cluster.result_file(), kJobSteps));
  if (found != digest) {
    return absl::DataLossError(
        absl::StrCat("the digest is ", found, ", in peace it is ", digest));
  }
  return absl::OkStatus();
}

absl::Status CheckShared(const TaskCluster& cluster) {
  if (cluster.max_shared_bytes() > 0 || !SharedArena::HugePagesWork()) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      "no tensor has passed through shared memory: are all smaller than "
      "kMinLentBytes?");
}

absl::StatusOr<std::string> DigestInPeace(JobKind kind,
                                          const std::string& folder) {
  TaskCluster cluster(SmallCluster(kind, folder));
  cluster.StartAll();
  absl::Status status = cluster.AwaitEnd(absl::Seconds(60));
  if (status.ok()) status = CheckShared(cluster);
  if (!status.ok()) return status;
  return DigestAtEnd(cluster.checkpoint_dir(), cluster.result_file(),
                     kJobSteps);
}

absl::StatusOr<std::map<JobKind, std::string>> DigestsInPeace(
    const std::string& folder) {
  std::map<JobKind, std::string> digests;
  for (const JobKind kind : kJobKinds) {
    if (!HasDigest(kind)) {
      digests[kind] = "";
      continue;
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto digest, DigestInPeace(kind, folder));
    digests[kind] = digest;
  }
  return digests;
}

}  // namespace holdfast

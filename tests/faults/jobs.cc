#include "tests/faults/jobs.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/shared_memory/arena.h"
#include "tests/faults/outcome.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr char kOnesWorker[] = "tests/faults/ones_worker";
constexpr int kOnesBatch = 5;

// Positions of the training stream that the job of OnesModel gets to: a step of
// kGoingOn has two seats.
uint64_t PositionsOf(JobKind kind) {
  return kJobSteps * kOnesBatch * (kind == JobKind::kGoingOn ? 2 : 1);
}

// Checkpoints at odd steps, with a last one that is not at a multiple.
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
      return "synchronous { replicas_to_aggregate: 1 total_num_replicas: 2 }";
    case JobKind::kBounded:
      return "asynchronous { staleness_bound: 1 pipeline_depth: 2 }";
    case JobKind::kGoingOn:
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
  } else {
    options.job_file = WriteOnesJob(kind, folder);
    options.worker_binary = kOnesWorker;
  }
  options.ps_flags = {absl::StrCat("--lease=", absl::FormatDuration(kJobLease)),
                      "--start_timeout=20s", "--recovery_timeout=20s",
                      "--grace=5s"};
  // Of a synchronous step the slowest counts; other jobs share the steps.
  const bool whole_steps =
      kind == JobKind::kSynchronous || kind == JobKind::kGoingOn;
  options.worker_flags = {whole_steps ? "--slow_step_ms_max=30"
                                      : "--slow_step_ms_max=80"};
  return options;
}

absl::Status CheckEnd(JobKind kind, const TaskCluster& cluster,
                      const std::string& digest) {
  if (kind == JobKind::kGoingOn) {
    return CheckSteps(cluster.checkpoint_dir(), kJobSteps);
  }
  if (kind != JobKind::kSynchronous) {
    return CheckOnes(cluster.checkpoint_dir(), kJobSteps, PositionsOf(kind));
  }
  const auto found =
      DigestAtEnd(cluster.checkpoint_dir(), cluster.result_file(), kJobSteps);
  if (!found.ok()) return found.status();
  if (*found != digest) {
    return absl::DataLossError(
        absl::StrCat("the digest is ", *found, ", in peace it is ", digest));
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

absl::StatusOr<std::string> DigestInPeace(const std::string& folder) {
  TaskCluster cluster(SmallCluster(JobKind::kSynchronous, folder));
  cluster.StartAll();
  absl::Status status = cluster.AwaitEnd(absl::Seconds(60));
  if (status.ok()) status = CheckShared(cluster);
  if (!status.ok()) return status;
  return DigestAtEnd(cluster.checkpoint_dir(), cluster.result_file(),
                     kJobSteps);
}

}  // namespace holdfast

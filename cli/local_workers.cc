// SPDX-License-Identifier: Apache-2.0
#include "cli/local_workers.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/summary.h"
#include "common/job/job_file.h"
#include "common/job/resumed_declaration.h"

namespace holdfast {
namespace {

// The worker that evaluates, and ends last among the workers.
const TaskId kChief = {kWorkerJob, 0};

}  // namespace

std::string DaemonName(const TaskId& task) {
  return absl::StrCat(task.job, "-", task.index);
}

absl::StatusOr<bool> JobFileWorkers::HasMoreToDo(
    const proto::Journal& journal) const {
  if (journal.job_digest() == JobDigest(options_.job)) return false;
  if (!journal.declaration().has_job()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its checkpoints belong to a job without a job file, "
                     "which a program declared; ",
                     options_.job_file, " cannot continue it"));
  }
  const absl::Status same =
      CompareWrittenJobFile(journal.declaration(), options_.job);
  if (same.ok()) return true;
  return absl::FailedPreconditionError(absl::StrCat(
      "its checkpoints belong to another job than ", options_.job_file, ": ",
      same.message(), "; to continue that job, undo the change"));
}

LocalCluster::Program JobFileWorkers::ProgramFor(
    const TaskId& worker, const ClusterSpec& cluster, const Folders& folders,
    const RunDirectory& directory) const {
  LocalCluster::Program program;
  program.name = DaemonName(worker);
  program.binary = options_.binary;
  program.args = {
      absl::StrCat("--job_name=", worker.job),
      absl::StrCat("--task_index=", worker.index),
      absl::StrCat("--cluster_spec=", directory.cluster_spec_path())};
  if (!folders.tls.empty()) {
    program.args.push_back(absl::StrCat("--tls_dir=", folders.tls));
  }
  if (!folders.same_host.empty()) {
    program.args.push_back(absl::StrCat("--same_host_dir=", folders.same_host));
  }
  program.args.push_back(absl::StrCat("--job=", options_.job_file));
  if (!folders.checkpoints.empty()) {
    program.args.push_back(
        absl::StrCat("--checkpoint_dir=", folders.checkpoints));
    program.args.insert(program.args.end(), options_.flags.begin(),
                        options_.flags.end());
    return program;
  }
  // Written by the chief, or by another worker in its place.
  program.args.push_back(
      absl::StrCat("--result_file=", directory.result_path()));
  program.args.insert(program.args.end(), options_.flags.begin(),
                      options_.flags.end());
  return program;
}

std::vector<TaskId> JobFileWorkers::Awaited(const ClusterSpec&) const {
  return {kChief};
}

absl::StatusOr<std::string> JobFileWorkers::Summary(
    const RunDirectory& directory,
    const absl::StatusOr<proto::Journal>&) const {
  std::ifstream file(directory.result_path());
  std::stringstream content;
  content << file.rdbuf();
  const std::string log = directory.LogPath(DaemonName(kChief));
  if (!file) {
    return absl::InternalError(absl::StrCat(
        "the job is done, but no worker has written its result to ",
        directory.result_path(), "; ", log, " may say why"));
  }
  const absl::StatusOr<std::string> summary = SummaryOf(content.str());
  if (!summary.ok()) {
    return absl::InternalError(absl::StrCat(
        "the job is done, but ", directory.result_path(), " is damaged: ",
        summary.status().message(), "; ", log, " may say why"));
  }
  return absl::StrCat(*summary, "  result         ", directory.result_path(),
                      "\n");
}

std::string CommandWorkers::job_name() const {
  const std::vector<std::string>& args = options_.args;
  if (args.size() > 1 && args.front() == "-m") {
    return args[1].substr(args[1].rfind('.') + 1);
  }
  const bool is_script = !args.empty() && absl::EndsWith(args.front(), ".py");
  absl::string_view path = is_script ? args.front() : options_.program;
  path.remove_prefix(path.rfind('/') + 1);
  return std::string(absl::StripSuffix(path, ".py"));
}

LocalCluster::Program CommandWorkers::ProgramFor(const TaskId& worker,
                                                 const ClusterSpec& cluster,
                                                 const Folders& folders,
                                                 const RunDirectory&) const {
  LocalCluster::Program program;
  program.name = DaemonName(worker);
  program.binary = options_.program;
  program.args = options_.args;
  program.environment["TF_CONFIG"] = absl::StrCat(
      R"({"cluster": )", cluster.ToJson(), R"(, "task": {"type": ")",
      worker.job, R"(", "index": )", worker.index, "}}");
  // The script may change its working directory.
  for (const auto& [name, folder] :
       {std::pair("HOLDFAST_TLS_DIR", folders.tls),
        std::pair("HOLDFAST_SAME_HOST_DIR", folders.same_host),
        std::pair("HOLDFAST_CHECKPOINT_DIR", folders.checkpoints)}) {
    if (folder.empty()) continue;
    program.environment[name] = std::filesystem::absolute(folder).string();
  }
  if (options_.threads.has_value()) {
    program.environment["OMP_NUM_THREADS"] = absl::StrCat(*options_.threads);
  }
  for (const char* name : {"OMP_NUM_THREADS", "PYTHONUNBUFFERED"}) {
    if (std::getenv(name) == nullptr) program.environment.emplace(name, "1");
  }
  return program;
}

std::vector<TaskId> CommandWorkers::Awaited(const ClusterSpec& cluster) const {
  return cluster.replicas();
}

std::optional<TaskId> CommandWorkers::Shown() const { return kChief; }

absl::StatusOr<std::string> CommandWorkers::Summary(
    const RunDirectory& directory,
    const absl::StatusOr<proto::Journal>& journal) const {
  std::string summary = absl::StrCat(job_name(), ": done\n");
  if (journal.ok() && !journal->checkpoints().empty()) {
    absl::StrAppend(&summary, "  steps          ",
                    journal->checkpoints().rbegin()->step(), ", saved\n");
  }
  absl::StrAppend(&summary, "  logs           ", directory.path(), "\n");
  return summary;
}

}  // namespace holdfast

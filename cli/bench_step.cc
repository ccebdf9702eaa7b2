// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_step.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/bench_cluster.h"
#include "cli/bench_lists.h"
#include "cli/find_program.h"
#include "cli/run_directory.h"
#include "common/base/status_macros.h"
#include "common/job/job_file.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "proto/result.pb.h"

namespace holdfast {
namespace {

constexpr char kSynchronous[] = "synchronous";

// A job in a mode, and the results of its runs.
struct Case {
  std::string mode;
  std::string job_file;
  std::vector<proto::TrainingResult> results;
};

void MakeAbsolute(proto::Dataset* dataset) {
  for (std::string* path : DataPaths(dataset)) {
    if (!path->empty()) *path = std::filesystem::absolute(*path);
  }
}

// The job at `path` in `mode`, reduced to training, as text.
absl::StatusOr<std::string> JobText(const std::string& path,
                                    const std::string& mode, int steps) {
  absl::StatusOr<proto::Job> job = LoadJobFile(path);
  if (!job.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--jobs: ", job.status().message()));
  }
  const bool synchronous = mode == kSynchronous;
  if (synchronous == job->consistency().has_asynchronous()) {
    job->clear_consistency();
    job->clear_examples();
    job->clear_lost_workers();
  }
  if (!synchronous) job->mutable_consistency()->mutable_asynchronous();
  job->set_steps(steps);
  job->clear_evaluation();
  job->clear_checkpoints();
  job->mutable_data()->clear_test();
  job->mutable_data()->clear_holdout();
  MakeAbsolute(job->mutable_data()->mutable_train());
  std::string text;
  google::protobuf::TextFormat::PrintToString(*job, &text);
  return text;
}

absl::StatusOr<std::vector<Case>> MakeCases(const StepFlags& flags,
                                            const std::string& folder) {
  const auto modes =
      ParseWords("modes", flags.modes, {kSynchronous, "asynchronous"});
  if (!modes.ok()) return modes.status();
  std::vector<Case> cases;
  for (const std::string& path :
       std::vector<std::string>(absl::StrSplit(flags.jobs, ','))) {
    for (const std::string& mode : *modes) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto text,
                                JobText(path, mode, flags.steps));
      Case& job = cases.emplace_back();
      job.mode = mode;
      job.job_file = absl::StrCat(folder, "/", cases.size(), ".textproto");
      std::ofstream file(job.job_file);
      file << text;
      file.close();
      if (!file) {
        return absl::InternalError(absl::StrCat("cannot write ", job.job_file));
      }
    }
  }
  return cases;
}

absl::StatusOr<proto::TrainingResult> ReadResult(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  proto::TrainingResult result;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(content.str(), &result,
                                                   options)
           .ok()) {
    return absl::InternalError(absl::StrCat(path, " is not a result"));
  }
  return result;
}

absl::StatusOr<proto::TrainingResult> Run(const StepFlags& flags,
                                          const Case& job,
                                          const std::string& folder,
                                          SignalWatch* signals) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto directory, RunDirectory::Open(folder));
  const std::string run_dir = folder + "/run";
  // Removes the folder of the previous run, whose result has been read.
  std::error_code ignored;
  std::filesystem::remove_all(run_dir, ignored);
  LocalCluster::Program program;
  program.name = "local";
  program.binary = ThisProgram();
  program.args = {"local", "--job=" + job.job_file, "--run_dir=" + run_dir,
                  "--checkpoint_dir=none"};
  if (flags.ps.has_value()) {
    program.args.push_back(absl::StrCat("--ps=", *flags.ps));
  }
  if (flags.workers.has_value()) {
    program.args.push_back(absl::StrCat("--workers=", *flags.workers));
  }
  for (auto& flag :
       absl::StrSplit(flags.local_flags, ' ', absl::SkipWhitespace())) {
    program.args.emplace_back(flag);
  }
  const auto processes = BenchProcesses::Start({program}, *directory, signals);
  if (!processes.ok()) return processes.status();
  HOLDFAST_RETURN_IF_ERROR((*processes)->AwaitEnd(program.name));
  return ReadResult(run_dir + "/result.json");
}

absl::StatusOr<proto::BenchmarkResult> Summary(const Case& job) {
  const proto::TrainingResult& first = job.results.front();
  std::vector<double> steps, examples;
  for (const proto::TrainingResult& result : job.results) {
    steps.push_back(result.steps_per_second());
    examples.push_back(result.examples_per_second());
    if (job.mode == kSynchronous && result.digest() != first.digest()) {
      return absl::InternalError(absl::StrCat(
          first.job(), ": two runs of the same synchronous job end with ",
          "the digests ", first.digest(), " and ", result.digest()));
    }
  }
  std::sort(steps.begin(), steps.end());
  std::sort(examples.begin(), examples.end());
  proto::BenchmarkResult result;
  result.set_benchmark("step");
  result.set_job(first.job());
  result.set_mode(job.mode);
  result.set_ps(first.ps());
  result.set_workers(first.workers());
  result.set_steps_per_second(steps[(steps.size() - 1) / 2]);
  result.set_least_steps_per_second(steps.front());
  result.set_most_steps_per_second(steps.back());
  result.set_examples_per_second(examples[(examples.size() - 1) / 2]);
  result.set_rounds(job.results.size());
  if (job.mode == kSynchronous) result.set_digest(first.digest());
  return result;
}

}  // namespace

void StepFlags::AddTo(FlagSet* set) {
  set->Add("jobs", "LIST", &jobs,
           absl::StrCat("Job files. Default:\n", jobs, "."));
  set->Add(
      "modes", "LIST", &modes,
      absl::StrCat("Modes in which each job is run, whatever its file says.\n"
                   "Default: ",
                   modes, "."));
  set->Add("ps", "NUMBER", &ps, "Default: as `holdfast local`.");
  set->Add("workers", "NUMBER", &workers, "Default: as `holdfast local`.");
  set->Add("steps", "NUMBER", &steps,
           "Steps of each run; in asynchronous jobs, pushes. Default: 600.");
  set->Add("rounds", "NUMBER", &rounds,
           "Runs of each job in each mode. Default: 3.");
  set->Add("local_flags", "FLAGS", &local_flags,
           "Additional flags for `holdfast local`, separated by spaces.");
}

absl::Status BenchStep(const StepFlags& flags, const std::string& folder,
                       SignalWatch* signals, BenchReport* report) {
  if (flags.steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--steps=", flags.steps, ": must be at least 1"));
  }
  if (flags.rounds < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rounds=", flags.rounds, ": must be at least 1"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(auto cases, MakeCases(flags, folder));
  for (int round = 0; round < flags.rounds; ++round) {
    for (Case& job : cases) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto result,
                                Run(flags, job, folder, signals));
      job.results.push_back(result);
      std::cerr << absl::StrFormat("round %d of %d: %s, %s: %.1f steps/s",
                                   round + 1, flags.rounds, result.job(),
                                   job.mode, result.steps_per_second())
                << std::endl;
    }
  }
  for (const Case& job : cases) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto summary, Summary(job));
    HOLDFAST_RETURN_IF_ERROR(report->Add(summary));
  }
  return absl::OkStatus();
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_scale.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/bench_lists.h"
#include "cli/bench_worker.h"
#include "cli/status_watch.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr int kMostPs = 64;
constexpr int kMostWorkers = 256;
constexpr char kSynchronous[] = "synchronous";
// Steps of each worker before the measurement begins.
constexpr uint64_t kWarmUpSteps = 3;
// Interval between status calls. A call takes a ps about 50 us.
constexpr absl::Duration kPeriod = absl::Milliseconds(20);
constexpr absl::Duration kStartTimeout = absl::Seconds(120);

struct Point {
  std::string mode;
  int ps = 1;
  int workers = 1;
  uint64_t bytes = 0;
};

// The progress of a cluster at some time.
struct Sample {
  std::chrono::steady_clock::time_point at;
  uint64_t steps = 0;
  absl::Duration cpu;
};

// Waits until the job has made `steps` and `earliest` has passed.
absl::StatusOr<Sample> AwaitSteps(uint64_t steps, absl::Time earliest,
                                  BenchCluster* cluster, StatusWatch* watch) {
  const absl::Time deadline = std::max(earliest, SteadyNow()) + kStartTimeout;
  while (SteadyNow() < deadline) {
    HOLDFAST_RETURN_IF_ERROR(cluster->processes().Wait(watch->fd(), deadline));
    const auto status = watch->Take();
    if (!status.has_value() || status->global_step() < steps ||
        SteadyNow() < earliest) {
      continue;
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto cpu, cluster->processes().CpuTime());
    return Sample{std::chrono::steady_clock::now(), status->global_step(), cpu};
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "no ", steps, " steps in ", absl::FormatDuration(kStartTimeout)));
}

absl::StatusOr<proto::BenchmarkResult> Measure(const ScaleFlags& flags,
                                               const Point& point,
                                               const std::string& folder,
                                               SignalWatch* signals) {
  std::vector<BenchCluster::Client> clients;
  for (int i = 0; i < point.workers; ++i) {
    clients.push_back({"--role=train", absl::StrCat("--task_index=", i),
                       absl::StrCat("--mode=", point.mode),
                       absl::StrCat("--optimizer=", flags.optimizer),
                       absl::StrCat("--bytes=", point.bytes),
                       absl::StrCat("--shards=", point.ps)});
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto cluster, BenchCluster::Start(flags.ps, point.ps, point.workers,
                                              clients, folder, signals));
  StatusWatch watch(cluster->spec(), cluster->credentials(), kPeriod);
  const bool synchronous = point.mode == kSynchronous;
  // The number of tensors pushed, and pulled, in a step.
  const int tensors = synchronous ? point.workers : 1;
  const uint64_t warm_up = kWarmUpSteps * (point.workers / tensors);
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto begin,
      AwaitSteps(warm_up, absl::InfinitePast(), cluster.get(), &watch));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto end,
      AwaitSteps(begin.steps + 1, SteadyNow() + absl::Seconds(flags.seconds),
                 cluster.get(), &watch));

  const double seconds =
      std::chrono::duration<double>(end.at - begin.at).count();
  const double steps = static_cast<double>(end.steps - begin.steps);
  const double gb = steps * tensors * 2 * point.bytes / 1e9;
  proto::BenchmarkResult result;
  result.set_benchmark("scale");
  result.set_mode(point.mode);
  result.set_ps(point.ps);
  result.set_workers(point.workers);
  result.set_bytes(point.bytes);
  result.set_steps_per_second(steps / seconds);
  result.set_gb_per_s(gb / seconds);
  result.set_cpu_seconds_per_gb(absl::ToDoubleSeconds(end.cpu - begin.cpu) /
                                gb);
  return result;
}

}  // namespace

void ScaleFlags::AddTo(FlagSet* set) {
  set->Add("workers", "LIST", &workers,
           absl::StrCat(
               "Numbers of workers, each a process. Default: ", workers, "."));
  set->Add("ps", "LIST", &ps_counts,
           absl::StrCat("Numbers of ps. Default: ", ps_counts, "."));
  set->Add("modes", "LIST", &modes, absl::StrCat("Default: ", modes, "."));
  set->Add("size", "SIZE", &size,
           absl::StrCat("Size of the model, which has one slice per ps.\n"
                        "Default: ",
                        size, "."));
  set->Add("optimizer", "NAME", &optimizer,
           absl::StrCat("One of ", absl::StrJoin(BenchOptimizers(), ", "),
                        ". Default: ", optimizer, "."));
  set->Add("seconds", "NUMBER", &seconds,
           "Measuring time for each point. Default: 2.");
  ps.AddTo(set);
}

absl::Status BenchScale(const ScaleFlags& flags, const std::string& folder,
                        SignalWatch* signals, BenchReport* report) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto workers, ParseNumbers("workers", flags.workers, kMostWorkers));
  HOLDFAST_ASSIGN_OR_RETURN(const auto ps_counts,
                            ParseNumbers("ps", flags.ps_counts, kMostPs));
  const auto modes =
      ParseWords("modes", flags.modes, {kSynchronous, "asynchronous"});
  if (!modes.ok()) return modes.status();
  HOLDFAST_ASSIGN_OR_RETURN(const auto sizes, ParseSizes("size", flags.size));
  absl::Status status =
      CheckWord("optimizer", flags.optimizer, BenchOptimizers());
  if (status.ok()) status = CheckSeconds(flags.seconds);
  if (!status.ok()) return status;

  for (const std::string& mode : *modes) {
    for (const int ps : ps_counts) {
      for (const int count : workers) {
        const auto result =
            Measure(flags, {mode, ps, count, sizes.front()}, folder, signals);
        if (!result.ok()) return result.status();
        status = report->Add(*result);
        if (!status.ok()) return status;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/leaks.h"

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/faults/rows_job.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(60);
// The number of deaths after which every resource has been used once.
constexpr uint64_t kWarmUp = 4;

// The resources that a process holds.
struct Footprint {
  int64_t descriptors = 0;
  int64_t mappings = 0;
  // In KiB.
  int64_t own = 0;
  int64_t shared = 0;

  std::string ToString() const {
    return absl::StrFormat(
        "%d descriptors, %d mappings, %d KiB of its own, %d KiB shared",
        descriptors, mappings, own, shared);
  }
};

int64_t Entries(const std::string& folder) {
  std::error_code code;
  const auto entries = std::filesystem::directory_iterator(folder, code);
  return code ? 0 : std::distance(begin(entries), end(entries));
}

Footprint FootprintOf(pid_t pid) {
  const std::string process = absl::StrCat("/proc/", pid);
  Footprint found;
  found.descriptors = Entries(process + "/fd");
  const std::string maps = ReadText(process + "/maps");
  found.mappings = std::count(maps.begin(), maps.end(), '\n');
  for (const absl::string_view line :
       absl::StrSplit(ReadText(process + "/status"), '\n')) {
    const auto read = [&](absl::string_view name, int64_t* into) {
      if (!absl::StartsWith(line, name)) return;
      const std::vector<absl::string_view> words =
          absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipWhitespace());
      if (words.size() > 1) static_cast<void>(absl::SimpleAtoi(words[1], into));
    };
    read("RssAnon:", &found.own);
    read("RssShmem:", &found.shared);
  }
  return found;
}

Footprint Least(const Footprint& a, const Footprint& b) {
  return {std::min(a.descriptors, b.descriptors),
          std::min(a.mappings, b.mappings), std::min(a.own, b.own),
          std::min(a.shared, b.shared)};
}

class LeakRun {
 public:
  explicit LeakRun(const LeakOptions& options)
      : options_(options), cluster_(ClusterOptions(options)) {}

  LeakReport Run() {
    LeakReport report;
    cluster_.StartAll();
    if (!AwaitSteps(100)) return Fail("the job does not begin");
    for (; kills_ < kWarmUp; ++kills_) {
      if (!Kill()) return Fail("the job does not go on");
    }
    const Footprint ps = Measure("ps-1"), worker = Measure("worker-1");
    absl::StrAppend(&report.table, "after ", kills_, " kills, at step ", steps_,
                    ":\n  ps 1: ", ps.ToString(),
                    "\n  worker 1: ", worker.ToString(), "\n");
    for (; kills_ < kWarmUp + options_.kills || steps_ < options_.steps;
         ++kills_) {
      if (kills_ % 50 == 0) {
        std::cout << kills_ << " kills, " << steps_ << " steps" << std::endl;
      }
      if (!Kill()) return Fail("the job does not go on");
    }
    const Footprint ps_after = Measure("ps-1");
    const Footprint worker_after = Measure("worker-1");
    absl::StrAppend(&report.table, "after ", kills_, " kills, at step ", steps_,
                    ":\n  ps 1: ", ps_after.ToString(),
                    "\n  worker 1: ", worker_after.ToString(), "\n");
    if (absl::Status shared = CheckShared(cluster_); !shared.ok()) {
      absl::StrAppend(&report.failure, shared.message(), "\n");
    }
    Compare("ps 1", ps, ps_after, &report.failure);
    Compare("worker 1", worker, worker_after, &report.failure);
    for (const char* name : {"ps-1", "worker-1"}) {
      if (cluster_.starts(name) != 1) {
        absl::StrAppend(&report.failure, name,
                        " has died without being killed\n");
      }
    }
    if (!report.failure.empty()) {
      absl::StrAppend(&report.failure, report.table, cluster_.Describe());
    }
    return report;
  }

 private:
  static TaskCluster::Options ClusterOptions(const LeakOptions& leaks) {
    const std::string& folder = leaks.folder;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    WriteExamples(folder);
    TaskCluster::Options options;
    options.folder = folder;
    options.ps_flags = {"--lease=500ms", "--start_timeout=20s",
                        "--recovery_timeout=20s", "--grace=5s"};
    constexpr int kSteps = std::numeric_limits<int>::max();
    if (leaks.tables) {
      options.job_file = folder + "/declaration.textproto";
      RowsJob job;
      job.consistency = "asynchronous {}";
      job.by_ticket = true;
      job.steps = kSteps;
      job.save_every = 500;
      WriteText(options.job_file, RowsDeclaration(job));
      options.worker_binary = kRowsWorker;
      return options;
    }
    SmallJob job;
    job.steps = kSteps;
    job.consistency = "asynchronous {}";
    job.units = 512;
    job.more = R"(
partitioner { fixed_shards { shards: 2 } }
checkpoints { every_steps: 500 keep: 2 }
timeouts { start_seconds: 20 step_seconds: 30 recovery_seconds: 20 }
)";
    options.job_file = WriteJob(folder, job);
    options.worker_binary = kSlowWorker;
    return options;
  }

  LeakReport Fail(absl::string_view what) {
    LeakReport report;
    report.failure = absl::StrCat(what, " after ", kills_, " kills, at step ",
                                  steps_, "\n", cluster_.Describe());
    return report;
  }

  // Waits until the job has made `steps` steps since a ps was last killed.
  bool AwaitSteps(uint64_t steps) {
    uint64_t last = cluster_.status().global_step();
    uint64_t gone = 0;
    const bool done = cluster_.AdvanceUntil(
        [&] {
          const uint64_t now = cluster_.status().global_step();
          if (now > last) gone += now - last;
          last = now;
          return cluster_.failed() || gone >= steps;
        },
        kLimit);
    steps_ += gone;
    return done && !cluster_.failed();
  }

  // Kills the next victim at some moment within the next steps.
  bool Kill() {
    const std::string victim = kills_ % 2 == 0 ? "worker-0" : "ps-0";
    const int starts = cluster_.starts(victim);
    cluster_.Signal(victim, SIGKILL);
    const bool again = cluster_.AdvanceUntil(
        [&] { return cluster_.failed() || cluster_.starts(victim) > starts; },
        kLimit);
    const uint64_t share = options_.steps / (options_.kills + 1);
    return again && AwaitSteps(share + 20 + 7 * (kills_ % 13));
  }

  // The minimum of several measurements: connections come and go.
  Footprint Measure(const std::string& name) {
    AwaitSteps(500);
    Footprint least = FootprintOf(cluster_.pid(name));
    for (int look = 0; look < 20; ++look) {
      cluster_.AdvanceFor(absl::Milliseconds(100));
      least = Least(least, FootprintOf(cluster_.pid(name)));
    }
    return least;
  }

  // The allowances are what an allocator with a few threads may vary by for the
  // same work.
  static void Compare(const std::string& name, const Footprint& before,
                      const Footprint& after, std::string* failure) {
    const auto look = [&](const char* what, int64_t had, int64_t has,
                          int64_t slack) {
      if (has <= had + slack) return;
      absl::StrAppend(failure, name, ": ", what, " grew from ", had, " to ",
                      has, "\n");
    };
    look("descriptors", before.descriptors, after.descriptors, 3);
    look("mappings", before.mappings, after.mappings, 24);
    look("memory of its own (KiB)", before.own, after.own, 32 << 10);
    look("shared memory (KiB)", before.shared, after.shared, 8 << 10);
  }

  const LeakOptions options_;
  TaskCluster cluster_;
  uint64_t kills_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace

LeakReport LookForLeaks(const LeakOptions& options) {
  return LeakRun(options).Run();
}

}  // namespace holdfast

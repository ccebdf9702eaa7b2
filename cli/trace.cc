// SPDX-License-Identifier: Apache-2.0
#include "cli/trace.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/cluster_address.h"
#include "cli/command.h"
#include "cli/trace_file.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "proto/trace.pb.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast trace [flags]: records what all tasks of a running job do, step by step

Makes every worker and ps record the next steps, or tickets, and writes the timeline
to a file in Chrome's Trace Event Format, by the clock of ps 0. Open it in
https://ui.perfetto.dev or chrome://tracing. The job keeps running meanwhile.

  holdfast trace --run_dir=runs/first --steps=20 --output=trace.json
  holdfast trace --ps=ps-0.example:2222 --tls_dir=tls/operator-0 --wait=10m

Prints the steps in the file, the number of spans of each task, and the accuracy of
their times. Only one trace can be recorded at a time.

The job is named by one of --ps, --cluster_spec and --run_dir, or else by the
environment variable TF_CONFIG, in TensorFlow's form.

Exits 0 when the file has the steps of all tasks; 1 when something is missing, which
is then named (the file has the rest), or when nothing could be traced; 2 for wrong
flags.

)";

constexpr uint32_t kMaxSteps = 10000;
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
// When a wait is first reported, and the interval of further reports.
constexpr absl::Duration kTellEvery = absl::Seconds(2);
// How long to wait for the spans of a finished trace; the coordinator itself
// waits for a lease and 5 s.
constexpr absl::Duration kGrace = absl::Seconds(30);

struct TraceFlags {
  ClusterAddress cluster;
  uint32_t steps = 20;
  std::string output = "trace.json";
  absl::Duration wait = absl::Minutes(2);
};

FlagSet MakeFlagSet(TraceFlags* flags) {
  FlagSet set;
  set.Add("steps", "NUMBER", &flags->steps,
          "Number of steps to trace, or of tickets in asynchronous jobs, 1 to\n"
          "10000. Default: 20.");
  set.Add("output", "FILE", &flags->output,
          "The file to write. Default: trace.json.");
  set.Add(
      "wait", "DURATION", &flags->wait,
      "How long to wait for the steps; after that, the file gets the steps\n"
      "recorded so far. Default: 2m.");
  flags->cluster.AddTo(&set);
  return set;
}

absl::Status CheckFlags(const TraceFlags& flags) {
  if (flags.steps < 1 || flags.steps > kMaxSteps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--steps=", flags.steps, ": must be from 1 to ", kMaxSteps));
  }
  if (flags.wait <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--wait=", absl::FormatDuration(flags.wait), ": must be more than 0"));
  }
  return absl::OkStatus();
}

// A file that appears only once all of it is written.
class OutputFile {
 public:
  // Errors: INVALID_ARGUMENT when it cannot be created.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path) {
    const std::string made = path + ".part";
    std::FILE* const file = std::fopen(made.c_str(), "w");
    if (file == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--output=", path, ": ", std::strerror(errno)));
    }
    return std::unique_ptr<OutputFile>(new OutputFile(path, made, file));
  }
  ~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(made_.c_str());
  }

  absl::Status Write(const std::string& text) {
    const bool written =
        std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (written && closed && std::rename(made_.c_str(), path_.c_str()) == 0) {
      return absl::OkStatus();
    }
    const int error = errno;
    std::remove(made_.c_str());
    return absl::UnavailableError(
        absl::StrCat("cannot write ", path_, ": ", std::strerror(error)));
  }

 private:
  OutputFile(std::string path, std::string made, std::FILE* file)
      : path_(std::move(path)), made_(std::move(made)), file_(file) {}

  const std::string path_;
  const std::string made_;
  std::FILE* file_;
};

// One trace of a job, from beginning it to fetching it.
class Recording {
 public:
  Recording(Cluster* cluster, absl::Duration timeout)
      : cluster_(*cluster), timeout_(timeout) {
    std::random_device random;
    trace_ = uint64_t{random()} << 32 | random() | 1;
  }

  absl::StatusOr<FetchedTrace> Make(uint32_t steps, absl::Duration wait) {
    proto::TraceRequest begin = Request(proto::TraceRequest::BEGIN);
    begin.set_steps(steps);
    absl::StatusOr<proto::TraceResponse> trace = Ask(begin);
    if (!trace.ok()) return trace.status();
    // If this call is lost, the coordinator drops the trace by itself.
    const absl::Cleanup drop = [this] {
      Ask(Request(proto::TraceRequest::DROP)).IgnoreError();
    };
    trace = AwaitComplete(SteadyNow() + wait);
    if (!trace.ok()) return trace.status();
    FetchedTrace fetched;
    for (const proto::TraceTask& task : trace->tasks()) {
      HOLDFAST_ASSIGN_OR_RETURN(auto spans, Fetch(task));
      fetched.spans.push_back(std::move(spans));
    }
    fetched.trace = *std::move(trace);
    return fetched;
  }

 private:
  proto::TraceRequest Request(proto::TraceRequest::Action action) const {
    proto::TraceRequest request;
    request.set_action(action);
    request.set_trace(trace_);
    return request;
  }

  absl::StatusOr<proto::TraceResponse> Ask(const proto::TraceRequest& request) {
    return cluster_.Trace(request, SteadyNow() + timeout_);
  }

  absl::StatusOr<proto::TraceResponse> AwaitComplete(absl::Time deadline) {
    absl::Time tell = SteadyNow() + kTellEvery;
    bool ended = false;
    for (;;) {
      auto trace = Ask(Request(proto::TraceRequest::LOOK));
      if (!trace.ok()) return trace;
      if (trace->state() == proto::TraceResponse::COMPLETE) return trace;
      const absl::Time now = SteadyNow();
      if (now >= deadline) {
        if (std::exchange(ended, true)) return trace;
        trace = Ask(Request(proto::TraceRequest::FINISH));
        if (!trace.ok()) return trace;
        deadline = now + kGrace;
      }
      if (now >= tell) {
        std::cerr << "waiting for " << trace->waiting_for() << std::endl;
        tell = now + kTellEvery;
      }
      absl::SleepFor(kLookEvery);
    }
  }

  absl::StatusOr<FetchedTrace::Spans> Fetch(const proto::TraceTask& task) {
    FetchedTrace::Spans spans;
    for (uint32_t piece = 0; piece < task.pieces(); ++piece) {
      proto::TraceRequest request = Request(proto::TraceRequest::FETCH);
      *request.mutable_task() = task.task();
      request.set_piece(piece);
      HOLDFAST_ASSIGN_OR_RETURN(auto part, Ask(request));
      spans.MergeFrom(part.spans());
    }
    return spans;
  }

  Cluster& cluster_;
  const absl::Duration timeout_;
  uint64_t trace_;
};

absl::Status Trace(const TraceFlags& flags) {
  HOLDFAST_RETURN_IF_ERROR(CheckFlags(flags));
  HOLDFAST_ASSIGN_OR_RETURN(auto output, OutputFile::Create(flags.output));
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            ConnectAsOperator(flags.cluster));
  HOLDFAST_ASSIGN_OR_RETURN(const auto fetched,
                            Recording(cluster.get(), flags.cluster.timeout)
                                .Make(flags.steps, flags.wait));
  HOLDFAST_RETURN_IF_ERROR(output->Write(TraceFileText(fetched)));
  std::cout << flags.output << ": " << TraceSummary(fetched) << std::flush;
  const std::vector<std::string> missing = MissingFromTrace(fetched);
  if (missing.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(flags.output, " lacks\n  ", absl::StrJoin(missing, "\n  ")));
}

}  // namespace

int TraceCommand(const std::vector<std::string>& args) {
  TraceFlags flags;
  return RunCommand("trace", kUsage, MakeFlagSet(&flags), args,
                    [&] { return Trace(flags); });
}

std::vector<CommandWords> TraceWords() {
  TraceFlags flags;
  return {{"trace", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/status.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/cluster_address.h"
#include "cli/command.h"
#include "cli/history_text.h"
#include "cli/job_view.h"
#include "cli/printable_output.h"
#include "cli/terminal.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

constexpr char kStatusUsage[] =
    R"(holdfast status [flags]: shows the state of a running job

Prints one screen: progress, what the job waits for, what needs attention, each
worker and ps, and the last events. --json prints the coordinator's answer instead,
on one line, with the field names of GetStatusResponse in proto/coordinator.proto,
like /status.json on the status port.

  holdfast status --run_dir=runs/first
  holdfast status --ps=ps-0.example:2222 --tls_dir=tls/operator-0
  holdfast status --cluster_spec=cluster.json --json

The job is named by one of --ps, --cluster_spec and --run_dir, or else by the
environment variable TF_CONFIG, in TensorFlow's form.

Exits 0 when the job has answered, whatever its state; 1 when it could not be reached;
2 for wrong flags.

)";

constexpr char kEventsUsage[] =
    R"(holdfast events [flags]: lists what has happened to a running job

Prints one event per line, the newest last: tasks that joined, were lost, came back
or left, generations, checkpoints, evaluations, workers that became slow. The newest
1000 are kept, across restarts if the job has checkpoints.

  holdfast events --run_dir=runs/first
  holdfast events --ps=localhost:2222 --follow
  holdfast events --ps=localhost:2222 --json

The job is named by one of --ps, --cluster_spec and --run_dir, or else by the
environment variable TF_CONFIG, in TensorFlow's form.

Exits 0 when the events have been printed, or, with --follow, when the job is done,
was stopped or has failed; 1 when the job could not be reached (with --follow, for
--timeout); 2 for wrong flags; 130 when interrupted.

)";

constexpr char kHistoryUsage[] =
    R"(holdfast history [flags]: shows loss, scores and rate over a job's whole life

Prints one line per stored point, at most 10,000, across restarts if the job has
checkpoints. Steps that were undone when the job went back to a checkpoint are not
included. --csv prints comma-separated values, with times in seconds since 1970:

  step,time,loss,examples,steps_per_second,examples_per_second,accuracy,
      test_loss,mean_absolute_error,mean_squared_error,top_k_accuracy,
      auc,calibration  (on one line)

and, if there are any, metrics of your own evaluator, and learning_rate_factor, which
`holdfast set` changes.

  holdfast history --run_dir=runs/first --max_points=20
  holdfast history --ps=localhost:2222 --csv > history.csv

The job is named by one of --ps, --cluster_spec and --run_dir, or else by the
environment variable TF_CONFIG, in TensorFlow's form.

Exits 0 when the history has been printed, 1 when the job could not be reached, 2 for
wrong flags.

)";

// The number of events shown by `status`.
constexpr int kEventsShown = 5;
constexpr absl::Duration kFollowPeriod = absl::Milliseconds(500);
constexpr uint32_t kMaxPoints = 10000;

struct StatusFlags {
  ClusterAddress cluster;
  bool json = false;
};

struct EventsFlags {
  ClusterAddress cluster;
  bool json = false;
  bool follow = false;
};

struct HistoryFlags {
  ClusterAddress cluster;
  bool csv = false;
  uint32_t max_points = 0;
};

FlagSet MakeFlagSet(StatusFlags* flags) {
  FlagSet set;
  set.Add("json", "", &flags->json, "Print JSON instead of a screen.");
  flags->cluster.AddTo(&set);
  return set;
}

FlagSet MakeFlagSet(EventsFlags* flags) {
  FlagSet set;
  set.Add("follow", "", &flags->follow,
          "Continue to print events as they happen, until the job ends.");
  set.Add("json", "", &flags->json,
          "Print each event as JSON, with the field names of Event in\n"
          "proto/coordinator.proto.");
  flags->cluster.AddTo(&set);
  return set;
}

FlagSet MakeFlagSet(HistoryFlags* flags) {
  FlagSet set;
  set.Add("csv", "", &flags->csv,
          "Print comma-separated values instead of aligned columns.");
  set.Add("max_points", "NUMBER", &flags->max_points,
          "Maximum number of points to print, evenly thinned, 1 to 10000.\n"
          "Default: all.");
  flags->cluster.AddTo(&set);
  return set;
}

absl::Status Status(const StatusFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            ConnectAsOperator(flags.cluster));
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto status,
      cluster->GetStatus(SteadyNow() + flags.cluster.timeout));
  if (flags.json) {
    std::cout << ToJson(status) << std::endl;
    return absl::OkStatus();
  }
  const auto events =
      cluster->GetEvents(0, SteadyNow() + flags.cluster.timeout);
  // A ps of an older version does not support events.
  if (!events.ok() && !absl::IsUnimplemented(events.status())) {
    return events.status();
  }
  std::vector<proto::Event> last;
  if (events.ok()) {
    const int size = events->events_size();
    last.assign(events->events().begin() + std::max(size - kEventsShown, 0),
                events->events().end());
  }
  const bool styled = isatty(STDOUT_FILENO);
  for (const ViewLine& line : StatusView(status, last, absl::LocalTimeZone())) {
    std::cout << Verbatim{styled ? StyledText(line) : line.text} << "\n";
  }
  std::cout << std::flush;
  return absl::OkStatus();
}

// Whether nothing more can happen to a job after the event.
bool IsLast(const proto::Event& event) {
  return event.kind() == proto::Event::DONE ||
         event.kind() == proto::Event::FAILED ||
         event.kind() == proto::Event::STOPPED;
}

absl::Status Events(const EventsFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            ConnectAsOperator(flags.cluster));
  uint64_t after = 0;
  for (;;) {
    // Waits this long for a coordinator that is being restarted.
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto events,
        cluster->GetEvents(after, SteadyNow() + flags.cluster.timeout));
    bool ended = false;
    for (const proto::Event& event : events.events()) {
      std::cout << (flags.json ? ToJson(event)
                               : EventText(event, absl::LocalTimeZone(),
                                           /*with_date=*/true))
                << "\n";
      after = event.number();
      ended = IsLast(event);
    }
    std::cout << std::flush;
    if (!flags.follow || ended) return absl::OkStatus();
    absl::SleepFor(kFollowPeriod);
  }
}

absl::Status History(const HistoryFlags& flags) {
  if (flags.max_points > kMaxPoints) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_points=", flags.max_points, ": must be from 1 to ", kMaxPoints));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            ConnectAsOperator(flags.cluster));
  proto::GetHistoryRequest request;
  request.set_max_points(flags.max_points);
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto history,
      cluster->GetHistory(request, SteadyNow() + flags.cluster.timeout));
  std::cout << (flags.csv ? HistoryCsv(history)
                          : HistoryTable(history, absl::LocalTimeZone()))
            << std::flush;
  return absl::OkStatus();
}

}  // namespace

int StatusCommand(const std::vector<std::string>& args) {
  StatusFlags flags;
  return RunCommand("status", kStatusUsage, MakeFlagSet(&flags), args,
                    [&] { return Status(flags); });
}

int EventsCommand(const std::vector<std::string>& args) {
  EventsFlags flags;
  return RunCommand("events", kEventsUsage, MakeFlagSet(&flags), args,
                    [&] { return Events(flags); });
}

int HistoryCommand(const std::vector<std::string>& args) {
  HistoryFlags flags;
  return RunCommand("history", kHistoryUsage, MakeFlagSet(&flags), args,
                    [&] { return History(flags); });
}

std::vector<CommandWords> StatusWords() {
  StatusFlags status;
  EventsFlags events;
  HistoryFlags history;
  return {{"status", MakeFlagSet(&status).Names()},
          {"events", MakeFlagSet(&events).Names()},
          {"history", MakeFlagSet(&history).Names()}};
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/top.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/cluster_address.h"
#include "cli/command.h"
#include "cli/job_view.h"
#include "cli/signal_watch.h"
#include "cli/status_watch.h"
#include "cli/terminal.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/job/task_id.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast top [flags]: shows a running job live on a terminal

Shows the output of `holdfast status`, redrawn in place, with the slowest workers
first, cut to the size of the terminal. q or Ctrl-C ends it. A job that does not
answer is asked again, and the first line says for how long it has been silent.

  holdfast top --run_dir=runs/first
  holdfast top --ps=ps-0.example:2222 --tls_dir=tls/operator-0 --interval=5s

The job is named by one of --ps, --cluster_spec and --run_dir, or else by the
environment variable TF_CONFIG, in TensorFlow's form.

Exits 0 after q, 1 when the job could not be reached at first or there is no
terminal, 2 for wrong flags, 130 after Ctrl-C.

)";

constexpr absl::Duration kMinInterval = absl::Milliseconds(100);
// As many events as fit on a screen.
constexpr int kEvents = 50;

struct TopFlags {
  ClusterAddress cluster;
  absl::Duration interval = absl::Seconds(1);
};

FlagSet MakeFlagSet(TopFlags* flags) {
  FlagSet set;
  set.Add("interval", "DURATION", &flags->interval,
          "Time between updates, at least 100ms. Default: 1s.");
  flags->cluster.AddTo(&set);
  return set;
}

// Shows one job until the user ends it.
class Top {
 public:
  Top(std::string address, absl::Duration interval,
      proto::GetStatusResponse first, Terminal* terminal, SignalWatch* signals,
      StatusWatch* watch)
      : address_(std::move(address)),
        interval_(interval),
        terminal_(*terminal),
        signals_(*signals),
        watch_(*watch),
        latest_(std::move(first)),
        heard_(SteadyNow()) {}

  // Errors: CANCELLED when a signal has ended it.
  absl::Status Run() {
    terminal_.Enter();
    for (;;) {
      Draw();
      const std::set<int> signals =
          signals_.Wait({watch_.fd(), STDIN_FILENO}, SteadyNow() + interval_);
      if (signals.count(SIGINT) + signals.count(SIGTERM) +
          signals.count(SIGHUP)) {
        return absl::CancelledError("interrupted");
      }
      if (signals.count(SIGTSTP)) Suspend();
      const std::optional<std::string> keys = terminal_.ReadKeys();
      if (!keys.has_value() || keys->find_first_of("qQ") != std::string::npos) {
        return absl::OkStatus();
      }
      if (auto status = watch_.Take()) {
        latest_ = *std::move(status);
        heard_ = SteadyNow();
      }
    }
  }

 private:
  void Draw() {
    const TerminalSize size = terminal_.size();
    std::string title = absl::StrCat(
        "holdfast top  ", address_, "  ",
        absl::FormatTime("%H:%M:%S", DateNow(), absl::LocalTimeZone()),
        "  q: quit");
    const absl::Status status = watch_.status();
    if (!status.ok()) {
      title = absl::StrCat("holdfast top  ", address_, "  no answer for ",
                           absl::FormatDuration(absl::Floor(
                               SteadyNow() - heard_, absl::Seconds(1))),
                           ": ", status.message());
    }
    terminal_.Draw(TopView(latest_, watch_.Events(), absl::LocalTimeZone(),
                           title, size.width, size.height),
                   size);
  }

  // Returns the terminal to the shell, and stops this process until it is
  // continued (Ctrl-Z, and `fg`).
  void Suspend() {
    terminal_.Leave();
    raise(SIGSTOP);
    terminal_.Enter();
  }

  const std::string address_;
  const absl::Duration interval_;
  Terminal& terminal_;
  SignalWatch& signals_;
  StatusWatch& watch_;
  proto::GetStatusResponse latest_;
  absl::Time heard_;
};

absl::Status RunTop(const TopFlags& flags) {
  if (flags.interval < kMinInterval) {
    return absl::InvalidArgumentError(
        absl::StrCat("--interval=", absl::FormatDuration(flags.interval),
                     ": at least ", absl::FormatDuration(kMinInterval)));
  }
  const char* tf_config = std::getenv("TF_CONFIG");
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto options,
      ResolveClusterAddress(flags.cluster,
                            tf_config == nullptr ? "" : tf_config));
  const auto terminal = Terminal::Open();
  if (!terminal.ok()) {
    return absl::Status(
        terminal.status().code(),
        absl::StrCat(terminal.status().message(),
                     "; `holdfast status` prints the same information once"));
  }
  // Must exist before the second thread.
  SignalWatch signals({SIGWINCH, SIGTSTP});
  // If the job cannot be reached, the error must appear on the normal screen.
  HOLDFAST_ASSIGN_OR_RETURN(const auto reached,
                            ConnectAsOperator(flags.cluster));
  HOLDFAST_ASSIGN_OR_RETURN(
      auto first, reached->GetStatus(SteadyNow() + flags.cluster.timeout));
  StatusWatch watch(options.cluster, options.credentials, flags.interval,
                    kEvents);
  absl::Status status;
  {
    Top top(*options.cluster.Address({kPsJob, 0}), flags.interval,
            std::move(first), terminal->get(), &signals, &watch);
    status = top.Run();
  }
  // Done before the watch is destroyed, which may wait for a call; and after
  // Ctrl-C as well as after q.
  (*terminal)->Leave();
  return status;
}

}  // namespace

int TopCommand(const std::vector<std::string>& args) {
  TopFlags flags;
  return RunCommand("top", kUsage, MakeFlagSet(&flags), args,
                    [&] { return RunTop(flags); });
}

std::vector<CommandWords> TopWords() {
  TopFlags flags;
  return {{"top", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast

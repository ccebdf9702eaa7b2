// SPDX-License-Identifier: Apache-2.0
#include "cli/stop.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/cluster_address.h"
#include "cli/command.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast stop [flags]: stops a running job so that it can go on later

No new step begins. Work in flight is decided: a complete step is committed; the
batches of an incomplete step are used again. Then a checkpoint is saved, and every
task ends with exit code 0. When the job is started again with the same commands and
the same checkpoint directory, it goes on from there.

  holdfast stop --run_dir=runs/first
  holdfast stop --ps=ps-0.example:2222 --tls_dir=tls/operator-0
  holdfast stop --cluster_spec=cluster.json --without_checkpoint

The job is named by one of --ps, --cluster_spec and --run_dir, or else by the
environment variable TF_CONFIG, in TensorFlow's form.

Waits until the job has stopped; repeating the command continues to wait. If ps 0 is
restarted in the meantime, the new process is asked, unless the job had already
stopped.

Exits 0 when the job has stopped, or was done; 1 when it has failed, has no
checkpoint directory, could not be reached, or has not stopped within --wait, in which
case it is still stopping; 2 for wrong flags.

)";

struct StopFlags {
  ClusterAddress cluster;
  bool without_checkpoint = false;
  absl::Duration wait = absl::Minutes(10);
};

FlagSet MakeFlagSet(StopFlags* flags) {
  FlagSet set;
  set.Add(
      "without_checkpoint", "", &flags->without_checkpoint,
      "Save nothing: progress since the last checkpoint is lost. For a job\n"
      "without a checkpoint directory, or with a full disk.");
  set.Add("wait", "DURATION", &flags->wait,
          "How long to wait until the job has stopped. Default: 10m.");
  flags->cluster.AddTo(&set);
  return set;
}

// One execution of the command.
class Stopping {
 public:
  Stopping(const StopFlags& flags, Cluster* cluster)
      : flags_(flags), cluster_(*cluster), deadline_(SteadyNow() + flags.wait) {
    request_.set_without_checkpoint(flags.without_checkpoint);
  }

  absl::Status Run() {
    HOLDFAST_ASSIGN_OR_RETURN(const auto status,
                              cluster_.GetStatus(AnswerDeadline()));
    request_.set_generation(status.generation());
    HOLDFAST_ASSIGN_OR_RETURN(const auto events,
                              cluster_.GetEvents(0, AnswerDeadline()));
    if (!events.events().empty()) {
      last_event_ = events.events().rbegin()->number();
    }
    for (;;) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto ended, Ask());
      if (ended) return absl::OkStatus();
      if (SteadyNow() < deadline_) {
        absl::SleepFor(kPause);
        continue;
      }
      return absl::DeadlineExceededError(absl::StrCat(
          "the job has not stopped within ", absl::FormatDuration(flags_.wait),
          ": it waits for ", waiting_for_,
          "; it is still stopping, and the same command continues to wait"));
    }
  }

 private:
  absl::Time AnswerDeadline() const {
    return SteadyNow() + flags_.cluster.timeout;
  }

  // Asks once. Returns true if the job has ended successfully, after printing
  // how. Errors end the command.
  absl::StatusOr<bool> Ask() {
    const absl::Duration park =
        std::clamp(deadline_ - SteadyNow(), kPause, kPark);
    request_.set_wait_ms(absl::ToInt64Milliseconds(park));
    const auto answer = cluster_.StopJob(request_, AnswerDeadline() + park);
    if (!answer.ok()) {
      if (!absl::IsUnavailable(answer.status()) &&
          !absl::IsDeadlineExceeded(answer.status())) {
        return answer.status();
      }
      waiting_for_ = std::string(answer.status().message());
      Say(absl::StrCat("ps 0 does not answer; asking again: ", waiting_for_));
      return false;
    }
    const proto::JobState& state = answer->state();
    switch (state.phase()) {
      case proto::STOPPED:
        std::cout << Sentence(state.reason()) << std::endl;
        return true;
      case proto::DONE:
        std::cout << "The job is done, at step " << answer->step()
                  << ": there was nothing to stop." << std::endl;
        return true;
      case proto::FAILED:
        return absl::AbortedError(
            absl::StrCat("the job has failed: ", state.reason()));
      default:
        break;
    }
    if (answer->generation() != request_.generation()) {
      return OnLaterGeneration(*answer);
    }
    waiting_for_ = answer->waiting_for();
    Say(absl::StrCat("stopping at step ", answer->step(), ": waiting for ",
                     waiting_for_));
    return false;
  }

  // A ps has lost its state. If it was ps 0, it may have lost the request to
  // stop as well; or the job was stopped, and the answer was lost.
  absl::StatusOr<bool> OnLaterGeneration(const proto::StopResponse& answer) {
    const auto events = cluster_.GetEvents(last_event_, AnswerDeadline());
    if (!events.ok()) return false;
    for (const proto::Event& event : events->events()) {
      if (event.kind() != proto::Event::STOPPED) continue;
      std::cout << Sentence(event.text())
                << " It has been started again since, and is at step "
                << answer.step() << "." << std::endl;
      return true;
    }
    Say(absl::StrCat("the job went back to an earlier step (generation ",
                     answer.generation(), "); asking again"));
    request_.set_generation(answer.generation());
    return false;
  }

  // Such as "The job was stopped at step 7."
  static std::string Sentence(std::string text) {
    if (!text.empty()) text[0] = absl::ascii_toupper(text[0]);
    return text + ".";
  }

  // Prints `text` on standard error if it has changed.
  void Say(const std::string& text) {
    if (std::exchange(said_, text) != text) {
      std::cerr << "holdfast stop: " << text << std::endl;
    }
  }

  // How long one call is parked, and the pause before it is repeated.
  static constexpr absl::Duration kPark = absl::Seconds(5);
  static constexpr absl::Duration kPause = absl::Milliseconds(50);

  const StopFlags& flags_;
  Cluster& cluster_;
  const absl::Time deadline_;
  proto::StopRequest request_;
  // The last event before the job was asked to stop.
  uint64_t last_event_ = 0;
  std::string waiting_for_;
  std::string said_;
};

absl::Status Stop(const StopFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            ConnectAsOperator(flags.cluster));
  return Stopping(flags, cluster.get()).Run();
}

}  // namespace

int StopCommand(const std::vector<std::string>& args) {
  StopFlags flags;
  return RunCommand("stop", kUsage, MakeFlagSet(&flags), args,
                    [&] { return Stop(flags); });
}

std::vector<CommandWords> StopWords() {
  StopFlags flags;
  return {{"stop", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/set.h"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/cluster_address.h"
#include "cli/command.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

constexpr char kUsage[] =
    R"(holdfast set learning_rate_factor=NUMBER [flags]: changes a running job

The learning rates that the schedules of all optimizers give are multiplied by NUMBER
from a step on, the same step on every ps, until the factor is set again; 1 undoes the
change. In an asynchronous job the step is the index of a ticket; tickets already
handed out keep their rates. The change is kept with the checkpoints, and still
applies when the job goes back to one or is resumed.

  holdfast set learning_rate_factor=0.1 --run_dir=runs/first
  holdfast set learning_rate_factor=0.1 --at_step=20000 --ps=ps-0.example:2222

The job is named by one of --ps, --cluster_spec and --run_dir or, if none is given, by
the environment variable TF_CONFIG, in TensorFlow's form.

Prints the step from which the factor applies, once the change is on disk. Exits 0
then; 1 when the job refused the change, or could not be reached; 2 for wrong flags.

)";

constexpr absl::string_view kFactor = "learning_rate_factor";
// Maximum of LearningRateChange.factor.
constexpr float kMaxFactor = 1e6;

struct SetFlags {
  ClusterAddress cluster;
  std::optional<uint64_t> at_step;
};

FlagSet MakeFlagSet(SetFlags* flags) {
  FlagSet set;
  set.Add("at_step", "NUMBER", &flags->at_step,
          "The first step with the factor. Default: the first possible step.");
  flags->cluster.AddTo(&set);
  return set;
}

// The value of `word`, learning_rate_factor=NUMBER.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<float> ParseFactor(absl::string_view word) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  if (parts.first != kFactor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", parts.first, "\": only ", kFactor,
        " can be set; to change something else, edit the job file and start "
        "the job again with it (docs/protocol/recovery.md)"));
  }
  if (!absl::StrContains(word, '=')) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFactor, " needs a value, such as ", kFactor, "=0.1"));
  }
  float factor;
  if (!absl::SimpleAtof(parts.second, &factor) || !std::isfinite(factor) ||
      factor < 0 || factor > kMaxFactor) {
    return absl::InvalidArgumentError(absl::StrCat(
        word, ": must be a number from 0 to 1000000, such as 0.1 for a tenth"));
  }
  return factor;
}

absl::Status Set(const std::optional<std::string>& word,
                 const SetFlags& flags) {
  if (!word.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the setting is required, before the flags: ", kFactor, "=NUMBER"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto factor, ParseFactor(*word));
  HOLDFAST_ASSIGN_OR_RETURN(const auto cluster,
                            ConnectAsOperator(flags.cluster));
  proto::SetLearningRateRequest request;
  request.set_factor(factor);
  if (flags.at_step.has_value()) request.set_at_step(*flags.at_step);
  const auto set =
      cluster->SetLearningRate(request, SteadyNow() + flags.cluster.timeout);
  if (absl::IsUnavailable(set.status()) ||
      absl::IsDeadlineExceeded(set.status())) {
    return absl::Status(set.status().code(),
                        absl::StrCat(set.status().message(),
                                     "; it is not known whether the factor was "
                                     "set: check with `holdfast status`"));
  }
  if (!set.ok()) return set.status();
  std::cout << "The learning rates are multiplied by " << factor
            << " from step " << set->step() << " on." << std::endl;
  return absl::OkStatus();
}

}  // namespace

int SetCommand(const std::vector<std::string>& args) {
  std::optional<std::string> word;
  std::vector<std::string> rest = args;
  if (!rest.empty() && !absl::StartsWith(rest[0], "--")) {
    word = std::move(rest[0]);
    rest.erase(rest.begin());
  }
  SetFlags flags;
  return RunCommand("set", kUsage, MakeFlagSet(&flags), rest,
                    [&] { return Set(word, flags); });
}

std::vector<CommandWords> SetWords() {
  SetFlags flags;
  return {{"set", MakeFlagSet(&flags).Names()}};
}

}  // namespace holdfast

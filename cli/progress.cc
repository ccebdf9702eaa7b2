// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/units.h"
#include "common/base/printable_text.h"

namespace holdfast {
namespace {

// Moves to the first column, and erases the line.
constexpr char kRewrite[] = "\r\033[K";

// What the job is waiting for, without the progress, which changes all the
// time.
absl::string_view WaitOf(const proto::GetStatusResponse& status) {
  const absl::string_view wait = status.waiting_for();
  return status.disk_progress().empty() ? wait : wait.substr(0, wait.find('('));
}

// Such as "checkpoint 40%" or "restoring 40%"; empty if no disk is in use.
std::string DiskProgressOf(const proto::GetStatusResponse& status) {
  double done = 0;
  double total = 0;
  for (const proto::DiskProgress& progress : status.disk_progress()) {
    done += progress.bytes_done();
    total += progress.bytes_total();
  }
  if (total == 0) return "";
  const bool restores = status.state().phase() == proto::STARTING;
  return absl::StrFormat("%s %.0f%%", restores ? "restoring" : "checkpoint",
                         std::floor(100 * done / total));
}

std::string StepOf(const proto::GetStatusResponse& status) {
  if (status.total_steps() == 0) return "";
  return absl::StrFormat("step %d/%d %d%%", status.global_step(),
                         status.total_steps(),
                         100 * status.global_step() / status.total_steps());
}

}  // namespace

std::string FormatTimeLeft(absl::Duration left) {
  const int64_t seconds = absl::ToInt64Seconds(
      absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Seconds(1)));
  if (seconds >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60,
                           seconds % 60);
  }
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

std::string ProgressDisplay::Update(const proto::GetStatusResponse& status,
                                    absl::Time now) {
  const std::string recovery = Recovery(status);
  const std::string before = absl::StrCat(recovery, Warnings(status));
  // The wait for the first step does not count for the speed.
  if (status.state().phase() != proto::TRAINING || status.global_step() == 0 ||
      !recovery.empty()) {
    samples_.clear();
  } else {
    samples_.push_back({now, status.global_step(), status.examples()});
  }
  while (samples_.size() > 2 &&
         now - samples_.front().time > options_.rate_window) {
    samples_.pop_front();
  }

  if (options_.terminal) {
    std::string line = CutText(Line(status), std::max(options_.width - 1, 1));
    if (line == shown_ && before.empty()) return "";
    shown_ = std::move(line);
    return absl::StrCat(kRewrite, before, shown_);
  }

  if (!PlainLineIsDue(status, now)) return before;
  last_plain_ = now;
  last_phase_ = status.state().phase();
  last_evaluated_ = status.evaluation().step();
  last_waiting_ = std::string(WaitOf(status));
  std::string line = Line(status);
  if (line == shown_) return before;
  shown_ = std::move(line);
  return absl::StrCat(before, shown_, "\n");
}

std::string ProgressDisplay::Recovery(const proto::GetStatusResponse& status) {
  if (status.generation() <= last_generation_) return "";
  last_generation_ = status.generation();
  if (status.recovered().empty()) return "";
  return absl::StrCat("recovers: ", PrintableText(status.recovered()), "\n");
}

std::string ProgressDisplay::Warnings(const proto::GetStatusResponse& status) {
  std::string warnings;
  // With loss scaling, some gradients overflow until a suitable scale is found.
  if (!warned_of_not_finite_ && status.pushes().not_finite() > 0 &&
      status.loss_scale() == 0) {
    warned_of_not_finite_ = true;
    warnings =
        "warning: a loss or gradient was not a finite number and changed "
        "nothing: the job may be diverging\n";
  }
  if (status.global_step() > watched_step_ && status.has_train_loss()) {
    watched_step_ = status.global_step();
    const std::string exploded = loss_watch_.Add(status.train_loss());
    if (!exploded.empty()) {
      absl::StrAppend(&warnings, "warning: ", exploded, "\n");
    }
  }
  return warnings;
}

std::string ProgressDisplay::Between(absl::string_view lines) const {
  if (!options_.terminal || lines.empty()) return std::string(lines);
  return absl::StrCat(kRewrite, lines, shown_);
}

std::string ProgressDisplay::Finish() {
  if (!options_.terminal || shown_.empty()) return "";
  shown_.clear();
  return "\n";
}

bool ProgressDisplay::PlainLineIsDue(const proto::GetStatusResponse& status,
                                     absl::Time now) const {
  return now - last_plain_ >= options_.plain_interval ||
         status.state().phase() != last_phase_ ||
         status.evaluation().step() != last_evaluated_ ||
         (WaitOf(status) != last_waiting_ && !status.waiting_for().empty());
}

std::string ProgressDisplay::Line(
    const proto::GetStatusResponse& status) const {
  std::vector<std::string> parts;
  const proto::JobPhase phase = status.state().phase();
  if (phase == proto::STARTING) parts.push_back("starting");
  if (phase == proto::FAILED) parts.push_back("failed");
  if (phase == proto::STOPPING) parts.push_back("stopping");
  if (std::string step = StepOf(status); !step.empty()) parts.push_back(step);
  if (status.global_step() > 0 && status.has_train_loss()) {
    parts.push_back(absl::StrFormat("loss %.4f", status.train_loss()));
  }
  if (const uint64_t count = status.pushes().not_finite(); count > 0) {
    parts.push_back(absl::StrCat(count, " not finite"));
  }
  if (phase == proto::TRAINING && !samples_.empty()) {
    const Sample& first = samples_.front();
    const Sample& last = samples_.back();
    const double seconds = absl::ToDoubleSeconds(last.time - first.time);
    if (seconds > 0) {
      parts.push_back(absl::StrFormat(
          "%.0f examples/s", (last.examples - first.examples) / seconds));
    }
    if (seconds > 0 && last.step > first.step) {
      const double steps_left = status.total_steps() - status.global_step();
      const absl::Duration left = absl::Seconds(
          steps_left * seconds / static_cast<double>(last.step - first.step));
      parts.push_back(absl::StrCat(FormatTimeLeft(left), " left"));
    }
  }
  if (std::string disk = DiskProgressOf(status); !disk.empty()) {
    parts.push_back(std::move(disk));
  }
  if (phase == proto::TRAINING) {
    double input_wait = -1;
    for (const proto::TaskStatus& task : status.tasks()) {
      if (!task.alive() || !task.has_input_wait()) continue;
      input_wait = std::max(input_wait, task.input_wait().recent());
    }
    if (input_wait >= 0) {
      parts.push_back(absl::StrFormat("input %.0f%%", 100 * input_wait));
    }
  }
  const proto::EvaluationResult& evaluation = status.evaluation();
  if (evaluation.has_accuracy()) {
    parts.push_back(absl::StrFormat("accuracy %.4f (step %d)",
                                    evaluation.accuracy(), evaluation.step()));
  } else if (evaluation.has_mean_absolute_error()) {
    parts.push_back(absl::StrFormat("error %.4f (step %d)",
                                    evaluation.mean_absolute_error(),
                                    evaluation.step()));
  }
  if (!status.checkpoint_error().empty()) {
    parts.push_back(absl::StrCat("not saved: ", status.checkpoint_error()));
  } else if ((phase == proto::TRAINING || phase == proto::STOPPING) &&
             status.durable_step() > 0) {
    parts.push_back(absl::StrCat("saved ", status.durable_step()));
  }
  if (phase == proto::DONE) parts.push_back("done");
  if (phase == proto::FAILED || phase == proto::STOPPED) {
    parts.push_back(status.state().reason());
  } else if (!status.waiting_for().empty()) {
    parts.push_back(absl::StrCat("waiting for ", status.waiting_for()));
  }
  return PrintableText(absl::StrJoin(parts, "  "));
}

}  // namespace holdfast

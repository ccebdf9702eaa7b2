// SPDX-License-Identifier: Apache-2.0
#include "cli/job_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"
#include "common/base/printable_text.h"
#include "common/job/evaluation_figures.h"
#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/process/log_event.h"

namespace holdfast {
namespace {

using proto::GetStatusResponse;
using proto::TaskStatus;

// The status page has the same bounds.
constexpr double kSilentShareOfLease = 2.0 / 3;
constexpr double kInputWaitShare = 0.5;
constexpr double kInputWaitSeconds = 5;
constexpr double kSaveSecondsJudged = 1;
constexpr double kSlowDisk = 10 << 20;  // bytes a second
constexpr double kMemoryShare = 0.9;
// The system's message for ENOSPC.
constexpr char kFullDisk[] = "No space left on device";
// Workers whose time per push is within these factors of the median count as
// equally fast.
constexpr double kAlikeFrom = 0.8;
constexpr double kAlikeTo = 1.25;
constexpr double kStandstillSeconds = 5;
constexpr double kStandstillSteps = 10;

constexpr int kBarWidth = 20;
// Columns whose values change all the time keep the width of most values.
constexpr size_t kSecondsWidth = 6;  // "123 ms"
constexpr size_t kBytesWidth = 9;    // "123.4 MiB"
constexpr size_t kWaitWidth = 14;    // "verdict 123 ms"
constexpr size_t kMostlyWidth = 11;  // "verdict 12%"
constexpr char kIndent[] = "  ";

// ---- Reading the message ----

bool IsPs(const TaskStatus& task) { return task.task().job() == kPsJob; }

bool IsTraining(const GetStatusResponse& status) {
  return status.state().phase() == proto::TRAINING;
}

bool IsOver(const GetStatusResponse& status) {
  return IsEnd(status.state().phase());
}

bool IsSilent(const TaskStatus& task, const GetStatusResponse& status) {
  return task.alive() && task.has_silent_seconds() &&
         status.lease_seconds() > 0 &&
         task.silent_seconds() > kSilentShareOfLease * status.lease_seconds();
}

bool IsLost(const TaskStatus& task, const GetStatusResponse& status) {
  return !task.alive() && !IsOver(status);
}

std::string StateOf(const TaskStatus& task, const GetStatusResponse& status) {
  if (!task.alive()) return IsOver(status) ? "gone" : "lost";
  if (IsSilent(task, status)) return "silent";
  return task.pace().slow() ? "slow" : "ok";
}

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

uint64_t MemoryOf(const proto::MemoryUse& memory) {
  return memory.values() + memory.slots() + memory.versions() +
         memory.pushes() + memory.tables();
}

// Bytes per second; nothing if the ps has written too little to tell.
std::optional<double> SaveSpeed(const TaskStatus& task) {
  const proto::PsReport& ps = task.ps();
  if (ps.save_bytes() == 0 || ps.save_seconds() <= 0) return std::nullopt;
  return static_cast<double>(ps.save_bytes()) / ps.save_seconds();
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f%%", 100 * share);
}

// Whether the job has been waiting for something for longer than usual.
bool IsStalled(const GetStatusResponse& status) {
  const double step_seconds =
      status.global_step() == 0 ? 0
                                : status.training_seconds() /
                                      static_cast<double>(status.global_step());
  return IsTraining(status) && !status.waiting_for().empty() &&
         status.seconds_since_progress() >
             std::max(kStandstillSeconds, kStandstillSteps * step_seconds);
}

// ---- Attention ----

void AddSlowWorkers(const GetStatusResponse& status,
                    std::vector<std::string>* all) {
  std::vector<double> paces;
  for (const TaskStatus& task : status.tasks()) {
    const double seconds = task.pace().seconds_per_push();
    if (task.alive() && seconds > 0) paces.push_back(seconds);
  }
  const std::optional<double> median = Median(paces);
  for (const TaskStatus& task : status.tasks()) {
    if (!task.alive() || !task.pace().slow()) continue;
    std::string text = absl::StrCat(TaskText(task.task()), " is slow");
    if (const double seconds = task.pace().seconds_per_push(); seconds > 0) {
      absl::StrAppend(&text, ": ", SecondsText(seconds),
                      " per push, where the median is ", SecondsText(*median));
    }
    all->push_back(std::move(text));
  }
}

void AddInputWaits(const GetStatusResponse& status,
                   std::vector<std::string>* all) {
  if (!IsTraining(status)) return;
  for (const TaskStatus& task : status.tasks()) {
    if (!task.alive()) continue;
    const std::string name = TaskText(task.task());
    const proto::WorkerReport& worker = task.worker();
    if (worker.waiting_for() == "input" &&
        worker.waiting_seconds() >= kInputWaitSeconds) {
      all->push_back(absl::StrCat(name, " has waited for its input for ",
                                  SecondsText(worker.waiting_seconds())));
    } else if (task.input_wait().recent() >= kInputWaitShare) {
      all->push_back(absl::StrCat(name, " waits for its input for ",
                                  Percent(task.input_wait().recent()),
                                  " of its time"));
    }
  }
}

void AddSlowDisks(const GetStatusResponse& status,
                  std::vector<std::string>* all) {
  for (const TaskStatus& task : status.tasks()) {
    const std::optional<double> speed = SaveSpeed(task);
    if (!speed.has_value() || task.ps().save_seconds() < kSaveSecondsJudged) {
      continue;
    }
    std::vector<double> others;
    for (const TaskStatus& other : status.tasks()) {
      const std::optional<double> its = SaveSpeed(other);
      if (&other != &task && its.has_value()) others.push_back(*its);
    }
    const std::optional<double> median = Median(others);
    const bool lags = median.has_value() && *speed < *median / 2;
    if (!lags && *speed >= kSlowDisk) continue;
    std::string text = absl::StrCat(
        TaskText(task.task()), " has a slow disk: it wrote its last share in ",
        SecondsText(task.ps().save_seconds()), ", at ",
        BytesText(static_cast<uint64_t>(*speed)), "/s");
    if (lags) {
      absl::StrAppend(&text, ", while the others write at ",
                      BytesText(static_cast<uint64_t>(*median)), "/s");
    }
    all->push_back(std::move(text));
  }
}

void AddMemory(const GetStatusResponse& status, std::vector<std::string>* all) {
  for (const TaskStatus& task : status.tasks()) {
    const proto::MemoryUse& memory = task.ps().memory();
    if (memory.limit() == 0) continue;
    const double share = static_cast<double>(MemoryOf(memory)) /
                         static_cast<double>(memory.limit());
    if (share < kMemoryShare) continue;
    all->push_back(absl::StrCat(TaskText(task.task()), " uses ", Percent(share),
                                " of its memory limit of ",
                                BytesText(memory.limit())));
  }
}

// ---- Overview ----

std::string PhaseText(const GetStatusResponse& status) {
  return status.state().phase() == proto::JOB_PHASE_UNSPECIFIED
             ? "unknown"
             : absl::AsciiStrToLower(
                   proto::JobPhase_Name(status.state().phase()));
}

std::string TimeLeft(const GetStatusResponse& status) {
  if (!IsTraining(status) || !(status.steps_per_second() > 0) ||
      status.global_step() >= status.total_steps() || IsStalled(status)) {
    return "";
  }
  const double seconds =
      static_cast<double>(status.total_steps() - status.global_step()) /
      status.steps_per_second();
  return absl::StrCat(", ", FormatTimeLeft(absl::Seconds(seconds)), " left");
}

std::string ProgressText(const GetStatusResponse& status) {
  std::string text = PhaseText(status);
  if (status.total_steps() > 0) {
    const double share =
        std::min(1.0, static_cast<double>(status.global_step()) /
                          static_cast<double>(status.total_steps()));
    const int done = static_cast<int>(share * kBarWidth);
    absl::StrAppend(&text, kIndent, "[", std::string(done, '#'),
                    std::string(kBarWidth - done, '.'), "] ",
                    // Shows 100 % only at the end.
                    absl::StrFormat("%.0f%%", std::floor(100 * share)),
                    "  step ", status.global_step(), " of ",
                    status.total_steps(), TimeLeft(status));
  }
  if (status.generation() > 1) {
    absl::StrAppend(&text, "  generation ", status.generation());
  }
  return text;
}

std::string LossText(const GetStatusResponse& status) {
  std::vector<std::string> parts;
  if (status.has_train_loss() && status.global_step() > 0) {
    parts.push_back(absl::StrFormat("%.4f", status.train_loss()));
  }
  if (status.has_evaluation()) {
    const proto::EvaluationResult& evaluation = status.evaluation();
    std::vector<std::string> scores = {
        absl::StrFormat("test loss %.4f", evaluation.loss())};
    for (const EvaluationFigure& figure : FiguresOf(evaluation)) {
      scores.push_back(absl::StrFormat("%s %.4f", figure.words, figure.value));
    }
    parts.push_back(absl::StrCat(absl::StrJoin(scores, ", "), " at step ",
                                 evaluation.step()));
  }
  return absl::StrJoin(parts, "; ");
}

std::string RateLine(const GetStatusResponse& status) {
  if (!IsTraining(status) || !(status.steps_per_second() > 0)) return "";
  return absl::StrCat(RateText(status.steps_per_second()), " steps/s, ",
                      RateText(status.examples_per_second()), " examples/s");
}

std::string ExamplesText(const GetStatusResponse& status) {
  if (status.examples() == 0) return "";
  std::string text = absl::StrCat(status.examples());
  if (status.training_seconds() > 0) {
    absl::StrAppend(&text, " in ", SecondsText(status.training_seconds()),
                    " of training");
  }
  const proto::PushCounts& pushes = status.pushes();
  const std::pair<const char*, uint64_t> unused[] = {
      {"stale", pushes.stale()},
      {"duplicate", pushes.duplicate()},
      {"fenced", pushes.fenced()},
      {"aborted", pushes.aborted()},
      {"not finite", pushes.not_finite()}};
  std::vector<std::string> counts;
  for (const auto& [name, count] : unused) {
    if (count > 0) counts.push_back(absl::StrCat(count, " ", name));
  }
  if (!counts.empty()) {
    absl::StrAppend(&text,
                    "; pushes without effect: ", absl::StrJoin(counts, ", "));
  }
  // All workers read the same rows, so their counts are not added up.
  uint64_t skipped = 0;
  for (const TaskStatus& task : status.tasks()) {
    skipped = std::max<uint64_t>(skipped, task.worker().skipped_rows());
  }
  if (skipped > 0) {
    absl::StrAppend(&text, "; ", skipped, skipped == 1 ? " row" : " rows",
                    " of the training set skipped");
  }
  return text;
}

// Mean duration of one of a step's phases.
std::string MeanText(const proto::DurationHistogram& durations) {
  const auto count = durations.counts();
  if (count.empty() || *count.rbegin() == 0) return "";
  return SecondsText(durations.sum_seconds() /
                     static_cast<double>(*count.rbegin()));
}

std::string StepTimeText(const GetStatusResponse& status) {
  const std::string collect = MeanText(status.step_times().collect());
  const std::string commit = MeanText(status.step_times().commit());
  if (collect.empty() || commit.empty()) return "";
  return absl::StrCat("mean ", collect, " until pushes are complete, ", commit,
                      " until they are committed");
}

std::string CheckpointText(const GetStatusResponse& status) {
  const proto::CheckpointCounts& counts = status.checkpoints();
  std::vector<std::string> parts;
  if (status.durable_step() > 0) {
    std::string newest =
        absl::StrCat("step ", status.durable_step(), " is on disk");
    if (counts.has_age_seconds()) {
      absl::StrAppend(&newest, ", written ", SecondsText(counts.age_seconds()),
                      " ago");
    }
    if (counts.last_bytes() > 0) {
      absl::StrAppend(&newest, " (", BytesText(counts.last_bytes()), " in ",
                      SecondsText(counts.last_seconds()), ")");
    }
    parts.push_back(std::move(newest));
  } else if (counts.written() + counts.failed() > 0) {
    parts.push_back("none is on disk");
  }
  if (counts.written() + counts.failed() > 0) {
    parts.push_back(absl::StrCat(
        counts.written(), " written", counts.failed() == 0 ? "" : ", ",
        counts.failed() == 0 ? "" : absl::StrCat(counts.failed(), " failed")));
  }
  double done = 0;
  double total = 0;
  for (const proto::DiskProgress& progress : status.disk_progress()) {
    done += static_cast<double>(progress.bytes_done());
    total += static_cast<double>(progress.bytes_total());
  }
  if (total > 0) {
    parts.push_back(absl::StrCat(
        status.state().phase() == proto::STARTING ? "being restored: "
                                                  : "being written: ",
        Percent(std::floor(100 * done / total) / 100)));
  }
  return absl::StrJoin(parts, "; ");
}

std::vector<ViewLine> Overview(const GetStatusResponse& status) {
  std::vector<ViewLine> lines = {{ProgressText(status), Emphasis::kHeading}};
  const std::pair<const char*, std::string> rows[] = {
      {"waits for", PrintableText(status.waiting_for())},
      {"rate", RateLine(status)},
      {"loss", LossText(status)},
      {"examples", ExamplesText(status)},
      {"step time", StepTimeText(status)},
      {"checkpoint", CheckpointText(status)},
      {"recovered", PrintableText(status.recovered())},
  };
  for (const auto& [name, value] : rows) {
    if (value.empty()) continue;
    lines.push_back({absl::StrFormat("%s%-11s %s", kIndent, name, value)});
  }
  return lines;
}

std::vector<ViewLine> AttentionLines(const GetStatusResponse& status) {
  std::vector<ViewLine> lines;
  for (const std::string& text : AttentionOf(status)) {
    if (lines.empty()) lines.push_back({"attention", Emphasis::kAlert});
    lines.push_back({absl::StrCat(kIndent, text), Emphasis::kAlert});
  }
  return lines;
}

// ---- Tables ----

using Tasks = std::vector<const TaskStatus*>;

Tasks TasksOf(const GetStatusResponse& status, bool ps) {
  Tasks tasks;
  for (const TaskStatus& task : status.tasks()) {
    if (IsPs(task) == ps) tasks.push_back(&task);
  }
  const auto key = [](const TaskStatus* task) {
    return std::make_tuple(task->task().job(), task->task().index());
  };
  std::sort(tasks.begin(), tasks.end(),
            [&](const auto* a, const auto* b) { return key(a) < key(b); });
  return tasks;
}

// Slowest tasks first, since these are looked for first. Tasks that are equally
// fast stay in their order, so that lines do not jump when the view is redrawn.
void SortBySlowness(const GetStatusResponse& status, Tasks* tasks) {
  std::vector<double> paces;
  for (const TaskStatus* task : *tasks) {
    paces.push_back(task->pace().seconds_per_push());
  }
  const double median = Median(paces).value_or(0);
  const auto rank = [&](double seconds) {
    return seconds > kAlikeFrom * median && seconds < kAlikeTo * median
               ? median
               : seconds;
  };
  const auto key = [&](const TaskStatus* task) {
    return std::make_tuple(!IsLost(*task, status), !IsSilent(*task, status),
                           !task->pace().slow(),
                           -rank(task->pace().seconds_per_push()));
  };
  std::stable_sort(
      tasks->begin(), tasks->end(),
      [&](const auto* a, const auto* b) { return key(a) < key(b); });
}

std::string SilentText(const TaskStatus& task) {
  return task.has_silent_seconds() ? SecondsText(task.silent_seconds()) : "";
}

std::string WaitText(const proto::WorkerReport& worker) {
  if (worker.waiting_for().empty()) return "";
  return absl::StrCat(PrintableText(worker.waiting_for()), " ",
                      SecondsText(worker.waiting_seconds()));
}

// The phase in which the worker spent most of its time, such as "compute 81%".
std::string MostlyText(const proto::PhaseSeconds& phases) {
  const std::pair<const char*, double> all[] = {
      {"input", phases.input()},     {"version", phases.version()},
      {"compute", phases.compute()}, {"push", phases.push()},
      {"verdict", phases.verdict()}, {"ticket", phases.ticket()}};
  double sum = 0;
  const std::pair<const char*, double>* most = &all[0];
  for (const auto& phase : all) {
    sum += phase.second;
    if (phase.second > most->second) most = &phase;
  }
  return sum > 0 ? absl::StrCat(most->first, " ", Percent(most->second / sum))
                 : "";
}

// The table as lines of the view; lines of tasks with a state other than "ok"
// are emphasized.
std::vector<ViewLine> LinesOf(const Table& table, const Tasks& tasks,
                              const GetStatusResponse& status) {
  std::vector<ViewLine> lines;
  const std::vector<std::string> text = table.Lines();
  lines.push_back({text[0], Emphasis::kHeading});
  for (size_t i = 0; i < tasks.size(); ++i) {
    const bool well = StateOf(*tasks[i], status) == "ok" || IsOver(status);
    lines.push_back({text[i + 1], well ? Emphasis::kNone : Emphasis::kAlert});
  }
  return lines;
}

std::vector<ViewLine> WorkerTable(const GetStatusResponse& status,
                                  const Tasks& tasks) {
  if (tasks.empty()) return {};
  std::map<std::string, const proto::WorkerCounts*> given;
  for (const proto::WorkerCounts& counts : status.workers()) {
    given[TaskText(counts.worker())] = &counts;
  }
  Table table({{"worker"},
               {"state"},
               {"silent", true, kSecondsWidth},
               {"per push", true},
               {"last", true},
               {"input", true},
               {"waits for", false, kWaitWidth},
               {"mostly", false, kMostlyWidth},
               {"pushes", true},
               {"examples", true},
               {"process"}});
  for (const TaskStatus* task : tasks) {
    const proto::WorkerPace& pace = task->pace();
    const std::string name = TaskText(task->task());
    const auto counts = given.find(name);
    const bool has_counts = counts != given.end();
    const bool has_pace = pace.seconds_per_push() > 0;
    // Asynchronous jobs have no last worker of a step.
    const bool has_last = has_pace && status.total_num_replicas() > 0;
    table.Add(
        {name, StateOf(*task, status), SilentText(*task),
         has_pace ? SecondsText(pace.seconds_per_push()) : "",
         has_last ? Percent(pace.last_share()) : "",
         task->has_input_wait() ? Percent(task->input_wait().recent()) : "",
         WaitText(task->worker()), MostlyText(task->worker().phases()),
         has_counts ? absl::StrCat(counts->second->pushes()) : "",
         has_counts ? absl::StrCat(counts->second->examples()) : "",
         PrintableText(task->process())});
  }
  return LinesOf(table, tasks, status);
}

std::vector<ViewLine> PsTable(const GetStatusResponse& status,
                              const Tasks& tasks) {
  if (tasks.empty()) return {};
  Table table({{"ps"},
               {"state"},
               {"silent", true, kSecondsWidth},
               {"memory", true, kBytesWidth},
               {"limit", true},
               {"used", true},
               {"values", true},
               {"update", true},
               {"received", true, kBytesWidth},
               {"sent", true, kBytesWidth},
               {"links", true},
               {"lent", true, kBytesWidth},
               {"shared", true, kBytesWidth},
               {"save", true, kSecondsWidth},
               {"process"}});
  for (const TaskStatus* task : tasks) {
    const proto::PsReport& ps = task->ps();
    const uint64_t limit = ps.memory().limit();
    const proto::SharedMemoryUse& shared = ps.shared_memory();
    const uint64_t passed = shared.received_bytes() + shared.sent_bytes();
    const bool shares = shared.links() > 0 || passed > 0;
    const bool known = task->has_ps();
    const auto bytes = [&](uint64_t count) {
      return known ? BytesText(count) : "";
    };
    table.Add({TaskText(task->task()), StateOf(*task, status),
               SilentText(*task), bytes(MemoryOf(ps.memory())),
               limit > 0 ? BytesText(limit) : "",
               limit > 0 ? Percent(static_cast<double>(MemoryOf(ps.memory())) /
                                   static_cast<double>(limit))
                         : "",
               bytes(ps.held_bytes()),
               ps.updates() > 0 ? SecondsText(ps.update_seconds() /
                                              static_cast<double>(ps.updates()))
                                : "",
               bytes(ps.received_bytes()), bytes(ps.sent_bytes()),
               shares ? absl::StrCat(shared.links()) : "",
               shares ? BytesText(shared.lent_bytes()) : "",
               shares ? BytesText(passed) : "",
               ps.save_bytes() > 0 ? SecondsText(ps.save_seconds()) : "",
               PrintableText(task->process())});
  }
  return LinesOf(table, tasks, status);
}

// For each embedding table, the sums over the ps that report it, in the order
// of the declaration.
std::vector<proto::TableReport> TablesOf(const GetStatusResponse& status) {
  std::vector<proto::TableReport> tables;
  for (const TaskStatus& task : status.tasks()) {
    for (const proto::TableReport& share : task.ps().tables()) {
      auto table = std::find_if(
          tables.begin(), tables.end(),
          [&](const auto& known) { return known.name() == share.name(); });
      if (table == tables.end()) {
        tables.push_back(share);
        continue;
      }
      table->set_rows(table->rows() + share.rows());
      table->set_candidates(table->candidates() + share.candidates());
      table->set_reads(table->reads() + share.reads());
      table->set_hits(table->hits() + share.hits());
      table->set_admissions(table->admissions() + share.admissions());
      table->set_expirations(table->expirations() + share.expirations());
      table->set_evictions(table->evictions() + share.evictions());
    }
  }
  return tables;
}

std::vector<ViewLine> EmbeddingTables(const GetStatusResponse& status) {
  const std::vector<proto::TableReport> tables = TablesOf(status);
  if (tables.empty()) return {};
  Table table({{"table"},
               {"rows", true},
               {"candidates", true},
               {"reads", true},
               {"found", true},
               {"admitted", true},
               {"expired", true},
               {"evicted", true}});
  for (const proto::TableReport& each : tables) {
    table.Add({PrintableText(each.name()), absl::StrCat(each.rows()),
               absl::StrCat(each.candidates()), absl::StrCat(each.reads()),
               each.reads() > 0 ? Percent(static_cast<double>(each.hits()) /
                                          static_cast<double>(each.reads()))
                                : "",
               absl::StrCat(each.admissions()),
               absl::StrCat(each.expirations()),
               absl::StrCat(each.evictions())});
  }
  std::vector<ViewLine> lines;
  for (std::string& text : table.Lines()) {
    lines.push_back({std::move(text),
                     lines.empty() ? Emphasis::kHeading : Emphasis::kNone});
  }
  return lines;
}

std::vector<ViewLine> EventLines(absl::Span<const proto::Event> events,
                                 const absl::TimeZone& zone) {
  std::vector<ViewLine> lines;
  if (events.empty()) return lines;
  lines.push_back({"events", Emphasis::kHeading});
  for (const proto::Event& event : events) {
    lines.push_back(
        {absl::StrCat(kIndent, EventText(event, zone, /*with_date=*/false))});
  }
  return lines;
}

// ---- Fitting the view ----

constexpr size_t kTopEvents = 5;
// Minimum number of lines for the attention section, with its heading; on
// larger screens it gets a quarter of the lines.
constexpr size_t kTopAttention = 3;

// The first lines of `table`, a heading and rows, at most `most`; the last line
// says how many rows are left out.
std::vector<ViewLine> FirstLines(std::vector<ViewLine> table, size_t most) {
  if (table.size() <= most) return table;
  if (most < 2) return {};
  const size_t left_out = table.size() - (most - 1);
  table.resize(most - 1);
  table.push_back({absl::StrCat(kIndent, "and ", left_out, " more")});
  return table;
}

void Append(std::vector<ViewLine> more, std::vector<ViewLine>* lines) {
  for (ViewLine& line : more) lines->push_back(std::move(line));
}

}  // namespace

std::vector<std::string> AttentionOf(const GetStatusResponse& status) {
  std::vector<std::string> all;
  if (status.state().phase() == proto::FAILED) {
    all.push_back(absl::StrCat("the job has failed: ",
                               PrintableText(status.state().reason())));
  }
  if (!status.checkpoint_error().empty()) {
    // Comes first, because the error may be longer than a line.
    const bool full = absl::StrContains(status.checkpoint_error(), kFullDisk);
    all.push_back(absl::StrCat(full ? "a disk is full: " : "",
                               "checkpoints cannot be written: ",
                               PrintableText(status.checkpoint_error())));
  }
  for (const TaskStatus& task : status.tasks()) {
    if (IsLost(task, status)) {
      all.push_back(absl::StrCat(TaskText(task.task()), " is lost"));
    } else if (IsSilent(task, status)) {
      all.push_back(absl::StrCat(TaskText(task.task()), " has been silent for ",
                                 SecondsText(task.silent_seconds())));
    }
  }
  AddSlowWorkers(status, &all);
  AddInputWaits(status, &all);
  AddSlowDisks(status, &all);
  AddMemory(status, &all);
  if (IsStalled(status)) {
    all.push_back(absl::StrCat(
        "no progress for ", SecondsText(status.seconds_since_progress()),
        ": the job waits for ", PrintableText(status.waiting_for())));
  }
  if ((status.has_train_loss() && !std::isfinite(status.train_loss())) ||
      (status.has_evaluation() && !std::isfinite(status.evaluation().loss()))) {
    all.push_back("the loss is not a finite number");
  }
  return all;
}

std::vector<ViewLine> StatusView(const GetStatusResponse& status,
                                 absl::Span<const proto::Event> events,
                                 const absl::TimeZone& zone) {
  std::vector<ViewLine> lines = Overview(status);
  for (std::vector<ViewLine> part :
       {AttentionLines(status),
        WorkerTable(status, TasksOf(status, /*ps=*/false)),
        PsTable(status, TasksOf(status, /*ps=*/true)), EmbeddingTables(status),
        EventLines(events, zone)}) {
    if (part.empty()) continue;
    lines.push_back({});
    Append(std::move(part), &lines);
  }
  return lines;
}

std::vector<ViewLine> TopView(const GetStatusResponse& status,
                              absl::Span<const proto::Event> events,
                              const absl::TimeZone& zone,
                              const std::string& title, int width, int height) {
  const size_t rows = std::max(height, 1);
  std::vector<ViewLine> lines = {{PrintableText(title)}};
  Append(Overview(status), &lines);
  const size_t for_attention = std::max(kTopAttention, rows / 4);
  Append(FirstLines(AttentionLines(status), for_attention), &lines);

  Tasks workers = TasksOf(status, /*ps=*/false);
  SortBySlowness(status, &workers);
  Tasks ps = TasksOf(status, /*ps=*/true);
  SortBySlowness(status, &ps);
  const std::vector<ViewLine> worker_table = WorkerTable(status, workers);
  const std::vector<ViewLine> ps_table = PsTable(status, ps);
  const std::vector<ViewLine> tables = EmbeddingTables(status);
  size_t room = rows - std::min(rows, lines.size());
  // Embedding tables get a quarter, or the space that the tasks leave.
  const size_t of_tasks = worker_table.size() + ps_table.size();
  const size_t for_tables = std::min(
      tables.size(), std::max(room / 4, room - std::min(room, of_tasks)));
  room -= for_tables;
  // The ps get a third, or the space that the workers leave.
  const size_t for_ps =
      std::min(ps_table.size(),
               std::max(room / 3, room - std::min(room, worker_table.size())));
  Append(FirstLines(worker_table, room - for_ps), &lines);
  Append(FirstLines(ps_table, for_ps), &lines);
  Append(FirstLines(tables, for_tables), &lines);
  if (rows > lines.size() + 1 && !events.empty()) {
    const size_t count =
        std::min({events.size(), kTopEvents, rows - lines.size() - 1});
    Append(EventLines(events.last(count), zone), &lines);
  }
  if (lines.size() > rows) lines.resize(rows);
  for (ViewLine& line : lines) {
    line.text = CutText(line.text, std::max(width, 0));
  }
  return lines;
}

std::string EventText(const proto::Event& event, const absl::TimeZone& zone,
                      bool with_date) {
  // Length of the longest kind.
  constexpr int kKindWidth = 17;
  return absl::StrFormat(
      "%s  step %-7d  %-*s  %s",
      absl::FormatTime(with_date ? "%Y-%m-%d %H:%M:%S" : "%H:%M:%S",
                       absl::UnixEpoch() + absl::Seconds(event.time()), zone),
      event.step(), kKindWidth,
      absl::StrReplaceAll(EventName(event.kind()), {{"_", " "}}),
      PrintableText(event.text()));
}

}  // namespace holdfast

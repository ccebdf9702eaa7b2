// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "common/trace/trace_json.h"
#include "common/trace/trace_parts.h"
#include "common/trace/trace_span.h"

namespace holdfast {
namespace {

TaskId TaskOf(const proto::TraceTask& task) {
  return {task.task().job(), task.task().index()};
}

// ps 0, which has the coordinator, comes first.
std::vector<int> InOrder(const proto::TraceResponse& trace) {
  std::vector<int> order(trace.tasks_size());
  for (int i = 0; i < trace.tasks_size(); ++i) order[i] = i;
  const auto key = [&](int i) {
    const TaskId task = TaskOf(trace.tasks(i));
    return std::make_tuple(task.job != kPsJob, task.job, task.index);
  };
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return key(a) < key(b); });
  return order;
}

// Identifies a call, both for its caller and for the task that served it.
struct Call {
  uint32_t ps = 0;
  TaskId worker;
  std::string method;
  int64_t sequence = 0;

  bool operator<(const Call& other) const {
    return std::tie(ps, worker, method, sequence) <
           std::tie(other.ps, other.worker, other.method, other.sequence);
  }
};

std::optional<int64_t> ArgOf(const TraceSpan& span, absl::string_view name) {
  for (const auto& [key, value] : span.args) {
    if (key == name) return value;
  }
  return std::nullopt;
}

// The ps in the name of a worker's row of calls, such as "tensors: ps 3".
std::optional<uint32_t> CalledPs(absl::string_view row) {
  uint32_t ps;
  if (!absl::ConsumePrefix(&row, "tensors: ps ") &&
      !absl::ConsumePrefix(&row, "control: ps ")) {
    return std::nullopt;
  }
  if (!absl::SimpleAtoi(row, &ps)) return std::nullopt;
  return ps;
}

class File {
 public:
  explicit File(const FetchedTrace& fetched) : fetched_(fetched) {
    for (const int i : InOrder(fetched.trace)) AddTask(i);
    AddArrows();
  }

  std::string Text() const {
    return ToChromeTrace(processes_, arrows_, OtherData());
  }

 private:
  using Place = TraceArrow::Place;

  // The time by the clock of ps 0.
  static absl::Time At(const proto::TraceTask& task, int64_t nanoseconds) {
    return FromTraceNanos(
        std::max<int64_t>(nanoseconds + task.clock_offset_ns(), 0));
  }

  void AddTask(int index) {
    const proto::TraceTask& task = fetched_.trace.tasks(index);
    if (fetched_.spans[index].empty()) return;
    TraceProcess& process = processes_.emplace_back();
    tasks_.push_back(TaskOf(task));
    process.id = static_cast<int64_t>(processes_.size());
    process.name = absl::StrCat(
        TaskOf(task).ToString(), task.process().empty() ? "" : " (",
        task.process(), task.process().empty() ? "" : ")");
    for (const proto::TraceTrack& track : task.tracks()) {
      process.rows.push_back({track.name(),
                              track.overlapping()
                                  ? TraceTrack::Kind::kOverlapping
                                  : TraceTrack::Kind::kNested,
                              {}});
    }
    for (const proto::TraceSpan& told : fetched_.spans[index]) {
      if (told.track() >= process.rows.size()) continue;
      TraceSpan& span = spans_.emplace_back();
      span.kind = FromProto(told.kind());
      span.name = told.name();
      span.begin = At(task, told.begin_ns());
      span.end = span.begin + absl::Nanoseconds(told.duration_ns());
      for (const proto::TraceArg& arg : told.args()) {
        span.args.emplace_back(names_.insert(arg.name()).first->c_str(),
                               arg.value());
      }
      span.error = told.error();
      process.rows[told.track()].spans.push_back(&span);
    }
  }

  const TraceSpan& SpanAt(const Place& place) const {
    return *processes_[place.process].rows[place.row].spans[place.span];
  }

  void AddArrows() {
    std::map<Call, std::vector<Place>> made;
    std::map<Call, std::vector<Place>> served;
    // Commits, by step.
    std::map<int64_t, Place> commits;
    std::map<int64_t, std::vector<Place>> committed;
    for (size_t p = 0; p < processes_.size(); ++p) {
      const TaskId& task = tasks_[p];
      for (size_t r = 0; r < processes_[p].rows.size(); ++r) {
        const TraceProcess::Row& row = processes_[p].rows[r];
        const std::optional<uint32_t> called = CalledPs(row.name);
        for (size_t s = 0; s < row.spans.size(); ++s) {
          const TraceSpan& span = *row.spans[s];
          const Place place{p, r, s};
          const auto step = ArgOf(span, "step");
          if (const auto sequence = ArgOf(span, "sequence")) {
            const auto worker = ArgOf(span, "worker");
            const auto chief = ArgOf(span, "chief");
            if (called.has_value()) {
              made[{*called, task, span.name, *sequence}].push_back(place);
            } else if (worker.has_value() || chief.has_value()) {
              const TaskId from{
                  worker.has_value() ? kWorkerJob : kChiefJob,
                  static_cast<uint32_t>(worker.value_or(chief.value_or(0)))};
              served[{task.index, from, span.name, *sequence}].push_back(place);
            }
          } else if (step.has_value() && row.name == "coordinator: commit") {
            commits[*step] = place;
          } else if (step.has_value() && span.name == "Commit") {
            committed[*step].push_back(place);
          }
        }
      }
    }
    const auto in_order = [this](std::vector<Place> places) {
      std::sort(places.begin(), places.end(),
                [&](const Place& a, const Place& b) {
                  return SpanAt(a).begin < SpanAt(b).begin;
                });
      return places;
    };
    for (const auto& [call, places] : made) {
      const auto found = served.find(call);
      if (found == served.end()) continue;
      const std::vector<Place> from = in_order(places);
      const std::vector<Place> to = in_order(found->second);
      for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
        arrows_.push_back({call.method, from[i], to[i]});
      }
    }
    for (const auto& [step, from] : commits) {
      for (const Place& to : committed[step]) {
        arrows_.push_back({"Commit", from, to});
      }
    }
  }

  std::string OtherData() const {
    const proto::TraceResponse& trace = fetched_.trace;
    std::vector<std::string> tasks;
    uint64_t error = 0;
    for (const proto::TraceTask& task : trace.tasks()) {
      error = std::max(error, task.clock_error_ns());
      tasks.push_back(absl::StrFormat(
          "{\"task\":%s,\"spans\":%d,\"clock_offset_us\":%.3f,"
          "\"clock_error_us\":%.3f,\"missing\":%s}",
          QuotedForJson(TaskOf(task).ToString()), task.spans(),
          task.clock_offset_ns() / 1e3, task.clock_error_ns() / 1e3,
          QuotedForJson(task.missing())));
    }
    return absl::StrFormat(
        "\"unit\":\"%s\",\"first\":%d,\"end\":%d,\"cut_short\":%s,"
        "\"begin_us\":%.3f,\"end_us\":%.3f,\"clock_error_us\":%.3f,"
        "\"tasks\":[%s]",
        trace.asynchronous() ? "ticket" : "step", trace.first_step(),
        trace.end_step(), QuotedForJson(trace.cut_short()),
        trace.begin_ns() / 1e3, trace.end_ns() / 1e3, error / 1e3,
        absl::StrJoin(tasks, ","));
  }

  const FetchedTrace& fetched_;
  std::vector<TraceProcess> processes_;
  // Indexed by process.
  std::vector<TaskId> tasks_;
  std::vector<TraceArrow> arrows_;
  // The spans to which processes_ point.
  std::deque<TraceSpan> spans_;
  std::set<std::string> names_;
};

}  // namespace

std::string TraceFileText(const FetchedTrace& fetched) {
  return File(fetched).Text();
}

std::string TraceSummary(const FetchedTrace& fetched) {
  const proto::TraceResponse& trace = fetched.trace;
  std::string text;
  if (trace.end_step() > trace.first_step()) {
    const uint64_t end =
        std::clamp(trace.global_step(), trace.first_step(), trace.end_step());
    text =
        absl::StrCat(trace.asynchronous() ? "tickets " : "steps ",
                     trace.first_step(), " to ", trace.end_step() - 1,
                     end < trace.end_step()
                         ? absl::StrCat(", of which ", end - trace.first_step(),
                                        " were finished")
                         : "",
                     ", in ",
                     absl::FormatDuration(absl::Trunc(
                         absl::Nanoseconds(trace.end_ns() - trace.begin_ns()),
                         absl::Microseconds(1))),
                     "\n");
  } else {
    text = "no step has begun\n";
  }
  for (const int i : InOrder(trace)) {
    const proto::TraceTask& task = trace.tasks(i);
    const TaskId id = TaskOf(task);
    absl::StrAppendFormat(&text, "  %-22s %6d spans", id.ToString(),
                          task.spans());
    if (task.spans() > 0 && id != TaskId{kPsJob, 0}) {
      absl::StrAppendFormat(&text, ", times within %.0f us of those of ps 0",
                            task.clock_error_ns() / 1e3);
    }
    text += '\n';
  }
  return text;
}

std::vector<std::string> MissingFromTrace(const FetchedTrace& fetched) {
  const proto::TraceResponse& trace = fetched.trace;
  std::vector<std::string> missing;
  if (!trace.cut_short().empty()) {
    missing.push_back(absl::StrCat("its last steps: ", trace.cut_short()));
  }
  for (const int i : InOrder(trace)) {
    const proto::TraceTask& task = trace.tasks(i);
    const std::string name = TaskOf(task).ToString();
    if (!task.missing().empty()) {
      missing.push_back(absl::StrCat(name, ": ", task.missing()));
    } else if (trace.state() != proto::TraceResponse::COMPLETE) {
      if (task.spans() == 0) {
        missing.push_back(absl::StrCat(name, ": has not sent its spans"));
      }
    }
    if (task.has_complete_from_ns()) {
      const int64_t since = task.complete_from_ns() + task.clock_offset_ns();
      missing.push_back(absl::StrFormat(
          "%s: spans that ended in the first %.3f s, because a task keeps only "
          "%d spans",
          name, std::max<int64_t>(since - trace.begin_ns(), 0) / 1e9,
          kMaxClusterTraceSpans));
    }
  }
  return missing;
}

}  // namespace holdfast

#include "cli/history_text.h"

#include <charconv>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/table.h"
#include "cli/units.h"
#include "common/evaluation_figures.h"

namespace holdfast {
namespace {

// What is known of one step. Either may be null, not both.
struct Row {
  const proto::HistoryPoint* point = nullptr;
  const proto::EvaluationResult* evaluation = nullptr;
};

std::map<uint64_t, Row> RowsOf(const proto::GetHistoryResponse& history) {
  std::map<uint64_t, Row> rows;
  for (const proto::HistoryPoint& point : history.points()) {
    rows[point.step()].point = &point;
  }
  for (const proto::EvaluationResult& evaluation : history.evaluations()) {
    rows[evaluation.step()].evaluation = &evaluation;
  }
  return rows;
}

// The fewest digits that are read back as the same number.
std::string Exact(double value) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value);
  return std::string(text, end.ptr);
}

constexpr int kColumns = 12;
// Where figures of an evaluation stand among the columns.
constexpr std::pair<int, const char*> kFigureColumns[] = {
    {6, "accuracy"},
    {8, "mean_absolute_error"},
    {9, "mean_squared_error"},
    {10, "top_k_accuracy"},
    {11, "auc"}};

// The figure of that name; none where the evaluation does not have it.
std::optional<double> FigureOf(const proto::EvaluationResult& evaluation,
                               absl::string_view name) {
  for (const EvaluationFigure& figure : FiguresOf(evaluation)) {
    if (figure.name == name) return figure.value;
  }
  return std::nullopt;
}

}  // namespace

std::string HistoryCsv(const proto::GetHistoryResponse& history) {
  std::string csv =
      "step,time,loss,examples,steps_per_second,examples_per_second,accuracy,"
      "test_loss,mean_absolute_error,mean_squared_error,top_k_accuracy,auc\n";
  for (const auto& [step, row] : RowsOf(history)) {
    std::vector<std::string> fields(kColumns);
    fields[0] = absl::StrCat(step);
    if (row.point != nullptr) {
      const proto::HistoryPoint& point = *row.point;
      fields[1] = absl::StrFormat("%.3f", point.time());
      if (point.has_loss()) fields[2] = Exact(point.loss());
      fields[3] = absl::StrCat(point.examples());
      fields[4] = Exact(point.steps_per_second());
      fields[5] = Exact(point.examples_per_second());
    }
    if (row.evaluation != nullptr) {
      const proto::EvaluationResult& evaluation = *row.evaluation;
      fields[7] = Exact(evaluation.loss());
      for (const auto& [place, name] : kFigureColumns) {
        const auto figure = FigureOf(evaluation, name);
        if (figure.has_value()) fields[place] = Exact(*figure);
      }
    }
    absl::StrAppend(&csv, absl::StrJoin(fields, ","), "\n");
  }
  return csv;
}

std::string HistoryTable(const proto::GetHistoryResponse& history,
                         const absl::TimeZone& zone) {
  Table table({{"step", true},
               {"time"},
               {"loss", true},
               {"examples", true},
               {"steps/s", true},
               {"examples/s", true},
               {"accuracy", true},
               {"test loss", true},
               {"mean abs error", true},
               {"mean sq error", true},
               {"top-k accuracy", true},
               {"AUC", true}});
  const auto score = [](double value) {
    return absl::StrFormat("%.4f", value);
  };
  for (const auto& [step, row] : RowsOf(history)) {
    std::vector<std::string> cells(kColumns);
    cells[0] = absl::StrCat(step);
    if (row.point != nullptr) {
      const proto::HistoryPoint& point = *row.point;
      cells[1] = absl::FormatTime(
          "%Y-%m-%d %H:%M:%S", absl::UnixEpoch() + absl::Seconds(point.time()),
          zone);
      if (point.has_loss()) cells[2] = score(point.loss());
      cells[3] = absl::StrCat(point.examples());
      cells[4] = RateText(point.steps_per_second());
      cells[5] = RateText(point.examples_per_second());
    }
    if (row.evaluation != nullptr) {
      const proto::EvaluationResult& evaluation = *row.evaluation;
      cells[7] = score(evaluation.loss());
      for (const auto& [place, name] : kFigureColumns) {
        const auto figure = FigureOf(evaluation, name);
        if (figure.has_value()) cells[place] = score(*figure);
      }
    }
    table.Add(std::move(cells));
  }
  return absl::StrJoin(table.Lines(), "\n") + "\n";
}

}  // namespace holdfast

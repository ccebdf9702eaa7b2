// SPDX-License-Identifier: Apache-2.0
#include "cli/history_text.h"

#include <charconv>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "cli/table.h"
#include "cli/units.h"
#include "common/base/printable_text.h"
#include "common/job/evaluation_figures.h"

namespace holdfast {
namespace {

// What is known about one step. All pointers but one may be null.
struct Row {
  const proto::HistoryPoint* point = nullptr;
  const proto::EvaluationResult* evaluation = nullptr;
  // The factor of the learning rates of the next step.
  float factor = 1;
};

std::map<uint64_t, Row> RowsOf(const proto::GetHistoryResponse& history) {
  std::map<uint64_t, Row> rows;
  for (const proto::HistoryPoint& point : history.points()) {
    rows[point.step()].point = &point;
  }
  for (const proto::EvaluationResult& evaluation : history.evaluations()) {
    rows[evaluation.step()].evaluation = &evaluation;
  }
  for (const proto::LearningRateChange& change :
       history.learning_rate_changes()) {
    for (auto row = rows.try_emplace(change.step()).first; row != rows.end();
         ++row) {
      row->second.factor = change.factor();
    }
  }
  return rows;
}

// The shortest text that is read back as the same number.
std::string Exact(double value) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value);
  return std::string(text, end.ptr);
}

// The number of columns before those of FigureColumns.
constexpr size_t kFirstColumns = 6;

// A column with a metric of evaluations.
struct FigureColumn {
  std::string name;
  // Title for people.
  std::string title;
};

// The columns that are always present, then the other metrics of evaluations.
std::vector<FigureColumn> FigureColumns(
    const proto::GetHistoryResponse& history) {
  std::vector<FigureColumn> columns = {
      {"accuracy", "accuracy"},
      {"test_loss", "test loss"},
      {"mean_absolute_error", "mean abs error"},
      {"mean_squared_error", "mean sq error"},
      {"top_k_accuracy", "top-k accuracy"},
      {"auc", "AUC"},
      {"calibration", "calibration"}};
  std::set<std::string> further;
  for (const proto::EvaluationResult& evaluation : history.evaluations()) {
    for (const auto& [name, value] : evaluation.metrics()) further.insert(name);
  }
  for (const std::string& name : further) {
    columns.push_back({name, PrintableText(name)});
  }
  return columns;
}

// The metric with that name, if the evaluation has it.
std::optional<double> FigureOf(const proto::EvaluationResult& evaluation,
                               absl::string_view name) {
  if (name == "test_loss") return evaluation.loss();
  for (const EvaluationFigure& figure : FiguresOf(evaluation)) {
    if (figure.name == name) return figure.value;
  }
  return std::nullopt;
}

// A CSV field with arbitrary text.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

std::string HistoryCsv(const proto::GetHistoryResponse& history) {
  const std::vector<FigureColumn> figures = FigureColumns(history);
  const bool has_factors = !history.learning_rate_changes().empty();
  std::string csv =
      "step,time,loss,examples,steps_per_second,examples_per_second";
  for (const FigureColumn& column : figures) {
    absl::StrAppend(&csv, ",", Quoted(column.name));
  }
  absl::StrAppend(&csv, has_factors ? ",learning_rate_factor\n" : "\n");
  for (const auto& [step, row] : RowsOf(history)) {
    std::vector<std::string> fields(kFirstColumns);
    fields[0] = absl::StrCat(step);
    if (row.point != nullptr) {
      const proto::HistoryPoint& point = *row.point;
      fields[1] = absl::StrFormat("%.3f", point.time());
      if (point.has_loss()) fields[2] = Exact(point.loss());
      fields[3] = absl::StrCat(point.examples());
      fields[4] = Exact(point.steps_per_second());
      fields[5] = Exact(point.examples_per_second());
    }
    for (const FigureColumn& column : figures) {
      std::string& field = fields.emplace_back();
      if (row.evaluation == nullptr) continue;
      const auto figure = FigureOf(*row.evaluation, column.name);
      if (figure.has_value()) field = Exact(*figure);
    }
    if (has_factors) fields.push_back(absl::StrCat(row.factor));
    absl::StrAppend(&csv, absl::StrJoin(fields, ","), "\n");
  }
  return csv;
}

std::string HistoryTable(const proto::GetHistoryResponse& history,
                         const absl::TimeZone& zone) {
  const std::vector<FigureColumn> figures = FigureColumns(history);
  const bool has_factors = !history.learning_rate_changes().empty();
  std::vector<Table::Column> columns = {
      {"step", true},     {"time"},          {"loss", true},
      {"examples", true}, {"steps/s", true}, {"examples/s", true}};
  for (const FigureColumn& column : figures) {
    columns.push_back({column.title, true});
  }
  columns.push_back({"rate factor", true});
  Table table(std::move(columns));
  const auto score = [](double value) {
    return absl::StrFormat("%.4f", value);
  };
  for (const auto& [step, row] : RowsOf(history)) {
    std::vector<std::string> cells(kFirstColumns);
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
    for (const FigureColumn& column : figures) {
      std::string& cell = cells.emplace_back();
      if (row.evaluation == nullptr) continue;
      const auto figure = FigureOf(*row.evaluation, column.name);
      if (figure.has_value()) cell = score(*figure);
    }
    cells.push_back(has_factors ? absl::StrCat(row.factor) : "");
    table.Add(std::move(cells));
  }
  return absl::StrJoin(table.Lines(), "\n") + "\n";
}

}  // namespace holdfast

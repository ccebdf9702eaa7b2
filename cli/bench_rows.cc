// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_rows.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "cli/bench_lists.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr int kMostPs = 64;
constexpr int kMostRowLength = 4096;
constexpr uint64_t kMostRows = 1'000'000'000;
// Values in a batch. The worker keeps them three times (gradients, sums,
// values), and the ps reserves memory for a whole push.
constexpr uint64_t kMostBatchValues = uint64_t{1} << 28;
constexpr double kMostExponent = 10;

// The flags that are lists.
struct Plan {
  std::vector<int> row_lengths;
  std::vector<int> ps_counts;
  std::vector<std::string> ops;
};

absl::Status CheckCount(absl::string_view flag, uint64_t count, uint64_t most) {
  if (count >= 1 && count <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", count, ": must be from 1 to ", most));
}

// Errors: INVALID_ARGUMENT.
absl::StatusOr<Plan> MakePlan(const RowsFlags& flags) {
  HOLDFAST_ASSIGN_OR_RETURN(
      auto row_lengths,
      ParseNumbers("row_length", flags.row_lengths, kMostRowLength));
  HOLDFAST_ASSIGN_OR_RETURN(auto ps_counts,
                            ParseNumbers("ps", flags.ps_counts, kMostPs));
  auto ops = ParseWords(
      "ops", flags.ops,
      {"push", "pull", "pushpull", "assign", "sum", "spread", "batch"});
  if (!ops.ok()) return ops.status();
  absl::Status status = CheckCount("rows", flags.rows, kMostRows);
  const int longest = *std::max_element(row_lengths.begin(), row_lengths.end());
  if (status.ok()) {
    status = CheckCount("ids", flags.ids, kMostBatchValues / longest);
  }
  if (status.ok() && !(flags.zipf >= 0 && flags.zipf <= kMostExponent)) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "--zipf=", flags.zipf, ": must be from 0 to ", kMostExponent));
  }
  if (status.ok()) status = CheckSeconds(flags.seconds);
  if (!status.ok()) return status;
  return Plan{std::move(row_lengths), std::move(ps_counts), *std::move(ops)};
}

absl::Status Measure(const RowsFlags& flags, const Plan& plan, int num_ps,
                     int row_length, const std::string& folder,
                     SignalWatch* signals, BenchReport* report) {
  const BenchCluster::Client client = {
      "--role=rows",
      absl::StrCat("--shards=", num_ps),
      absl::StrCat("--row_length=", row_length),
      absl::StrCat("--rows=", flags.rows),
      absl::StrCat("--ids=", flags.ids),
      absl::StrCat("--zipf=", flags.zipf),
      absl::StrCat("--ops=", absl::StrJoin(plan.ops, ",")),
      absl::StrCat("--seconds=", flags.seconds)};
  const auto cluster = BenchCluster::Start(flags.ps, num_ps, /*num_workers=*/1,
                                           {client}, folder, signals);
  if (!cluster.ok()) return cluster.status();
  HOLDFAST_ASSIGN_OR_RETURN(const auto results, (*cluster)->AwaitResults(0));
  for (const proto::BenchmarkResult& result : results) {
    HOLDFAST_RETURN_IF_ERROR(report->Add(result));
  }
  return absl::OkStatus();
}

}  // namespace

void RowsFlags::AddTo(FlagSet* set) {
  set->Add("row_length", "LIST", &row_lengths,
           absl::StrCat("Lengths of a row, in float32 values. Default: ",
                        row_lengths, "."));
  set->Add("ps", "LIST", &ps_counts,
           absl::StrCat("Numbers of ps. Default: ", ps_counts, "."));
  set->Add("rows", "NUMBER", &rows,
           absl::StrCat("Rows of the table, all created before measuring.\n"
                        "Default: ",
                        rows, "."));
  set->Add(
      "ids", "NUMBER", &ids,
      absl::StrCat("Ids in a batch, duplicates included. Default: ", ids, "."));
  set->Add(
      "zipf", "NUMBER", &zipf,
      absl::StrCat("Exponent of Zipf's law, from which ids are drawn. 0: all\n"
                   "are equally likely. Default: ",
                   zipf, "."));
  set->Add("ops", "LIST", &ops,
           absl::StrCat(
               "push: gradients of a batch's unique rows, until SGD has\n"
               "applied them on every ps. pull: the values of those rows.\n"
               "pushpull: a push, and a pull of the next batch's rows, in one\n"
               "exchange. assign: finds the unique ids of a batch. sum: adds\n"
               "up the gradients of duplicates. spread: copies each unique\n"
               "row to all its places in the batch. batch: assign, sum,\n"
               "pushpull and spread. Default:\n",
               ops, "."));
  set->Add("seconds", "NUMBER", &seconds,
           "Measuring time for each operation of each point. Default: 1.");
  ps.AddTo(set);
}

absl::Status BenchRows(const RowsFlags& flags, const std::string& folder,
                       SignalWatch* signals, BenchReport* report) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto plan, MakePlan(flags));
  for (const int num_ps : plan.ps_counts) {
    for (const int row_length : plan.row_lengths) {
      HOLDFAST_RETURN_IF_ERROR(
          Measure(flags, plan, num_ps, row_length, folder, signals, report));
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/summary.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value* FieldAt(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? nullptr : &found->second;
}

std::string StringAt(const Struct& object, const std::string& name) {
  const Value* const value = FieldAt(object, name);
  return value == nullptr ? "" : value->string_value();
}

std::optional<double> NumberAt(const Struct& object, const std::string& name) {
  const Value* const value = FieldAt(object, name);
  if (value == nullptr || value->kind_case() != Value::kNumberValue) {
    return std::nullopt;
  }
  return value->number_value();
}

// "worker:0" for "/job:worker/task:0".
std::string ShortTask(const std::string& task) {
  return absl::StrReplaceAll(task, {{"/job:", ""}, {"/task", ""}});
}

}  // namespace

absl::StatusOr<std::string> SummaryOf(const std::string& json) {
  Struct result;
  const auto status =
      google::protobuf::util::JsonStringToMessage(json, &result);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the result is not a JSON object: ", status.ToString()));
  }

  std::string summary = absl::StrCat(StringAt(result, "job"), ": done\n");
  const auto add = [&](const std::string& name, const std::string& value) {
    absl::StrAppendFormat(&summary, "  %-14s %s\n", name, value);
  };
  absl::StrAppendFormat(
      &summary, "  %-14s %.0f in %.1f s (%.1f steps/s, %.0f examples/s)\n",
      "steps", NumberAt(result, "global_step").value_or(0),
      NumberAt(result, "wall_seconds").value_or(0),
      NumberAt(result, "steps_per_second").value_or(0),
      NumberAt(result, "examples_per_second").value_or(0));
  for (const auto& [label, name] :
       {std::pair("train loss", "train_loss"),
        std::pair("test loss", "test_loss"),
        std::pair("test accuracy", "test_accuracy"),
        std::pair("top-k accuracy", "test_top_k_accuracy"),
        std::pair("AUC", "test_auc"),
        std::pair("calibration", "test_calibration"),
        std::pair("mean abs error", "test_mean_absolute_error"),
        std::pair("mean sq error", "test_mean_squared_error")}) {
    if (const auto number = NumberAt(result, name)) {
      add(label, absl::StrFormat("%.4f", *number));
    }
  }
  if (const Value* const pushes = FieldAt(result, "pushes")) {
    const double count =
        NumberAt(pushes->struct_value(), "not_finite").value_or(0);
    if (count > 0) {
      add("not finite",
          absl::StrFormat("%.0f pushes, which changed nothing", count));
    }
  }
  if (const Value* const staleness = FieldAt(result, "staleness")) {
    const Struct& fields = staleness->struct_value();
    add("staleness", absl::StrFormat("mean %.2f, at most %.0f",
                                     NumberAt(fields, "mean").value_or(0),
                                     NumberAt(fields, "max").value_or(0)));
  }
  if (const Value* const workers = FieldAt(result, "by_worker")) {
    for (const Value& worker : workers->list_value().values()) {
      const Struct& fields = worker.struct_value();
      std::string given = absl::StrFormat(
          "%.0f pushes, %.0f examples", NumberAt(fields, "pushes").value_or(0),
          NumberAt(fields, "examples").value_or(0));
      if (const auto share = NumberAt(fields, "input_wait")) {
        absl::StrAppendFormat(&given, ", %.0f%% of its time waiting for input",
                              100 * *share);
      }
      add(ShortTask(StringAt(fields, "task")), given);
    }
  }
  if (const double count = NumberAt(result, "recoveries").value_or(0)) {
    add("resumed",
        absl::StrFormat("%.0f %s", count, count == 1 ? "time" : "times"));
  }
  add("digest", StringAt(result, "digest"));
  return summary;
}

}  // namespace holdfast

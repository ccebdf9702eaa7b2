#include "cli/summary.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

std::string StringAt(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? "" : found->second.string_value();
}

std::optional<double> NumberAt(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  if (found == object.fields().end() ||
      found->second.kind_case() != Value::kNumberValue) {
    return std::nullopt;
  }
  return found->second.number_value();
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
  const auto add = [&](const char* name, const std::string& value) {
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
        std::pair("test accuracy", "test_accuracy")}) {
    if (const auto number = NumberAt(result, name)) {
      add(label, absl::StrFormat("%.4f", *number));
    }
  }
  add("digest", StringAt(result, "digest"));
  return summary;
}

}  // namespace holdfast

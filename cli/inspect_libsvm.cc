// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect_libsvm.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/file_bytes.h"
#include "common/data/find_files.h"
#include "common/data/libsvm_line.h"

namespace holdfast {
namespace {

constexpr size_t kLabelsTold = 10;
// With more different labels than this, labels are taken for targets.
constexpr size_t kMostLabels = 1000;

struct Findings {
  int64_t examples = 0;
  int64_t features = 0;
  int64_t most_features = 0;
  uint64_t least_index = std::numeric_limits<uint64_t>::max();
  uint64_t greatest_index = 0;
  float least_value = std::numeric_limits<float>::max();
  float greatest_value = std::numeric_limits<float>::lowest();
  // Occurrences of each of the first kMostLabels labels.
  std::map<std::string, int64_t> labels;
  bool many_labels = false;
};

absl::Status AddLine(absl::string_view text, Findings* findings) {
  LibsvmLine line(text);
  if (line.text().empty()) return absl::OkStatus();
  uint64_t index = 0;
  float value = 0;
  int64_t features = 0;
  LibsvmLine::Result result;
  while ((result = line.Next(&index, &value)) == LibsvmLine::Result::kFeature) {
    ++features;
    findings->least_index = std::min(findings->least_index, index);
    findings->greatest_index = std::max(findings->greatest_index, index);
    findings->least_value = std::min(findings->least_value, value);
    findings->greatest_value = std::max(findings->greatest_value, value);
  }
  if (result == LibsvmLine::Result::kFault) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", EscapedText(line.part()),
                     "\" is not a feature, \"index:value\""));
  }
  ++findings->examples;
  findings->features += features;
  findings->most_features = std::max(findings->most_features, features);
  const std::string label(line.label());
  if (findings->labels.size() < kMostLabels ||
      findings->labels.count(label) > 0) {
    ++findings->labels[label];
  } else {
    findings->many_labels = true;
  }
  return absl::OkStatus();
}

void Tell(const std::vector<std::string>& files, const Findings& findings) {
  std::cout << absl::StreamFormat(
      "%d examples, with %.1f features on average, %d at most\n",
      findings.examples,
      static_cast<double>(findings.features) /
          static_cast<double>(findings.examples),
      findings.most_features);
  if (findings.features > 0) {
    std::cout << "indices from " << findings.least_index << " to "
              << findings.greatest_index << ", values from "
              << absl::StreamFormat("%.6g to %.6g\n", findings.least_value,
                                    findings.greatest_value);
  }
  std::vector<std::pair<int64_t, std::string>> labels;
  for (const auto& [label, count] : findings.labels) {
    labels.emplace_back(-count, label);
  }
  std::sort(labels.begin(), labels.end());
  const size_t told = std::min(labels.size(), kLabelsTold);
  std::cout << "labels: "
            << absl::StrJoin(labels.begin(), labels.begin() + told, ", ",
                             [](std::string* out, const auto& label) {
                               absl::StrAppend(out,
                                               label.second.empty()
                                                   ? "none"
                                                   : EscapedText(label.second),
                                               " (", -label.first, ")");
                             })
            << (told < labels.size() || findings.many_labels ? ", ..." : "")
            << "\n\n# A schema to start from.\nlibsvm {\n";
  for (const std::string& file : files) {
    std::cout << "  files: \"" << EscapedText(file) << "\"\n";
  }
  if (findings.many_labels) std::cout << "  targets: true\n";
  std::cout << "}\n";
}

}  // namespace

absl::Status InspectLibsvm(const std::vector<std::string>& files) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto paths, FindFiles(files));
  Findings findings;
  for (const std::string& path : paths) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto file, ReadFileBytes(path, "libsvm"));
    const absl::string_view text(
        reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    int64_t number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      ++number;
      const absl::Status status = AddLine(line, &findings);
      if (status.ok()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read libsvm file \"", path, "\": line ", number,
                       ": ", status.message()));
    }
  }
  if (findings.examples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", paths.front(), "\" has no examples"));
  }
  Tell(files, findings);
  return absl::OkStatus();
}

}  // namespace holdfast

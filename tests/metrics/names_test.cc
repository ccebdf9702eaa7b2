// SPDX-License-Identifier: Apache-2.0

// The metrics that daemons export are the ones that the documentation lists,
// with the same types and labels; alerts and dashboard use no others.

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/job/task_id.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/process/process_figures.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/metrics/ps_metrics.h"
#include "ps_server/metrics/testing/full_figures.h"
#include "re2/re2.h"
#include "worker/metrics/worker_metrics.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

std::string ReadFile(const std::string& path) {
  std::ifstream file(absl::StrCat(std::getenv("TEST_SRCDIR"), "/",
                                  std::getenv("TEST_WORKSPACE"), "/", path));
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Keyed by metric name; values look like "gauge, labels state, task".
using Described = std::map<std::string, std::string>;

std::string Describe(absl::string_view type,
                     const std::set<std::string>& labels) {
  return absl::StrCat(type, ", labels ", absl::StrJoin(labels, ", "));
}

// Adds the metrics in `text`, which Prometheus reads.
void AddExported(const std::string& text, Described* exported) {
  std::string name, type;
  std::map<std::string, std::set<std::string>> labels;
  for (const absl::string_view view : absl::StrSplit(text, '\n')) {
    const std::string line(view);
    if (RE2::FullMatch(line, R"(# TYPE (\S+) (\S+))", &name, &type)) {
      labels[name];
    } else if (!line.empty() && line[0] != '#') {
      re2::StringPiece rest(line);
      std::string label;
      while (RE2::FindAndConsume(&rest, R"re([{,](\w+)="(?:[^"\\]|\\.)*")re",
                                 &label)) {
        if (label != "le") labels[name].insert(label);
      }
      (*exported)[name] = Describe(type, labels[name]);
    }
  }
}

// The metrics of daemons that have something to report for every metric.
Described AllExported() {
  Described exported;
  for (const bool asynchronous : {false, true}) {
    auto ps = FullSnapshot(asynchronous, 2, 2);
    ps.shard.by_table.emplace_back().set_name("t");
    AddExported(PsMetrics(ps).ToText(), &exported);
  }
  Metrics worker;
  AddProcessMetrics({kWorkerJob, 0}, ProcessFigures(), &worker);
  AddWorkerMetrics(proto::WorkerReport(), &worker);
  AddGpuMetrics({0}, {GpuUsage()}, &worker);
  AddExported(worker.ToText(), &exported);
  return exported;
}

Described AllDocumented() {
  Described documented;
  for (const absl::string_view view :
       absl::StrSplit(ReadFile("docs/operating/metrics.md"), '\n')) {
    const std::string line(view);
    std::string name, type, labels, stability;
    if (!RE2::FullMatch(
            line, R"(\| `(holdfast_\w+)` \| (\w+) \| (.*?) ?\| .* \| (.*) \|)",
            &name, &type, &labels, &stability)) {
      continue;
    }
    EXPECT_EQ(documented.count(name), 0u) << name << " is documented twice";
    std::set<std::string> names;
    std::string label;
    re2::StringPiece rest(labels);
    while (RE2::FindAndConsume(&rest, "`(\\w+)`", &label)) names.insert(label);
    documented[name] = Describe(type, names);
    EXPECT_EQ(stability, absl::StartsWith(name, "holdfast_debug_")
                             ? "may change"
                             : "stable")
        << name;
  }
  return documented;
}

TEST(NamesTest, TheDocumentationListsWhatIsExported) {
  const Described documented = AllDocumented();
  EXPECT_EQ(documented, AllExported());
  EXPECT_GT(documented.size(), 40u);
}

TEST(NamesTest, FollowPrometheussRules) {
  for (const auto& [name, description] : AllExported()) {
    EXPECT_TRUE(RE2::FullMatch(name, "holdfast_[a-z][a-z0-9_]*")) << name;
    EXPECT_EQ(absl::EndsWith(name, "_total"),
              absl::StartsWith(description, "counter"))
        << name;
    // Prometheus sets these labels itself.
    for (const char* label : {"job", "instance"}) {
      EXPECT_FALSE(RE2::PartialMatch(
          description, absl::StrCat("labels (.*, )?", label, "\\b")))
          << name;
    }
  }
}

// A file without its comments, if it is YAML; JSON has none. A # begins one at
// the beginning of a line or after a space.
std::string WithoutComments(const std::string& path, std::string text) {
  if (absl::EndsWith(path, ".yaml")) {
    RE2::GlobalReplace(&text, R"((?m)(^|[ \t])#.*$)", "");
  }
  return text;
}

// The names of metrics in a text, without the suffixes of histograms and
// summaries.
std::set<std::string> NamesIn(const std::string& text) {
  std::set<std::string> names;
  re2::StringPiece rest(text);
  std::string name;
  while (RE2::FindAndConsume(&rest, R"(\b(holdfast_\w+))", &name)) {
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      if (absl::EndsWith(name, suffix)) {
        name.resize(name.size() - std::string(suffix).size());
      }
    }
    names.insert(name);
  }
  return names;
}

TEST(NamesTest, CommentsUseNoMetrics) {
  const std::string rule =
      "# holdfast_a\n"
      "  # holdfast_b\n"
      "expr: holdfast_c_sum / holdfast_c_count  # holdfast_d, not #holdfast_e\n"
      "url: page#holdfast_f\n";
  EXPECT_THAT(NamesIn(WithoutComments("a.yaml", rule)),
              ElementsAre("holdfast_c", "holdfast_f"));
  EXPECT_THAT(
      NamesIn(WithoutComments("a.json", R"({"title": "# holdfast_a"})")),
      ElementsAre("holdfast_a"));
}

TEST(NamesTest, AlertsAndDashboardUseWhatIsExported) {
  const Described exported = AllExported();
  for (const char* file :
       {"deploy/prometheus/alerts.yaml", "deploy/prometheus/alerts_test.yaml",
        "deploy/prometheus/dashboard.json"}) {
    const std::set<std::string> names =
        NamesIn(WithoutComments(file, ReadFile(file)));
    EXPECT_GT(names.size(), 5u) << file;
    for (const std::string& name : names) {
      EXPECT_EQ(exported.count(name), 1u)
          << file << " names " << name << ", which is not exported";
    }
  }
}

}  // namespace
}  // namespace holdfast

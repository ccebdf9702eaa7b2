// SPDX-License-Identifier: Apache-2.0

// The configurations of docs/strategies.md are valid jobs on 4 workers.

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "gtest/gtest.h"
#include "re2/re2.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr uint32_t kWorkers = 4;

// The rest of the job, which the configurations do not set.
constexpr char kJob[] = R"(
name: "job"
model {
  sequential {
    layers { dense { units: 10 } }
    loss { softmax_cross_entropy {} }
  }
}
data { train { idx { images: "images" labels: "labels" } } }
batch_size: 100
steps: 1000
optimizer { learning_rate: 0.1 sgd {} }
)";

TEST(StrategiesTest, ConfigurationsAreValid) {
  const std::string text = ReadText("docs/strategies.md");
  re2::StringPiece rest(text);
  std::string block;
  int count = 0;
  while (
      RE2::FindAndConsume(&rest, "(?s)\n```textproto\n(.*?)\n```\n", &block)) {
    SCOPED_TRACE(block);
    const auto job = ParseJobFile(absl::StrCat(kJob, block), "job.textproto");
    ASSERT_TRUE(job.ok()) << job.status();
    const auto replicas = ResolveConsistency(*job, kWorkers);
    EXPECT_TRUE(replicas.ok()) << replicas.status();
    ++count;
  }
  EXPECT_EQ(count, 8);
}

}  // namespace
}  // namespace holdfast

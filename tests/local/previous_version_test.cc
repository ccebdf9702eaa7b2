// SPDX-License-Identifier: Apache-2.0

// This version resumes jobs of the previous version
// (docs/operating/compatibility.md).
//
// testdata/protocol_6/ is the checkpoint directory of the job below, written by
// the programs of protocol 6, whose `holdfast local --ps=2 --workers=2` was
// killed when step 20 was on disk. After a change of the protocol or of a
// format, create a directory with the programs before the change, and keep it
// beside this one.

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr char kLeft[] = "tests/local/testdata/protocol_6";

// Copies files so that the test may write to them.
void Copy(const std::string& from, const std::string& to) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(from)) {
    const std::string path = to + entry.path().string().substr(from.size());
    if (std::filesystem::is_directory(entry)) {
      std::filesystem::create_directories(path);
    } else {
      std::filesystem::create_directories(
          std::filesystem::path(path).parent_path());
      WriteText(path, ReadText(entry.path()));
    }
  }
}

TEST(PreviousVersionTest, ItsCheckpointIsGoneOnFrom) {
  const std::string folder = FreshFolder();
  const std::string run_dir = folder + "/run";
  const std::string checkpoints = run_dir + "/checkpoints";
  Copy(kLeft, checkpoints);

  Program inspect({kHoldfast, "checkpoint", "inspect", checkpoints});
  EXPECT_EQ(inspect.Wait(), 0) << inspect.output();
  EXPECT_THAT(inspect.output(), HasSubstr("g0001-step00000020"));
  EXPECT_THAT(inspect.output(), HasSubstr("updates      20"));
  // The digest that the previous version printed.
  EXPECT_THAT(inspect.output(),
              HasSubstr("6b0918779f146a6270e64bca2b4b1de9dd834606c3c74d21bac938"
                        "21767e0623"));

  WriteExamples(folder);
  SmallJob job;
  job.more = "checkpoints { every_steps: 20 keep: 1 }\n";
  Program train({kHoldfast, "local", "--job=" + WriteJob(folder, job),
                 "--run_dir=" + run_dir, "--ps=2", "--workers=2"});
  EXPECT_EQ(train.Wait(), 0) << train.output();
  const auto result = ReadResult(run_dir + "/result.json");
  EXPECT_EQ(NumberIn(result, "global_step"), 40);
  // These include the examples of the steps before.
  EXPECT_EQ(NumberIn(result, "examples"), 1280);
  EXPECT_GT(NumberIn(result, "test_accuracy"), 0.9);

  Program list({kHoldfast, "checkpoint", "list", checkpoints});
  EXPECT_EQ(list.Wait(), 0) << list.output();
  EXPECT_THAT(list.output(), HasSubstr("g0002-step00000040"));
}

}  // namespace
}  // namespace holdfast

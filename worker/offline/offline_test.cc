// SPDX-License-Identifier: Apache-2.0
#include "worker/offline/offline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "google/protobuf/text_format.h"
#include "worker/input/dataset_registry.h"
#include "worker/model/registry.h"

namespace holdfast {
namespace {

using ::testing::StartsWith;

// Checkpoints that contain no job file, such as those of scripts.
class OfflineTest : public ::testing::Test {
 protected:
  OfflineTest() : folder_(testing::TempDir() + "/offline") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const auto directory =
        CheckpointDirectory::Open(folder_ + "/checkpoints", PosixFileSystem());
    EXPECT_TRUE(directory.ok()) << directory.status();
    EXPECT_TRUE(SaveTestCheckpoint(*directory, TestName(1, 10), variables_,
                                   /*num_ps=*/1, /*seed=*/1)
                    .ok());
    options_.checkpoint = folder_ + "/checkpoints/g0001-step00000010";
    options_.reading.registry = &datasets_;
    WriteNpy("x.npy", {1, 0, 0, 1});
    WriteNpy("t.npy", {2, 3, 5, 7});
    proto::Job job;
    EXPECT_TRUE(
        google::protobuf::TextFormat::ParseFromString(absl::StrReplaceAll(
                                                          R"(model {
                 sequential {
                   layers { dense { units: 2 } }
                   loss { mean_squared_error {} }
                 }
               }
               data {
                 train { npy { inputs: "none" targets: "none" } }
                 test { npy { inputs: "DIR/x.npy" targets: "DIR/t.npy" } }
               })",
                                                          {{"DIR", folder_}}),
                                                      &job));
    options_.job = job;
  }

  // [2, 2] of float32.
  void WriteNpy(const std::string& name, const std::vector<float>& values) {
    const std::string header =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n";
    std::ofstream file(folder_ + "/" + name, std::ios::binary);
    file << std::string("\x93NUMPY\1\0", 8) << static_cast<char>(header.size())
         << '\0' << header;
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }

  const std::vector<TestVariable> variables_ = {{"dense/kernel", {2, 2}, 0},
                                                {"dense/bias", {2}, 0}};
  const std::string folder_;
  const DatasetRegistry datasets_;
  const ModelRegistry models_;
  OfflineOptions options_;
};

// The outputs of the inputs [1, 0] and [0, 1] are the rows of the kernel, and
// the bias.
TEST_F(OfflineTest, TheJobFileSaysWhetherTheSecondArrayHasTargets) {
  const TestState state = MakeTestState(variables_, 1);
  const std::vector<float>& kernel = state.at("dense/kernel")[0];
  const std::vector<float>& bias = state.at("dense/bias")[0];
  const std::vector<float> targets = {2, 3, 5, 7};
  double loss = 0;
  for (int i = 0; i < 4; ++i) {
    const double error = kernel[i] + bias[i % 2] - targets[i];
    loss += error * error / 4;
  }
  const auto by_job = EvaluateCheckpoint(options_, /*int8=*/false, models_);
  ASSERT_TRUE(by_job.ok()) << by_job.status();
  EXPECT_FLOAT_EQ(by_job->float32().loss(), loss);
  options_.data = {folder_ + "/x.npy", folder_ + "/t.npy"};
  const auto by_files = EvaluateCheckpoint(options_, /*int8=*/false, models_);
  ASSERT_TRUE(by_files.ok()) << by_files.status();
  EXPECT_EQ(by_files->float32().loss(), by_job->float32().loss());
}

TEST_F(OfflineTest, PredictsAsManyTargetsAsThereAreOutputs) {
  options_.data = {folder_ + "/x.npy"};
  const std::string output = folder_ + "/predicted.csv";
  const absl::Status status = PredictWithCheckpoint(options_, output, models_);
  ASSERT_TRUE(status.ok()) << status;
  std::stringstream text;
  text << std::ifstream(output).rdbuf();
  EXPECT_THAT(text.str(), StartsWith("example,output_0,output_1\n0,"));
}

}  // namespace
}  // namespace holdfast

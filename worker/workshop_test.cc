// SPDX-License-Identifier: Apache-2.0
#include "worker/workshop.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/cluster_spec.h"
#include "common/job/ids.h"
#include "common/job/job_file.h"
#include "common/job/task_id.h"
#include "worker/input/dataset_registry.h"
#include "worker/model/registry.h"
#include "worker/worker_config.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// Two workers, whose training set has the classes 0 to 2, and whose test set
// has the classes 0 to 3.
class WorkshopTest : public ::testing::Test {
 protected:
  WorkshopTest() {
    std::ofstream(Path("train.csv")) << "a,b,y\n1,2,0\n3,4,1\n5,6,2\n7,8,1\n";
    std::ofstream(Path("test.csv")) << "a,b,y\n1,2,0\n3,4,3\n";
  }

  static std::string Path(const std::string& name) {
    return testing::TempDir() + "/" + name;
  }

  // The worker with this index, and a model of `units` outputs.
  WorkerConfig ConfigOf(uint32_t replica, int units) {
    WorkerConfig config{
        WorkerResources(),
        *ClusterSpec::FromHosts("localhost:1", "localhost:2,localhost:3", ""),
        TaskId{kWorkerJob, replica}};
    config.replica = replica;
    config.is_chief = replica == 0;
    config.reading.registry = &datasets_;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("model { sequential { layers { dense { units: ", units,
                     " } } loss { softmax_cross_entropy {} } } }"
                     "consistency { synchronous {} } batch_size: 2"),
        &config.job));
    proto::Data* const data = config.job.mutable_data();
    AddTable("train.csv", data->mutable_train()->mutable_csv());
    AddTable("test.csv", data->mutable_test()->mutable_csv());
    config.replicas =
        *ResolveConsistency(config.job, config.cluster.num_replicas());
    return config;
  }

  // Sets up another workshop: reads the data, and makes all that is made of
  // them.
  absl::Status Make(const WorkerConfig& config) {
    workshop_.emplace();
    absl::Status status = ReadData(config, &*workshop_);
    if (status.ok()) status = MakeBackends(config, &*workshop_);
    if (status.ok()) status = MakeAugmenter(config, &*workshop_);
    if (status.ok()) status = MakeModels(config, models_, &*workshop_);
    return status;
  }

  const DatasetRegistry datasets_;
  const ModelRegistry models_;
  std::optional<Workshop> workshop_;

 private:
  void AddTable(const std::string& name, proto::Csv* csv) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "columns { name: 'a' name: 'b' number {} }"
        "columns { name: 'y' label {} }",
        csv));
    csv->add_files(Path(name));
  }
};

TEST_F(WorkshopTest, OnlyTheChiefEvaluates) {
  ASSERT_EQ(Make(ConfigOf(0, 4)), absl::OkStatus());
  EXPECT_EQ(workshop_->train_set().num_examples(), 4);
  EXPECT_EQ(workshop_->test_set->num_examples(), 2);
  EXPECT_EQ(workshop_->backends.size(), 1);
  EXPECT_NE(workshop_->model, nullptr);
  EXPECT_NE(workshop_->evaluation_backend, nullptr);
  EXPECT_NE(workshop_->evaluation_model, nullptr);

  ASSERT_EQ(Make(ConfigOf(1, 4)), absl::OkStatus());
  EXPECT_NE(workshop_->model, nullptr);
  EXPECT_EQ(workshop_->test_set, nullptr);
  EXPECT_EQ(workshop_->evaluation_backend, nullptr);
  EXPECT_EQ(workshop_->evaluation_model, nullptr);
}

TEST_F(WorkshopTest, EachReplicaOfTheModelHasABackend) {
  WorkerConfig config = ConfigOf(1, 4);
  config.device.places = {std::nullopt, std::nullopt};
  ASSERT_EQ(Make(config), absl::OkStatus());
  EXPECT_EQ(workshop_->backends.size(), 2);
}

TEST_F(WorkshopTest, TooManyClassesAreBlamedOnALabel) {
  const absl::Status status = Make(ConfigOf(1, 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr(absl::StrCat("the data have 3 classes, by the label 2 "
                                     "in line 4 of \"",
                                     Path("train.csv"), "\"")));
  // The model suits the training set, but not the test set, which only the
  // chief has.
  EXPECT_EQ(Make(ConfigOf(1, 3)), absl::OkStatus());
  EXPECT_THAT(Make(ConfigOf(0, 3)).message(),
              HasSubstr("the data have 4 classes, by the label 3 in line 3"));
}

TEST_F(WorkshopTest, AnAugmentationIsForImages) {
  WorkerConfig config = ConfigOf(1, 4);
  EXPECT_EQ(Make(config), absl::OkStatus());
  EXPECT_FALSE(workshop_->augmenter.has_value());
  config.job.mutable_data()->mutable_augmentation()->set_shift(1);
  EXPECT_THAT(MakeAugmenter(config, &*workshop_).message(),
              HasSubstr("data.augmentation: only images can be moved"));
}

TEST_F(WorkshopTest, AWorkerMakesTheBatchesOfItsSeats) {
  const WorkerConfig config = ConfigOf(1, 4);
  ASSERT_EQ(Make(config), absl::OkStatus());
  const auto batches =
      StartBatches(config, *workshop_, &workshop_->train_set());
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_EQ((*batches)
                ->Next(GlobalStep(0), 0, absl::InfiniteFuture())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  const auto batch = (*batches)->Next(GlobalStep(0), 1, absl::InfiniteFuture());
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->size(), 2);
}

}  // namespace
}  // namespace holdfast

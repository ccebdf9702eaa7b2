// SPDX-License-Identifier: Apache-2.0

// First values that a worker gives, with daemons as processes: the result is
// the same for any number of ps, even if a ps dies before it has saved
// anything.

#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/tensor/digest.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

namespace holdfast {
namespace {

using google::protobuf::TextFormat;
using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
absl::Time Soon() { return SteadyNow() + kPatience; }

// "large" has three ranges, and slices divide ranges.
constexpr char kDeclaration[] = R"pb(
  variables {
    name: "large"
    shape: [ 701, 1000 ]
    dtype: FLOAT32
    initializer { given {} }
    partitioner { fixed_shards { shards: 3 } }
  }
  variables {
    name: "made"
    shape: [ 10, 10 ]
    dtype: FLOAT32
    initializer { glorot {} }
  }
  variables {
    name: "fixed"
    shape: 5
    dtype: FLOAT32
    initializer { given {} }
    trainable: false
  }
  optimizers {
    learning_rate: 0.1
    momentum { momentum: 0.9 }
  }
  consistency { synchronous {} }
  seed: 1
  total_steps: 4
  checkpoints { every_seconds: 0 }
)pb";

std::vector<float> Numbers(size_t n, float first) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + 0.001f * i;
  return values;
}

class GivenValuesTest : public testing::Test {
 protected:
  GivenValuesTest() {
    EXPECT_TRUE(TextFormat::ParseFromString(kDeclaration, &declaration_));
    std::string folder = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  void StartCluster(uint32_t num_ps, uint32_t num_workers = 1) {
    spec_ = MakeLoopbackCluster(num_ps, num_workers);
    ps_.resize(num_ps);
    for (uint32_t i = 0; i < num_ps; ++i) StartPs(i);
  }
  void StartPs(uint32_t index) {
    ps_[index] = std::make_unique<Process>(
        "ps_server/ps_server",
        std::vector<std::string>{
            absl::StrCat("--task_index=", index),
            absl::StrCat("--cluster_spec=", spec_->ToJson()),
            absl::StrCat("--checkpoint_dir=", folder_), "--lease=1s"});
  }
  std::unique_ptr<Cluster> Connect(uint32_t replica = 0) {
    Cluster::Options options{*spec_};
    options.task = *spec_->ReplicaTask(replica);
    options.job_digest = "job";
    options.data_digest = "data";
    auto cluster = Cluster::Connect(std::move(options));
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    return *std::move(cluster);
  }
  FirstValues First() {
    return [this](size_t variable) {
      ++asked_;
      return absl::MakeConstSpan(variable == 0 ? large_ : fixed_);
    };
  }
  void Declare(Cluster* cluster) {
    proto::Declaration declaration = declaration_;
    ASSERT_EQ(DigestFirstValues(First(), &declaration), absl::OkStatus());
    asked_ = 0;
    ASSERT_EQ(cluster->Declare(declaration, Soon()), absl::OkStatus());
  }
  Parameters Pull(Cluster* cluster, uint64_t at_least) {
    Parameters values;
    const absl::Status status =
        cluster->StartPull(GlobalStep(at_least), &values)->Await(Soon());
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }
  // Makes one step, whose gradient is a tenth of the values.
  absl::Status Step(Cluster* cluster, const Parameters& at) {
    std::vector<std::vector<float>> gradients(2);
    for (size_t v = 0; v < gradients.size(); ++v) {
      for (const float x : at.Of(v)) gradients[v].push_back(0.1f * x);
    }
    auto push = cluster->StartPush(at.version);
    for (size_t v = 0; v < gradients.size(); ++v) {
      absl::Status status = push->Add(v, gradients[v]);
      if (!status.ok()) return status;
    }
    Contribution contribution;
    contribution.examples = 10;
    if (absl::Status status = push->Contribute(contribution); !status.ok()) {
      return status;
    }
    return push->Await(Soon()).status();
  }
  // Trains from the current step to the end. Returns the digest of the values.
  std::string Train(Cluster* cluster) {
    Parameters values = Pull(cluster, 0);
    while (values.version.value() < declaration_.total_steps()) {
      const absl::Status status = Step(cluster, values);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) return "";
      values = Pull(cluster, values.version.next().value());
    }
    const auto& variables = cluster->declaration().variables();
    const std::string digest = DigestOfVariables(
        std::vector<proto::Variable>(variables.begin(), variables.end()),
        values.All());
    EXPECT_EQ(cluster->AwaitDone(Soon()), absl::OkStatus());
    EXPECT_EQ(cluster->Leave("", Soon()), absl::OkStatus());
    for (const auto& ps : ps_) {
      EXPECT_EQ(ps->Wait(kPatience), 0) << ps->Output();
    }
    return digest;
  }

  proto::Declaration declaration_;
  std::vector<float> large_ = Numbers(701000, 1);
  std::vector<float> fixed_ = Numbers(5, 7);
  // How often the first values of a variable were requested.
  int asked_ = 0;
  std::string folder_;
  std::optional<ClusterSpec> spec_;
  std::vector<std::unique_ptr<Process>> ps_;
};

TEST_F(GivenValuesTest, TheEndIsTheSameForAnyNumberOfPs) {
  std::string one;
  for (const uint32_t num_ps : {1, 2, 4}) {
    folder_ += "/next";
    StartCluster(num_ps);
    const std::unique_ptr<Cluster> cluster = Connect();
    Declare(cluster.get());
    ASSERT_EQ(cluster->AwaitVariables(Soon(), First()), absl::OkStatus());
    EXPECT_EQ(asked_, 2);
    const Parameters first = Pull(cluster.get(), 0);
    EXPECT_EQ(first.Of(0), large_);
    EXPECT_EQ(first.Of(2), fixed_);
    const std::string digest = Train(cluster.get());
    if (one.empty()) one = digest;
    EXPECT_EQ(digest, one) << num_ps << " ps";
  }
}

TEST_F(GivenValuesTest, APsThatDiesBeforeTheFirstCheckpointAsksAgain) {
  std::string undisturbed;
  for (const bool is_killed : {false, true}) {
    folder_ += "/next";
    StartCluster(2);
    const std::unique_ptr<Cluster> cluster = Connect();
    Declare(cluster.get());
    ASSERT_EQ(cluster->AwaitVariables(Soon(), First()), absl::OkStatus());
    if (is_killed) {
      ASSERT_TRUE(Step(cluster.get(), Pull(cluster.get(), 0)).ok());
      asked_ = 0;
      ps_[1]->Signal(SIGKILL);
      ps_[1]->Wait(kPatience);
      StartPs(1);
      Parameters never;
      EXPECT_TRUE(absl::IsAborted(
          cluster->StartPull(GlobalStep(2), &never)->Await(Soon())));
      ASSERT_TRUE(cluster->rolled_back());
      ASSERT_EQ(cluster->AwaitVariables(Soon(), First()), absl::OkStatus());
      EXPECT_EQ(asked_, 2);
      EXPECT_EQ(Pull(cluster.get(), 0).Of(0), large_);
    }
    const std::string digest = Train(cluster.get());
    if (!is_killed) undisturbed = digest;
    EXPECT_EQ(digest, undisturbed);
  }
}

TEST_F(GivenValuesTest, OtherValuesAreRefused) {
  StartCluster(2, 2);
  const std::unique_ptr<Cluster> chief = Connect(0);
  const std::unique_ptr<Cluster> other = Connect(1);
  Declare(chief.get());
  // From a worker that declares its different values,
  large_[700000] += 1;
  proto::Declaration declaration = declaration_;
  ASSERT_EQ(DigestFirstValues(First(), &declaration), absl::OkStatus());
  const absl::Status declared = other->Declare(declaration, Soon());
  EXPECT_TRUE(absl::IsAlreadyExists(declared)) << declared;
  EXPECT_THAT(declared.ToString(),
              HasSubstr("/job:worker/task:1 has other first values of variable "
                        "\"large\" than were declared before"));
  // and from a worker that does not.
  const absl::Status given = other->AwaitVariables(Soon(), First());
  EXPECT_TRUE(absl::IsInvalidArgument(given)) << given;
  EXPECT_THAT(given.ToString(),
              AllOf(HasSubstr("/job:ps/task:"),
                    HasSubstr("first values of variable \"large\": elements "
                              "524288 to 700999 are not those that were "
                              "declared (by SHA-256) (given by "
                              "/job:worker/task:1)")));
  large_[700000] -= 1;
  EXPECT_EQ(chief->AwaitVariables(Soon(), First()), absl::OkStatus());
  // A worker that has no values gets them, too.
  EXPECT_EQ(other->AwaitVariables(Soon()), absl::OkStatus());
  EXPECT_EQ(Pull(other.get(), 0).Of(0), large_);
}

TEST_F(GivenValuesTest, AJobThatGoesOnFromACheckpointAsksNobody) {
  StartCluster(2);
  {
    const std::unique_ptr<Cluster> cluster = Connect();
    Declare(cluster.get());
    ASSERT_EQ(cluster->AwaitVariables(Soon(), First()), absl::OkStatus());
    ASSERT_TRUE(Step(cluster.get(), Pull(cluster.get(), 0)).ok());
    // The coordinator learns of the step a little later than the worker.
    GlobalStep saved;
    while (saved < GlobalStep(1)) {
      const absl::StatusOr<GlobalStep> next = cluster->SaveCheckpoint(Soon());
      ASSERT_TRUE(next.ok()) << next.status();
      saved = *next;
    }
    ASSERT_EQ(cluster->Leave("", Soon()), absl::OkStatus());
  }
  for (const auto& ps : ps_) {
    ps->Signal(SIGKILL);
    ps->Wait(kPatience);
  }
  StartPs(0);
  StartPs(1);
  const std::unique_ptr<Cluster> cluster = Connect();
  Declare(cluster.get());
  ASSERT_EQ(cluster->AwaitVariables(Soon(), First()), absl::OkStatus());
  EXPECT_EQ(asked_, 0);
  const Parameters values = Pull(cluster.get(), 0);
  EXPECT_EQ(values.version, GlobalStep(1));
  EXPECT_NE(values.Of(0), large_);
  EXPECT_EQ(values.Of(2), fixed_);
}

TEST_F(GivenValuesTest, WhereNobodyGivesThemTheJobFailsWithTheirName) {
  declaration_.mutable_timeouts()->set_start_seconds(1);
  StartCluster(2);
  const std::unique_ptr<Cluster> cluster = Connect();
  Declare(cluster.get());
  const absl::Status status = cluster->AwaitVariables(Soon());
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("the job did not start within 1s: waited for a "
                              "worker that gives the first values of variable "
                              "\"large\" at /job:ps/task:0"),
                    HasSubstr("at /job:ps/task:1")));
  for (const auto& ps : ps_) {
    EXPECT_EQ(ps->Wait(kPatience), 1) << ps->Output();
  }
}

}  // namespace
}  // namespace holdfast

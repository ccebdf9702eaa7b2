// SPDX-License-Identifier: Apache-2.0

// Real servers and the client library over loopback: whole-number gradients
// give values that were calculated by hand.

#include "tests/integration/training.h"

#include <future>
#include <memory>
#include <vector>

#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {
namespace {

using testing::Each;
using testing::HasSubstr;

struct Shape {
  uint32_t num_ps;
  // Includes the chief, which is the first worker, if `has_chief`.
  uint32_t num_workers;
  bool has_chief;
};

class TrainingTest : public testing::TestWithParam<Shape> {};

TEST_P(TrainingTest, WholeNumbers) {
  const Shape& shape = GetParam();
  TestCluster cluster(
      MakeLoopbackCluster(shape.num_ps, shape.num_workers - shape.has_chief,
                          shape.has_chief),
      kLongLease);
  std::vector<std::future<absl::Status>> workers;
  for (uint32_t replica = 0; replica < shape.num_workers; ++replica) {
    workers.push_back(std::async(std::launch::async, [&, replica] {
      absl::StatusOr<std::unique_ptr<Cluster>> client =
          ConnectWorker(cluster.spec(), replica);
      if (!client.ok()) return client.status();
      TrainOptions options;
      options.replica = replica;
      options.total_steps = 5;
      // The mean of 1, 3, ..., 2 M - 1.
      options.mean = static_cast<float>(shape.num_workers);
      return Train(client->get(), options);
    }));
  }
  for (std::future<absl::Status>& worker : workers) {
    EXPECT_EQ(worker.get(), absl::OkStatus());
  }
  for (uint32_t ps = 0; ps < shape.num_ps; ++ps) {
    EXPECT_EQ(cluster.Wait(ps), absl::OkStatus());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TrainingTest,
                         testing::Values(Shape{1, 1, false}, Shape{1, 2, false},
                                         Shape{2, 2, false}, Shape{2, 2, true},
                                         Shape{5, 4, false}),
                         [](const auto& info) {
                           const Shape& shape = info.param;
                           return std::to_string(shape.num_ps) + "Ps" +
                                  std::to_string(shape.num_workers) +
                                  "Workers" + (shape.has_chief ? "Chief" : "");
                         });

// Makes one step with `seats` gradients of 1, 3, 5, ..., which one worker
// pushes one after the other: an initial value of 10 decreases by the
// aggregate.
void ExpectStep(uint32_t seats, proto::Consistency::Aggregation aggregation,
                float aggregate) {
  SCOPED_TRACE(testing::Message() << seats << " gradients");
  TestCluster cluster(MakeLoopbackCluster(2, 1), kLongLease);
  const auto worker = ConnectWorker(cluster.spec(), 0);
  ASSERT_TRUE(worker.ok()) << worker.status();
  proto::Declaration declaration = MakeDeclaration(/*total_steps=*/1);
  auto& mode = *declaration.mutable_consistency()->mutable_synchronous();
  mode.set_replicas_to_aggregate(seats);
  mode.set_aggregation(aggregation);
  ASSERT_EQ((*worker)->Declare(declaration, Soon()), absl::OkStatus());
  ASSERT_EQ((*worker)->AwaitVariables(Soon()), absl::OkStatus());
  std::vector<std::unique_ptr<Cluster::Push>> pushes;
  for (uint32_t seat = 0; seat < seats; ++seat) {
    auto push = PushAndOffer(worker->get(), GlobalStep(0), seat, Soon());
    ASSERT_TRUE(push.ok()) << push.status();
    pushes.push_back(*std::move(push));
  }
  Parameters next;
  ASSERT_EQ((*worker)->StartPull(GlobalStep(1), &next)->Await(Soon()),
            absl::OkStatus());
  EXPECT_THAT(next.Of(0), Each(10 - aggregate));
  EXPECT_THAT(next.Of(3), Each(10 - aggregate));
  for (const auto& push : pushes) {
    const auto outcome = push->Await(Soon());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->verdict, proto::ACCEPTED);
  }
  EXPECT_EQ((*worker)->Leave("", Soon()), absl::OkStatus());
}

// The mean of n odd numbers from 1 on is n, and their sum n^2.
TEST(AggregationTest, MeansOfWholeNumbersAreExact) {
  for (uint32_t n = 2; n <= 16; ++n) {
    ExpectStep(n, proto::Consistency::MEAN, static_cast<float>(n));
  }
  for (const uint32_t n : {64, 100}) {
    ExpectStep(n, proto::Consistency::MEAN, static_cast<float>(n));
  }
}

TEST(AggregationTest, Sums) {
  for (const uint32_t n : {1, 3, 7}) {
    ExpectStep(n, proto::Consistency::SUM, static_cast<float>(n * n));
  }
}

TEST(DeclareTest, TheSameAgainIsFineAndAnotherIsAnErrorThatNamesTheDifference) {
  TestCluster cluster(MakeLoopbackCluster(2, 2), kLongLease);
  const auto first = ConnectWorker(cluster.spec(), 0);
  const auto second = ConnectWorker(cluster.spec(), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  const proto::Declaration declaration = MakeDeclaration(5);
  EXPECT_EQ((*first)->Declare(declaration, Soon()), absl::OkStatus());
  EXPECT_EQ((*first)->Declare(declaration, Soon()), absl::OkStatus());
  EXPECT_EQ((*second)->Declare(declaration, Soon()), absl::OkStatus());

  proto::Declaration other = declaration;
  other.mutable_variables(2)->add_shape(4);
  const absl::Status status = (*second)->Declare(other, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/job:worker/task:1"),
                    HasSubstr("variables[2].shape"), HasSubstr("4")));
  EXPECT_EQ((*second)->AwaitVariables(Soon()), absl::OkStatus());
}

TEST(JoinTest, AnotherJobFileIsRefused) {
  TestCluster cluster(MakeLoopbackCluster(1, 2), kLongLease);
  const auto first = ConnectWorker(cluster.spec(), 0, "digest-1");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = ConnectWorker(cluster.spec(), 1, "digest-2");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(second.status().message()),
      AllOf(HasSubstr("/job:worker/task:0"), HasSubstr("/job:worker/task:1"),
            HasSubstr("digest-1"), HasSubstr("digest-2")));
}

TEST(JoinTest, ATakenPlaceIsRefusedByName) {
  // Refused when the first worker renews its lease.
  TestCluster cluster(MakeLoopbackCluster(1, 2), kShortLease);
  const auto first = ConnectWorker(cluster.spec(), 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = ConnectWorker(cluster.spec(), 0);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("/job:worker/task:0"));
}

}  // namespace
}  // namespace holdfast

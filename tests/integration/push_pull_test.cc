// SPDX-License-Identifier: Apache-2.0

// PushPull on a real ps: each answer is the same as from Push, Contribute or
// Apply, and Pull one after the other, however often the request is repeated.

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/shard.grpc.pb.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kNoTime = 50;
constexpr uint64_t kLong = 30000;

constexpr uint64_t kSteps = 200;

// "w" is initially [10, 10]; the learning rate is 1.
proto::Declaration Declared(bool asynchronous) {
  proto::Declaration declaration;
  proto::Variable& w = *declaration.add_variables();
  w.set_name("w");
  w.add_shape(2);
  w.set_dtype(proto::FLOAT32);
  w.mutable_initializer()->mutable_constant()->set_value(10);
  declaration.add_optimizers()->set_learning_rate(1);
  declaration.mutable_optimizers(0)->mutable_sgd();
  if (asynchronous) {
    declaration.mutable_consistency()
        ->mutable_asynchronous()
        ->set_pipeline_depth(2);
  } else {
    declaration.mutable_consistency()->mutable_synchronous();
  }
  declaration.set_total_steps(kSteps);
  return declaration;
}

// A worker that makes bare RPCs.
class Worker {
 public:
  Worker(const TestCluster& cluster, uint32_t index)
      : coordinator_(Coordinator::NewStub(
            MakeChannel(cluster.address(0), /*ps=*/0, ChannelKind::kControl,
                        Credentials()))),
        shard_(
            Shard::NewStub(MakeChannel(cluster.address(0), /*ps=*/0,
                                       ChannelKind::kTensors, Credentials()))) {
    sender_.mutable_task()->set_job("worker");
    sender_.mutable_task()->set_index(index);
    proto::RegisterRequest request;
    *request.mutable_sender() = sender_;
    request.set_nonce(index + 1);
    request.set_protocol_version(kProtocolVersion);
    request.set_process("test");
    request.set_job_digest("job");
    request.set_data_digest("data");
    request.set_num_ps(cluster.spec().num_ps());
    request.set_num_workers(cluster.spec().num_replicas());
    proto::RegisterResponse response;
    Must(Call(coordinator_.get(), &Coordinator::Stub::Register, request,
              &response));
    sender_.set_incarnation(response.incarnation());
    sender_.set_generation(response.generation());
  }

  // Declares the job, and waits until the variables exist.
  void Declare(bool asynchronous) {
    proto::DeclareRequest declare;
    *declare.mutable_sender() = sender_;
    *declare.mutable_declaration() = Declared(asynchronous);
    proto::DeclareResponse declared;
    Must(Call(coordinator_.get(), &Coordinator::Stub::Declare, declare,
              &declared));
    proto::GetPlacementRequest request;
    *request.mutable_sender() = sender_;
    request.set_wait_ms(kLong);
    proto::GetPlacementResponse placement;
    do {
      Must(Call(coordinator_.get(), &Coordinator::Stub::GetPlacement, request,
                &placement));
    } while (!placement.ready());
  }

  proto::Sender* sender() { return &sender_; }

  // A push with `gradient` in both elements, which also requests "w".
  proto::PushPullRequest Request(uint64_t sequence, uint64_t step,
                                 float gradient, uint64_t wait_ms) const {
    proto::PushPullRequest request;
    *request.mutable_sender() = sender_;
    request.set_sequence(sequence);
    request.set_step(step);
    request.set_wait_ms(wait_ms);
    proto::ReadRange& range = *request.add_ranges();
    range.set_variable("w");
    range.set_size(2);
    proto::TensorPart& part = *request.add_tensors();
    part.set_variable("w");
    part.add_shape(2);
    part.set_dtype(proto::FLOAT32);
    const float elements[] = {gradient, gradient};
    part.set_data(elements, sizeof(elements));
    return request;
  }
  proto::PushPullRequest Offer(uint64_t sequence, uint64_t step, float gradient,
                               uint64_t wait_ms) const {
    proto::PushPullRequest request = Request(sequence, step, gradient, wait_ms);
    request.mutable_contribution()->set_seat(sender_.task().index());
    request.mutable_contribution()->set_examples(8);
    return request;
  }
  // Takes the ticket for this push.
  proto::PushPullRequest Apply(uint64_t sequence, float gradient,
                               uint64_t wait_ms) {
    proto::TakeTicketRequest take;
    *take.mutable_sender() = sender_;
    take.set_sequence(sequence);
    take.set_wait_ms(kLong);
    proto::TakeTicketResponse taken;
    Must(
        Call(coordinator_.get(), &Coordinator::Stub::TakeTicket, take, &taken));
    proto::PushPullRequest request = Request(sequence, 0, gradient, wait_ms);
    request.mutable_application()->set_examples(8);
    *request.mutable_application()->mutable_scalars() =
        taken.ticket().scalars();
    request.mutable_application()->set_ticket_receipt(taken.ticket().receipt());
    return request;
  }

  absl::StatusOr<proto::PushPullResponse> PushPull(
      const proto::PushPullRequest& request) {
    proto::PushPullResponse response;
    absl::Status status =
        Call(shard_.get(), &Shard::Stub::PushPull, request, &response);
    if (!status.ok()) return status;
    return response;
  }

 private:
  using Coordinator = proto::Coordinator;
  using Shard = proto::Shard;

  template <typename Stub, typename Request, typename Response>
  static absl::Status Call(Stub* stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                        const Request&,
                                                        Response*),
                           const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(Soon()));
    context.set_wait_for_ready(true);
    return FromGrpcStatus((stub->*method)(&context, request, response));
  }
  static void Must(const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
  }

  const std::unique_ptr<Coordinator::Stub> coordinator_;
  const std::unique_ptr<Shard::Stub> shard_;
  proto::Sender sender_;
};

std::vector<float> W(const proto::PushPullResponse& response) {
  std::vector<float> w;
  for (const proto::TensorPart& part : response.tensors()) {
    EXPECT_EQ(part.variable(), "w");
    w.resize(part.data().size() / sizeof(float));
    std::memcpy(w.data(), part.data().data(), part.data().size());
  }
  return w;
}

class PushPullTest : public testing::Test {
 protected:
  void SetUpJob(bool asynchronous) {
    first_.Declare(asynchronous);
    second_.Declare(asynchronous);
  }

  TestCluster cluster_{MakeLoopbackCluster(1, 2), kLongLease};
  Worker first_{cluster_, 0};
  Worker second_{cluster_, 1};
};

TEST_F(PushPullTest, AContributionCountsOnceHoweverOftenItIsSent) {
  SetUpJob(/*asynchronous=*/false);
  for (int i = 0; i < 2; ++i) {
    const auto open = first_.PushPull(first_.Offer(1, 0, 1, kNoTime));
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_EQ(open->verdict(), proto::VERDICT_UNSPECIFIED);
    EXPECT_THAT(open->waiting_for(), HasSubstr("/job:worker/task:1"));
    EXPECT_EQ(open->version(), 0);
    EXPECT_THAT(W(*open), IsEmpty());
  }
  // The mean of 1 and 3.
  const auto closes = second_.PushPull(second_.Offer(1, 0, 3, kLong));
  ASSERT_TRUE(closes.ok()) << closes.status();
  EXPECT_EQ(closes->verdict(), proto::ACCEPTED);
  EXPECT_EQ(closes->global_step(), 1);
  EXPECT_EQ(closes->generation(), second_.sender()->generation());
  EXPECT_EQ(closes->version(), 1);
  EXPECT_THAT(W(*closes), ElementsAre(8, 8));
  for (int i = 0; i < 2; ++i) {
    const auto again = first_.PushPull(first_.Offer(1, 0, 1, kLong));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->verdict(), proto::ACCEPTED);
    EXPECT_EQ(again->version(), 1);
    EXPECT_THAT(W(*again), ElementsAre(8, 8));
  }
  // Another push of that step comes too late.
  const auto late = first_.PushPull(first_.Offer(2, 0, 100, kLong));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->verdict(), proto::STALE);
  EXPECT_THAT(W(*late), ElementsAre(8, 8));
}

// A contribution may have no examples; then it has no gradient either.
TEST_F(PushPullTest, WithoutExamplesNothingIsPushed) {
  SetUpJob(/*asynchronous=*/false);
  proto::PushPullRequest nothing = first_.Offer(1, 0, 1, kNoTime);
  nothing.mutable_contribution()->set_examples(0);
  nothing.clear_tensors();
  const auto open = first_.PushPull(nothing);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->verdict(), proto::VERDICT_UNSPECIFIED);
  const auto closes = second_.PushPull(second_.Offer(1, 0, 3, kLong));
  ASSERT_TRUE(closes.ok()) << closes.status();
  EXPECT_THAT(W(*closes), ElementsAre(7, 7));
}

TEST_F(PushPullTest, WithoutRangesOnlyTheVerdictIsAwaited) {
  SetUpJob(/*asynchronous=*/false);
  ASSERT_TRUE(first_.PushPull(first_.Offer(1, 0, 1, kNoTime)).ok());
  proto::PushPullRequest request = second_.Offer(1, 0, 3, kLong);
  request.clear_ranges();
  const auto closes = second_.PushPull(request);
  ASSERT_TRUE(closes.ok()) << closes.status();
  EXPECT_EQ(closes->verdict(), proto::ACCEPTED);
  EXPECT_THAT(closes->tensors(), IsEmpty());
}

TEST_F(PushPullTest, APushIsAppliedOnceAndInItsOrder) {
  SetUpJob(/*asynchronous=*/true);
  // Tickets are taken in order.
  const proto::PushPullRequest first = first_.Apply(1, 1, kLong);
  const auto early = first_.PushPull(first_.Apply(2, 2, kNoTime));
  ASSERT_TRUE(early.ok()) << early.status();
  EXPECT_EQ(early->verdict(), proto::VERDICT_UNSPECIFIED);
  EXPECT_THAT(early->waiting_for(), HasSubstr("1"));
  EXPECT_THAT(W(*early), IsEmpty());
  for (int i = 0; i < 2; ++i) {
    const auto applied = first_.PushPull(first);
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_NE(applied->receipt(), 0);
    EXPECT_EQ(applied->verdict(), proto::ACCEPTED);
    EXPECT_EQ(applied->staleness(), 0);
    EXPECT_EQ(applied->version(), 1);
    EXPECT_THAT(W(*applied), ElementsAre(9, 9));
  }
  const auto other = second_.PushPull(second_.Apply(1, 4, kLong));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->staleness(), 1);
  EXPECT_THAT(W(*other), ElementsAre(5, 5));
  for (int i = 0; i < 2; ++i) {
    const auto applied = first_.PushPull(first_.Apply(2, 2, kLong));
    ASSERT_TRUE(applied.ok()) << applied.status();
    EXPECT_EQ(applied->verdict(), proto::ACCEPTED);
    EXPECT_EQ(applied->staleness(), 2);
    EXPECT_EQ(applied->version(), 3);
    EXPECT_THAT(W(*applied), ElementsAre(3, 3));
  }
}

TEST_F(PushPullTest, ScalarsAreThoseOfTheTicket) {
  SetUpJob(/*asynchronous=*/true);
  const proto::PushPullRequest good = first_.Apply(1, 1, kLong);
  proto::PushPullRequest bad = good;
  bad.mutable_application()->mutable_scalars(0)->set_learning_rate(1e9f);
  const auto refused = first_.PushPull(bad);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("push 1 of /job:worker/task:0"));
  const auto applied = first_.PushPull(good);
  ASSERT_TRUE(applied.ok()) << applied.status();
  EXPECT_THAT(W(*applied), ElementsAre(9, 9));
}

TEST_F(PushPullTest, OfAnotherGenerationIsAborted) {
  SetUpJob(/*asynchronous=*/false);
  first_.sender()->set_generation(first_.sender()->generation() - 1);
  const auto aborted = first_.PushPull(first_.Offer(1, 0, 1, kLong));
  ASSERT_TRUE(aborted.ok()) << aborted.status();
  EXPECT_EQ(aborted->verdict(), proto::ABORTED);
  EXPECT_EQ(aborted->generation(), second_.sender()->generation());
}

TEST_F(PushPullTest, WhatIsWrongIsNamed) {
  SetUpJob(/*asynchronous=*/false);
  const proto::PushPullRequest good = first_.Offer(1, 0, 1, kNoTime);
  const auto error = [&](auto change) {
    proto::PushPullRequest bad = good;
    change(&bad);
    return first_.PushPull(bad).status();
  };
  const auto expect = [](const absl::Status& status, absl::StatusCode code,
                         absl::string_view text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  expect(error([](auto* bad) { bad->clear_sender(); }), kInvalid, "sender");
  expect(error([](auto* bad) { bad->clear_outcome(); }), kInvalid,
         "contribution or application");
  expect(error([](auto* bad) { bad->mutable_ranges(0)->set_size(1u << 30); }),
         kInvalid, "ranges[0]");
  expect(error([](auto* bad) { bad->mutable_tensors(0)->set_variable("x"); }),
         kInvalid, "\"x\"");
  expect(error([](auto* bad) { bad->mutable_tensors(0)->clear_variable(); }),
         kInvalid, "\"\"");
  // Errors of the coordinator.
  expect(error([](auto* bad) { bad->mutable_contribution()->set_seat(1); }),
         kInvalid, "seat 1");
  expect(error([](auto* bad) { bad->mutable_application()->set_examples(8); }),
         absl::StatusCode::kFailedPrecondition, "");
  const auto garbage =
      RawClient(cluster_.address(0))
          .CallBytes("/holdfast.proto.Shard/PushPull", "\x0a\x05", kPatience);
  expect(garbage.status(), kInvalid, "holdfast.proto.PushPullRequest");
  // Errors of the read are reported by the pull that follows.
  proto::PushPullRequest unknown = good;
  unknown.mutable_ranges(0)->set_variable("x");
  const auto kept = first_.PushPull(unknown);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_THAT(kept->tensors(), IsEmpty());
}

// Verdict and values come from two threads in either order.
TEST(PushPullOfOneWorkerTest, EachStepIsOneCall) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kLongLease);
  Worker worker(cluster, 0);
  worker.Declare(/*asynchronous=*/false);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const auto made = worker.PushPull(worker.Offer(step + 1, step, 1, kLong));
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_EQ(made->verdict(), proto::ACCEPTED);
    ASSERT_EQ(made->generation(), worker.sender()->generation());
    ASSERT_EQ(made->version(), step + 1);
    const float w = 9 - static_cast<float>(step);
    ASSERT_THAT(W(*made), ElementsAre(w, w));
  }
}

TEST(PushPullOfSeveralPsTest, IsRefused) {
  TestCluster cluster(MakeLoopbackCluster(2, 1), kLongLease);
  Worker worker(cluster, 0);
  worker.Declare(/*asynchronous=*/false);
  const auto refused = worker.PushPull(worker.Offer(1, 0, 1, kLong));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("several ps"));
}

}  // namespace
}  // namespace holdfast

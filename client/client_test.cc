// SPDX-License-Identifier: Apache-2.0

// The whole client in one thread, over a transport that is operated by hand.
#include "client/client.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Passed to the Await of handles that are done; the transport fails the test
// for any wait.
constexpr absl::Time kNow = absl::InfinitePast();

class ClientMachineTest : public GenerationTest {
 protected:
  void MakeClient(uint32_t num_ps, bool asynchronous) {
    Client::Options options;
    options.task = {kWorkerJob, 1};
    options.part_bytes = 1 << 20;
    options.ps_names = PsNames(num_ps);
    client_ = std::make_unique<Client>(std::move(options), &transport_);
    Hear(2);
    auto variables = client_->StartAwaitVariables();
    EXPECT_FALSE(variables->done());
    transport_.Take(rpc::kGetPlacement)
        .Answer(PlacementOf(num_ps, asynchronous));
    ASSERT_TRUE(variables->done());
    ASSERT_EQ(variables->Await(kNow).status(), absl::OkStatus());
  }
  void Hear(uint64_t generation, proto::JobPhase phase = proto::TRAINING) {
    SessionNews news;
    news.sender = SenderOf(generation);
    news.state.set_phase(phase);
    client_->Hear(news);
  }
  void AddAll(Cluster::Push* push) {
    ASSERT_EQ(push->Add(1, b_), absl::OkStatus());
    ASSERT_EQ(push->Add(0, a_), absl::OkStatus());
  }
  // Answers with everything requested, at this version.
  void AnswerPull(uint32_t ps, uint64_t version) {
    auto pull = transport_.Take(rpc::kPull, ps);
    EXPECT_LE(pull.request.min_version(), version);
    WithTensors<proto::PullResponse> response;
    response.message.set_version(version);
    for (const proto::ReadRange& range : pull.request.ranges()) {
      response.tensors.push_back(PieceOf(range, static_cast<float>(version)));
    }
    pull.Answer(response);
  }

  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  Parameters values_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientMachineTest, AStepIsPushedOfferedAndPulled) {
  MakeClient(/*num_ps=*/2, /*asynchronous=*/false);
  auto push = client_->StartPush(GlobalStep(7));
  AddAll(push.get());
  ASSERT_EQ(push->Contribute({1, 8}, &values_), absl::OkStatus());
  EXPECT_THAT(transport_.names(), ElementsAre("Push", "Push"));
  transport_.Take(rpc::kPush, 1).Answer(proto::PushResponse());
  EXPECT_THAT(transport_.names(), ElementsAre("Push"));
  transport_.Take(rpc::kPush, 0).Answer(proto::PushResponse());

  EXPECT_THAT(transport_.names(), ElementsAre("Pull", "Pull", "Contribute"));
  proto::ContributeResponse accepted;
  accepted.set_verdict(proto::ACCEPTED);
  accepted.set_global_step(8);
  transport_.Take(rpc::kContribute).Answer(accepted);
  AnswerPull(0, 8);
  EXPECT_FALSE(push->done());
  AnswerPull(1, 8);
  ASSERT_TRUE(push->done());
  const auto outcome = push->Await(kNow);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->verdict, proto::ACCEPTED);
  EXPECT_EQ(values_.version, GlobalStep(8));
  EXPECT_THAT(values_.Of(1), Each(8));
}

TEST_F(ClientMachineTest, AnApplicationIsFollowedByThePull) {
  MakeClient(2, /*asynchronous=*/true);
  auto request = client_->StartTakeTicket();
  proto::TakeTicketResponse given;
  given.mutable_ticket()->set_index(40);
  EXPECT_FALSE(request->done());
  transport_.Take(rpc::kTakeTicket).Answer(given);
  ASSERT_TRUE(request->done());
  const auto ticket = request->Await(kNow);
  ASSERT_TRUE(ticket.ok() && ticket->has_value());
  EXPECT_EQ((*ticket)->index, 40);

  Parameters at;
  at.versions = {GlobalStep(4), GlobalStep(5)};
  auto push = client_->StartPush(**ticket, at);
  AddAll(push.get());
  ASSERT_EQ(push->Contribute({0, 8}, &values_), absl::OkStatus());
  for (const uint32_t ps : {0, 1}) {
    auto part = transport_.Take(rpc::kPush, ps);
    EXPECT_EQ(part.request.message.step(), 4 + ps);
    part.Answer(proto::PushResponse());
  }
  EXPECT_THAT(transport_.names(), ElementsAre("Apply", "Apply"));
  proto::ApplyResponse applied;
  applied.set_verdict(proto::ACCEPTED);
  applied.set_staleness(2);
  for (const uint32_t ps : {0, 1}) {
    EXPECT_FALSE(transport_.Has(rpc::kPull));
    transport_.Take(rpc::kApply, ps).Answer(applied);
  }
  AnswerPull(0, 6);
  AnswerPull(1, 9);
  ASSERT_TRUE(push->done());
  const auto outcome = push->Await(kNow);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->staleness, 2);
  EXPECT_THAT(values_.versions, ElementsAre(GlobalStep(6), GlobalStep(9)));
}

// [F]
TEST_F(ClientMachineTest, WhereAllFitsInOneCallItIsOne) {
  MakeClient(/*num_ps=*/1, /*asynchronous=*/false);
  auto push = client_->StartPush(GlobalStep(7));
  AddAll(push.get());
  EXPECT_THAT(transport_.names(), IsEmpty());
  ASSERT_EQ(push->Contribute({1, 8}), absl::OkStatus());
  EXPECT_THAT(transport_.names(), ElementsAre("PushPull"));
  WithTensors<proto::PushPullResponse> response;
  response.message.set_verdict(proto::STALE);
  transport_.Take(rpc::kPushPull).Answer(response);
  ASSERT_TRUE(push->done());
  EXPECT_EQ(push->Await(kNow)->verdict, proto::STALE);
}

// Answers of a lower version are pulled again.
TEST_F(ClientMachineTest, APullIsOfOneVersion_R7) {
  MakeClient(2, false);
  auto pull = client_->StartPull(GlobalStep(3), &values_);
  AnswerPull(0, 4);
  AnswerPull(1, 6);
  EXPECT_FALSE(pull->done());
  EXPECT_FALSE(transport_.Has(rpc::kPull, 1));
  auto again = transport_.Take(rpc::kPull, 0);
  EXPECT_EQ(again.request.min_version(), 6);
  WithTensors<proto::PullResponse> response;
  response.message.set_version(6);
  for (const proto::ReadRange& range : again.request.ranges()) {
    response.tensors.push_back(PieceOf(range, 6));
  }
  again.Answer(response);
  ASSERT_TRUE(pull->done());
  ASSERT_EQ(pull->Await(kNow), absl::OkStatus());
  EXPECT_EQ(values_.version, GlobalStep(6));
  EXPECT_THAT(values_.Of(0), Each(6));
  EXPECT_THAT(values_.Of(1), Each(6));
}

// [G6]
TEST_F(ClientMachineTest, ANewGenerationEndsWhatIsUnderWay) {
  MakeClient(2, false);
  auto push = client_->StartPush(GlobalStep(7));
  AddAll(push.get());
  auto pull = client_->StartPull(GlobalStep(8), &values_);
  EXPECT_FALSE(push->done() || pull->done());
  Hear(3);
  EXPECT_TRUE(client_->rolled_back());
  ASSERT_TRUE(push->done() && pull->done());
  EXPECT_TRUE(absl::IsAborted(pull->Await(kNow)));
  push.reset();
  pull.reset();
  EXPECT_THAT(transport_.names(), IsEmpty());

  auto variables = client_->StartAwaitVariables();
  proto::GetPlacementResponse placement = PlacementOf(2, false);
  placement.set_generation(3);
  transport_.Take(rpc::kGetPlacement).Answer(placement);
  ASSERT_TRUE(variables->done());
  ASSERT_EQ(variables->Await(kNow).status(), absl::OkStatus());
  EXPECT_FALSE(client_->rolled_back());
  push = client_->StartPush(GlobalStep(0));
  EXPECT_EQ(push->sequence(), PushSequence(1));
  AddAll(push.get());
  ASSERT_EQ(push->Contribute({1, 8}), absl::OkStatus());
  EXPECT_EQ(transport_.Take(rpc::kPush).request.message.sender().generation(),
            3);
}

// Early stopping: the shards, which hear of the end last, park a pull of the
// next version, which will never exist. A version that exists can still be
// read.
TEST_F(ClientMachineTest, AParkedPullEndsWithTheJob) {
  for (const uint64_t newest : {7, 8}) {
    MakeClient(1, /*asynchronous=*/false);
    Parameters values;
    auto pull = client_->StartPull(GlobalStep(8), &values);
    WithTensors<proto::PullResponse> parked;
    parked.message.set_version(7);
    auto call = transport_.Take(rpc::kPull, 0);
    EXPECT_GT(call.request.wait_ms(), 0);
    Hear(2, proto::DONE);
    call.Answer(parked);
    EXPECT_FALSE(pull->done());
    if (newest == 8) {
      AnswerPull(0, newest);
      ASSERT_TRUE(pull->done());
      EXPECT_EQ(pull->Await(kNow), absl::OkStatus());
      EXPECT_EQ(values.version, GlobalStep(8));
      continue;
    }
    auto last = transport_.Take(rpc::kPull, 0);
    EXPECT_EQ(last.request.wait_ms(), 0);
    last.Answer(parked);
    ASSERT_TRUE(pull->done());
    EXPECT_EQ(pull->Await(kNow),
              absl::FailedPreconditionError(absl::StrCat(
                  PsNames(1)[0],
                  ": the job is done at version 7, version 8 will not come")));
  }
}

// The evaluator does not call AwaitVariables, because it reads checkpoints from
// disk.
TEST_F(ClientMachineTest, AnEvaluatorAsksUntilACheckpointIsDue) {
  Client::Options options;
  options.task = {kEvaluatorJob, 0};
  options.ps_names = PsNames(1);
  client_ = std::make_unique<Client>(std::move(options), &transport_);
  Hear(2);
  auto next = client_->StartNextEvaluation();
  auto call = transport_.Take(rpc::kNextEvaluation);
  EXPECT_GT(call.request.wait_ms(), 0);
  EXPECT_EQ(call.request.sender().generation(), 2);
  // A new generation does not end the wait.
  Hear(3);
  transport_.Pass(absl::Minutes(1));
  proto::NextEvaluationResponse response;
  response.set_generation(3);
  call.Answer(response);
  EXPECT_FALSE(next->done());
  transport_.Pass(absl::Minutes(1));
  auto again = transport_.Take(rpc::kNextEvaluation);
  EXPECT_EQ(again.request.sender().generation(), 3);
  response.mutable_checkpoint()->set_generation(2);
  response.mutable_checkpoint()->set_step(40);
  again.Answer(response);
  ASSERT_TRUE(next->done());
  EXPECT_EQ(next->Await(kNow)->checkpoint().step(), 40);

  proto::EvaluationResult result;
  result.set_loss(0.5);
  auto report = client_->StartReportEvaluation(result, response.checkpoint());
  auto told = transport_.Take(rpc::kReportEvaluation);
  EXPECT_EQ(told.request.sender().generation(), 3);
  EXPECT_EQ(told.request.checkpoint().generation(), 2);
  EXPECT_EQ(told.request.checkpoint().step(), 40);
  EXPECT_EQ(told.request.result().loss(), 0.5);
  told.Answer(proto::ReportEvaluationResponse());
  EXPECT_EQ(report->Await(kNow).status(), absl::OkStatus());

  next = client_->StartNextEvaluation();
  response.clear_checkpoint();
  response.mutable_state()->set_phase(proto::DONE);
  transport_.Take(rpc::kNextEvaluation).Answer(response);
  ASSERT_TRUE(next->done());
  EXPECT_FALSE(next->Await(kNow)->has_checkpoint());
}

TEST_F(ClientMachineTest, AJobThatIsDoneNeedsNoCoordinator) {
  Client::Options options;
  options.task = {kWorkerJob, 1};
  options.ps_names = PsNames(2);
  client_ = std::make_unique<Client>(std::move(options), &transport_);
  Hear(2);
  auto declared = client_->StartDeclare({});
  auto variables = client_->StartAwaitVariables();
  const auto fail = [&] {
    transport_.Take(rpc::kDeclare).Answer(absl::UnavailableError("gone"));
    transport_.Take(rpc::kGetPlacement).Answer(absl::UnavailableError("gone"));
    const bool done = declared->done();
    EXPECT_EQ(variables->done(), done);
    transport_.Pass(absl::Minutes(1));
    return done;
  };
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(fail()) << i;
  // The coordinator is asked again when it is back.
  transport_.Take(rpc::kGetPlacement).Answer(proto::GetPlacementResponse());
  transport_.Pass(absl::Minutes(1));
  Hear(2, proto::DONE);
  transport_.Take(rpc::kDeclare).Answer(absl::UnavailableError("gone"));
  ASSERT_TRUE(declared->done());
  EXPECT_TRUE(absl::IsFailedPrecondition(declared->Await(kNow).status()));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(variables->done()) << i;
    transport_.Take(rpc::kGetPlacement).Answer(absl::UnavailableError("gone"));
    transport_.Pass(absl::Minutes(1));
  }
  ASSERT_TRUE(variables->done());
  const absl::Status over = variables->Await(kNow).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(over));
  EXPECT_THAT(std::string(over.message()),
              HasSubstr("ps 0: the job is done, and the ps has ended"));
  // A coordinator that is up is waited for.
  auto again = client_->StartAwaitVariables();
  transport_.Take(rpc::kGetPlacement).Answer(PlacementOf(2, false));
  ASSERT_TRUE(again->done());
  EXPECT_EQ(again->Await(kNow).status(), absl::OkStatus());
}

TEST_F(ClientMachineTest, APinIsOfOneVersionToo) {
  MakeClient(2, false);
  auto request = client_->StartPin(absl::Seconds(5));
  proto::PinResponse pinned;
  pinned.set_pin(11);
  pinned.set_version(4);
  transport_.Take(rpc::kPin, 0).Answer(pinned);
  pinned.set_version(5);
  transport_.Take(rpc::kPin, 1).Answer(pinned);
  EXPECT_FALSE(request->done());
  EXPECT_EQ(transport_.Take(rpc::kUnpin, 0).request.pin(), 11);
  auto reached = transport_.Take(rpc::kPull, 0);
  EXPECT_EQ(reached.request.min_version(), 5);
  WithTensors<proto::PullResponse> version;
  version.message.set_version(5);
  reached.Answer(version);
  transport_.Take(rpc::kPin, 0).Answer(pinned);
  ASSERT_TRUE(request->done());
  auto pin = request->Await(kNow);
  ASSERT_TRUE(pin.ok()) << pin.status();
  EXPECT_EQ((*pin)->version(), GlobalStep(5));

  auto read = (*pin)->StartRead(&values_);
  EXPECT_EQ(transport_.Take(rpc::kPull, 0).request.exact_version(), 5);
  read.reset();
  pin->reset();
  EXPECT_THAT(transport_.names(), ElementsAre("Unpin", "Unpin"));
}

// Whatever its program does about it: the others would wait for this worker.
TEST_F(ClientMachineTest, ARefusalOfAShardEndsTheJob_B13) {
  MakeClient(2, false);
  auto push = client_->StartPush(GlobalStep(0));
  AddAll(push.get());
  ASSERT_EQ(push->Contribute({1, 8}), absl::OkStatus());
  transport_.Take(rpc::kPush, 0).Answer(proto::PushResponse());
  const absl::Status full =
      absl::FailedPreconditionError("table \"t\" is full");
  const std::string named = PsNames(2)[1] + ": table \"t\" is full";
  transport_.Take(rpc::kPush, 1).Answer(full);
  EXPECT_EQ(push->Await(kNow).status(), absl::FailedPreconditionError(named));
  ASSERT_THAT(transport_.names(), ElementsAre("Leave"));
  auto leave = transport_.Take(rpc::kLeave);
  EXPECT_EQ(leave.request.error(), named);
  EXPECT_EQ(leave.request.sender().task().index(), 1);
  proto::LeaveResponse left;
  left.mutable_state()->set_phase(proto::FAILED);
  left.mutable_state()->set_reason("worker 1: table \"t\" is full");
  leave.Answer(left);
  EXPECT_EQ(client_->StartPush(GlobalStep(0))->AwaitHeld(kNow),
            absl::AbortedError("worker 1: table \"t\" is full"));
}

TEST_F(ClientMachineTest, WhatARepetitionMayCureDoesNotEndTheJob) {
  MakeClient(1, false);
  for (const absl::Status& passing :
       {absl::UnavailableError("busy"), absl::ResourceExhaustedError("no room"),
        absl::AbortedError("generation 1 is over")}) {
    auto push = client_->StartPush(GlobalStep(0));
    AddAll(push.get());
    ASSERT_EQ(push->Contribute({1, 8}), absl::OkStatus());
    transport_.Take(rpc::kPushPull).Answer(passing);
    EXPECT_FALSE(transport_.Has(rpc::kLeave)) << passing;
  }
  // The job is done, and does not need this worker.
  Hear(2, proto::DONE);
  auto pull = client_->StartPull(GlobalStep(8), &values_);
  transport_.Take(rpc::kPull).Answer(absl::FailedPreconditionError("no"));
  EXPECT_FALSE(transport_.Has(rpc::kLeave));
}

}  // namespace
}  // namespace holdfast::client

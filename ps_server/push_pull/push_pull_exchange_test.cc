// SPDX-License-Identifier: Apache-2.0
#include "ps_server/push_pull/push_pull_exchange.h"

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tensor/buffer.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using Output = PushPullExchange::Output;

// The messages that go out, like "contribute pull".
std::string Names(const Output& out) {
  std::vector<std::string> names;
  if (out.push.has_value()) names.push_back("push");
  if (out.apply.has_value()) names.push_back("apply");
  if (out.contribute.has_value()) names.push_back("contribute");
  if (out.pull.has_value()) names.push_back("pull");
  if (out.answer.has_value()) names.push_back("answer");
  return absl::StrJoin(names, " ");
}

std::string AnswerText(const Output& out) {
  if (!out.answer.has_value()) return "none";
  if (!out.answer->ok()) return std::string(out.answer->status().message());
  const PushPullReply& reply = **out.answer;
  return absl::StrCat(reply.response.ShortDebugString(), " | ",
                      reply.tensors.size(), " tensors");
}

proto::PushPullRequest Request() {
  proto::PushPullRequest request;
  request.mutable_sender()->mutable_task()->set_job("worker");
  request.mutable_sender()->mutable_task()->set_index(3);
  request.mutable_sender()->set_incarnation(5);
  request.mutable_sender()->set_generation(2);
  request.set_sequence(7);
  request.set_step(4);
  request.set_acked_through(6);
  request.set_wait_ms(250);
  request.add_ranges()->set_variable("w");
  request.mutable_ranges(0)->set_size(2);
  return request;
}

proto::PushPullRequest Contribution() {
  proto::PushPullRequest request = Request();
  request.mutable_contribution()->set_seat(1);
  request.mutable_contribution()->set_examples(8);
  request.mutable_contribution()->set_clip_factor(0.5f);
  request.mutable_contribution()->set_loss(1.5);
  return request;
}

proto::PushPullRequest Application() {
  proto::PushPullRequest request = Request();
  request.mutable_application()->set_examples(8);
  request.mutable_application()->add_scalars()->set_learning_rate(0.1f);
  request.mutable_application()->set_ticket_receipt(99);
  return request;
}

std::vector<TensorPiece> Gradient() {
  std::vector<TensorPiece> tensors(1);
  tensors[0].variable = "w";
  tensors[0].data = Buffer::FromString("8 bytes.");
  return tensors;
}

proto::PushResponse Kept() {
  proto::PushResponse response;
  response.set_generation(2);
  response.set_version(4);
  response.set_receipt(11);
  return response;
}

proto::ContributeResponse Decided(proto::Verdict verdict = proto::ACCEPTED) {
  proto::ContributeResponse response;
  response.set_generation(2);
  response.mutable_state()->set_phase(proto::TRAINING);
  response.set_verdict(verdict);
  response.set_global_step(5);
  response.set_durable_step(3);
  if (verdict == proto::VERDICT_UNSPECIFIED) {
    response.set_waiting_for("worker 1");
  }
  return response;
}

proto::ApplyResponse Applied(proto::Verdict verdict = proto::ACCEPTED) {
  proto::ApplyResponse response;
  response.set_generation(2);
  response.mutable_state()->set_phase(proto::TRAINING);
  response.set_verdict(verdict);
  response.set_version(9);
  response.set_staleness(1);
  if (verdict == proto::ACCEPTED) response.set_receipt(12);
  return response;
}

PullReply Values(uint64_t version = 5) {
  PullReply reply;
  reply.generation = Generation(2);
  reply.state.set_phase(proto::TRAINING);
  reply.version = GlobalStep(version);
  reply.loss_scale = 2;
  reply.tensors = Gradient();
  return reply;
}

// ---- A contribution ----

TEST(PushPullExchangeTest, AContributionIsWhatItsWorkerWouldSend) {
  PushPullExchange exchange(Contribution());
  Output out = exchange.Start(Gradient());
  ASSERT_EQ(Names(out), "push");
  EXPECT_EQ(out.push->sender.incarnation(), 5u);
  EXPECT_EQ(out.push->sequence, PushSequence(7));
  EXPECT_EQ(out.push->step, GlobalStep(4));
  EXPECT_EQ(out.push->part, 0u);
  EXPECT_EQ(out.push->num_parts, 1u);
  EXPECT_EQ(out.push->acked_through, PushSequence(6));
  EXPECT_EQ(out.push->tensors.size(), 1u);

  out = exchange.OnPushed(Kept());
  ASSERT_EQ(Names(out), "contribute pull");
  EXPECT_EQ(out.contribute->ShortDebugString(),
            "sender { task { job: \"worker\" index: 3 } incarnation: 5 "
            "generation: 2 } step: 4 seat: 1 sequence: 7 examples: 8 "
            "clip_factor: 0.5 loss: 1.5 acked_through: 6 wait_ms: 250 "
            "receipts: 11");
  EXPECT_EQ(out.pull->ShortDebugString(),
            "sender { task { job: \"worker\" index: 3 } incarnation: 5 "
            "generation: 2 } min_version: 5 "
            "ranges { variable: \"w\" size: 2 } wait_ms: 250");
}

constexpr char kContributed[] =
    "generation: 2 state { phase: TRAINING } verdict: ACCEPTED global_step: 5 "
    "durable_step: 3 version: 5 loss_scale: 2 | 1 tensors";

// The strands of the two machines answer in any order.
TEST(PushPullExchangeTest, VerdictAndValuesComeInEitherOrder) {
  for (const bool verdict_first : {true, false}) {
    PushPullExchange exchange(Contribution());
    exchange.Start(Gradient());
    exchange.OnPushed(Kept());
    if (verdict_first) {
      EXPECT_EQ(Names(exchange.OnContributed(Decided())), "");
      EXPECT_EQ(AnswerText(exchange.OnPulled(Values())), kContributed);
    } else {
      EXPECT_EQ(Names(exchange.OnPulled(Values())), "");
      EXPECT_EQ(AnswerText(exchange.OnContributed(Decided())), kContributed);
    }
  }
}

TEST(PushPullExchangeTest, WithoutAVerdictTheValuesAreToldAllTheSame) {
  PushPullExchange exchange(Contribution());
  exchange.Start(Gradient());
  exchange.OnPushed(Kept());
  exchange.OnContributed(Decided(proto::VERDICT_UNSPECIFIED));
  PullReply nothing_yet;
  nothing_yet.version = GlobalStep(4);
  EXPECT_EQ(AnswerText(exchange.OnPulled(nothing_yet)),
            "generation: 2 state { phase: TRAINING } global_step: 5 "
            "waiting_for: \"worker 1\" durable_step: 3 version: 4 | 0 tensors");
}

TEST(PushPullExchangeTest, ValuesThatFailAreLeftOut) {
  for (const bool verdict_first : {true, false}) {
    PushPullExchange exchange(Contribution());
    exchange.Start(Gradient());
    exchange.OnPushed(Kept());
    const absl::Status error = absl::NotFoundError("no such variable");
    Output out;
    if (verdict_first) {
      exchange.OnContributed(Decided());
      out = exchange.OnPulled(error);
    } else {
      exchange.OnPulled(error);
      out = exchange.OnContributed(Decided());
    }
    EXPECT_EQ(AnswerText(out),
              "generation: 2 state { phase: TRAINING } verdict: ACCEPTED "
              "global_step: 5 durable_step: 3 | 0 tensors");
  }
}

// A refused contribution is answered at once; values that come later, or came
// before, are dropped.
TEST(PushPullExchangeTest, ARefusedContributionIsToldOnce) {
  for (const bool refused_first : {true, false}) {
    PushPullExchange exchange(Contribution());
    exchange.Start(Gradient());
    exchange.OnPushed(Kept());
    const absl::Status error = absl::InvalidArgumentError("seat 1 of 1");
    if (!refused_first) {
      EXPECT_EQ(Names(exchange.OnPulled(Values())), "");
    }
    EXPECT_EQ(AnswerText(exchange.OnContributed(error)), "seat 1 of 1");
    if (refused_first) {
      EXPECT_EQ(Names(exchange.OnPulled(Values())), "");
    }
  }
}

TEST(PushPullExchangeTest, TheEndOfTheJobIsToldWhoeverSaysIt) {
  for (const bool verdict_first : {true, false}) {
    for (const bool shard_says_it : {true, false}) {
      PushPullExchange exchange(Contribution());
      exchange.Start(Gradient());
      exchange.OnPushed(Kept());
      PullReply values = Values();
      proto::ContributeResponse decided = Decided();
      (shard_says_it ? values.state : *decided.mutable_state())
          .set_phase(proto::DONE);
      Output out;
      if (verdict_first) {
        exchange.OnContributed(decided);
        out = exchange.OnPulled(std::move(values));
      } else {
        exchange.OnPulled(std::move(values));
        out = exchange.OnContributed(decided);
      }
      ASSERT_TRUE(out.answer.has_value() && out.answer->ok());
      EXPECT_EQ((*out.answer)->response.state().phase(), proto::DONE);
    }
  }
}

TEST(PushPullExchangeTest, WithoutRangesOnlyTheVerdictIsAwaited) {
  proto::PushPullRequest request = Contribution();
  request.clear_ranges();
  PushPullExchange exchange(request);
  exchange.Start(Gradient());
  EXPECT_EQ(Names(exchange.OnPushed(Kept())), "contribute");
  EXPECT_EQ(Names(exchange.OnContributed(Decided())), "answer");
}

TEST(PushPullExchangeTest, WithoutExamplesNothingIsPushed) {
  proto::PushPullRequest contribution = Contribution();
  contribution.mutable_contribution()->set_examples(0);
  const Output contributes = PushPullExchange(contribution).Start({});
  ASSERT_EQ(Names(contributes), "contribute pull");
  EXPECT_EQ(contributes.contribute->receipts(0), 0u);

  proto::PushPullRequest application = Application();
  application.mutable_application()->set_examples(0);
  EXPECT_EQ(Names(PushPullExchange(application).Start({})), "apply");
}

// ---- The push ----

TEST(PushPullExchangeTest, NothingLeavesBeforeThePushIsHere) {
  for (const proto::PushPullRequest& request :
       {Contribution(), Application()}) {
    PushPullExchange refused(request);
    refused.Start(Gradient());
    EXPECT_EQ(AnswerText(refused.OnPushed(absl::UnavailableError("no room"))),
              "no room");

    PushPullExchange aborted(request);
    aborted.Start(Gradient());
    proto::PushResponse response = Kept();
    response.set_verdict(proto::ABORTED);
    EXPECT_EQ(AnswerText(aborted.OnPushed(response)),
              "generation: 2 verdict: ABORTED version: 4 | 0 tensors");
  }
}

// A repeated call is answered by the machine that has decided.
TEST(PushPullExchangeTest, ADecidedPushIsAskedFor) {
  for (const proto::Verdict verdict : {proto::ACCEPTED, proto::STALE}) {
    proto::PushResponse response = Kept();
    response.set_verdict(verdict);
    PushPullExchange contribution(Contribution());
    contribution.Start(Gradient());
    EXPECT_EQ(Names(contribution.OnPushed(response)), "contribute pull");
    PushPullExchange application(Application());
    application.Start(Gradient());
    EXPECT_EQ(Names(application.OnPushed(response)), "apply");
  }
}

// ---- An application ----

TEST(PushPullExchangeTest, AnApplicationIsFollowedByItsValues) {
  PushPullExchange exchange(Application());
  exchange.Start(Gradient());
  Output out = exchange.OnPushed(Kept());
  ASSERT_EQ(Names(out), "apply");
  EXPECT_EQ(out.apply->ShortDebugString(),
            "sender { task { job: \"worker\" index: 3 } incarnation: 5 "
            "generation: 2 } sequence: 7 scalars { learning_rate: 0.1 } "
            "examples: 8 acked_through: 6 wait_ms: 250 ticket_receipt: 99");
  out = exchange.OnApplied(Applied());
  ASSERT_EQ(Names(out), "pull");
  EXPECT_EQ(out.pull->min_version(), 0u);
  EXPECT_EQ(AnswerText(exchange.OnPulled(Values(10))),
            "generation: 2 state { phase: TRAINING } verdict: ACCEPTED "
            "staleness: 1 version: 10 loss_scale: 2 receipt: 12 | 1 tensors");
}

TEST(PushPullExchangeTest, ValuesAreNotReadBeforeTheApplication) {
  for (const proto::Verdict verdict :
       {proto::VERDICT_UNSPECIFIED, proto::ABORTED, proto::STALE}) {
    PushPullExchange exchange(Application());
    exchange.Start(Gradient());
    exchange.OnPushed(Kept());
    const Output out = exchange.OnApplied(Applied(verdict));
    ASSERT_EQ(Names(out), "answer");
    EXPECT_EQ((*out.answer)->response.verdict(), verdict);
    EXPECT_EQ((*out.answer)->response.version(), 9u);
  }
}

TEST(PushPullExchangeTest, AnApplicationWithoutRangesIsAnsweredByItsVerdict) {
  proto::PushPullRequest request = Application();
  request.clear_ranges();
  PushPullExchange exchange(request);
  exchange.Start(Gradient());
  exchange.OnPushed(Kept());
  EXPECT_EQ(Names(exchange.OnApplied(Applied())), "answer");
}

TEST(PushPullExchangeTest, ARefusedApplicationIsTold) {
  PushPullExchange exchange(Application());
  exchange.Start(Gradient());
  exchange.OnPushed(Kept());
  EXPECT_EQ(
      AnswerText(exchange.OnApplied(absl::InvalidArgumentError("scalars"))),
      "scalars");
}

}  // namespace
}  // namespace holdfast

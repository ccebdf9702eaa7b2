// SPDX-License-Identifier: Apache-2.0

// Pushes with rows of embedding tables, and the values that follow them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/push.h"
#include "client/rpc.h"
#include "client/testing/table_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TablePushTest : public TableTest {
 protected:
  // Parts of 8 bytes have one row each.
  void Start(uint32_t num_ps, int64_t part_bytes, int64_t sent_part_bytes = 0) {
    push_ = StartPush(MakeGeneration(num_ps, part_bytes,
                                     /*asynchronous=*/false, sent_part_bytes),
                      GlobalStep(7));
  }
  void AddVariables() {
    EXPECT_EQ(push_->Add(1, b_), absl::OkStatus());
    EXPECT_EQ(push_->Add(0, a_), absl::OkStatus());
  }
  void AddRows(const std::vector<uint64_t>& ids) {
    ids_ = ids;
    gradients_ = Values(ids);
    EXPECT_EQ(push_->AddRows(0, ids_, gradients_), absl::OkStatus());
  }
  absl::Status Contribute(uint64_t examples = 8) {
    Contribution contribution;
    contribution.seat = 1;
    contribution.examples = examples;
    return push_->Contribute(contribution, &next_);
  }

  // "2 of 3: b" or "3 of 3: t 7 9".
  static std::string TextOf(const WithTensors<proto::PushRequest>& request) {
    std::string text = absl::StrCat(request.message.part(), " of ",
                                    request.message.num_parts(), ":");
    for (const TensorPiece& piece : request.tensors) {
      absl::StrAppend(&text, " ", piece.variable);
      if (!piece.rows.has_value()) continue;
      const std::vector<uint64_t> ids = IdsOf(*piece.rows);
      EXPECT_THAT(FloatsOf(piece), ElementsAreArray(Values(ids)));
      for (const uint64_t id : ids) absl::StrAppend(&text, " ", id);
    }
    return text;
  }
  // Acknowledges everything that is sent to the ps until nothing more is sent.
  std::vector<std::string> Acknowledge(uint32_t ps) {
    std::vector<std::string> parts;
    while (transport_.Has(rpc::kPush, ps)) {
      auto sent = transport_.Take(rpc::kPush, ps);
      parts.push_back(TextOf(sent.request));
      sent.Answer(proto::PushResponse());
    }
    return parts;
  }
  void Accept() {
    proto::ContributeResponse accepted;
    accepted.set_verdict(proto::ACCEPTED);
    accepted.set_global_step(8);
    transport_.Take(rpc::kContribute).Answer(accepted);
  }
  void ExpectAccepted() {
    EXPECT_TRUE(push_->done());
    const auto outcome = push_->Await(absl::InfinitePast());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->verdict, proto::ACCEPTED);
  }

  const std::vector<float> a_ = {1, 2};
  const std::vector<float> b_ = {3, 4, 5, 6};
  std::vector<uint64_t> ids_;
  std::vector<float> gradients_;
  Parameters next_;
  std::unique_ptr<Cluster::Push> push_;
};

TEST_F(TablePushTest, AllPartsWaitUntilTheRowsAreThere) {
  Start(2, 8);
  AddVariables();
  EXPECT_THAT(transport_.names(), IsEmpty());
  const uint64_t x = IdOf(0, 2, 0), y = IdOf(0, 2, 1), z = IdOf(1, 2, 0);
  std::vector<uint64_t> ids = {x, y, z};
  std::sort(ids.begin(), ids.end());
  AddRows(ids);
  EXPECT_THAT(Acknowledge(0), ElementsAre("0 of 4: b", "1 of 4: a",
                                          absl::StrCat("2 of 4: t ", x)));
  EXPECT_THAT(Acknowledge(1), ElementsAre("0 of 2: b"));
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_THAT(Acknowledge(0), ElementsAre(absl::StrCat("3 of 4: t ", y)));
  EXPECT_THAT(Acknowledge(1), ElementsAre(absl::StrCat("1 of 2: t ", z)));
  Accept();
}

TEST_F(TablePushTest, RowsMayComeBeforeVariables) {
  Start(2, 1 << 20);
  const uint64_t x = IdOf(0, 2, 0);
  AddRows({x});
  EXPECT_THAT(Acknowledge(0), ElementsAre(absl::StrCat("1 of 2: t ", x)));
  AddVariables();
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_THAT(Acknowledge(0), ElementsAre("0 of 2: b a"));
  EXPECT_THAT(Acknowledge(1), ElementsAre("0 of 1: b"));
}

TEST_F(TablePushTest, TablesThatAreNotHandedInHaveNoRows) {
  AddTable("u", 3, 1);
  // ps 1 has nothing of a variable, and is pushed an empty part.
  Start(3, 1 << 20);
  AddVariables();
  AddRows({});
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_EQ(push_->AddRows(1, {}, {}),
            absl::InvalidArgumentError("table \"u\": rows must be handed in "
                                       "before AwaitHeld and Contribute"));
  EXPECT_THAT(Acknowledge(0), ElementsAre("0 of 1: b a"));
  EXPECT_THAT(Acknowledge(1), ElementsAre("0 of 1:"));
  EXPECT_FALSE(transport_.Has(rpc::kContribute));
  EXPECT_THAT(Acknowledge(2), ElementsAre("0 of 1: b"));
  Accept();
}

TEST_F(TablePushTest, AwaitHeldSendsWhatIsThere) {
  Start(1, 1 << 20);
  AddVariables();
  std::vector<std::string> parts;
  transport_.set_on_wait([&] { parts = Acknowledge(0); });
  EXPECT_EQ(push_->AwaitHeld(absl::InfiniteFuture()), absl::OkStatus());
  EXPECT_THAT(parts, ElementsAre("0 of 1: b b a"));
}

TEST_F(TablePushTest, WithoutExamplesNothingIsPushed) {
  Start(2, 1 << 20);
  AddRows({1, 2});
  EXPECT_TRUE(transport_.Has(rpc::kPush, 0) || transport_.Has(rpc::kPush, 1));
  EXPECT_EQ(Contribute(0), absl::OkStatus());
  EXPECT_FALSE(transport_.Has(rpc::kPush, 0) || transport_.Has(rpc::kPush, 1));
  Accept();
}

TEST_F(TablePushTest, WrongRowsAreRefused) {
  Start(1, 1 << 20);
  const std::vector<uint64_t> ids = {4, 4};
  EXPECT_EQ(
      push_->AddRows(0, ids, Values(ids)),
      absl::InvalidArgumentError("table \"t\": row 4 is followed by row "
                                 "4, but ids must be strictly increasing"));
  EXPECT_EQ(push_->AddRows(1, {}, {}),
            absl::InvalidArgumentError("there is no table 1, only 1"));
  AddRows({4});
  EXPECT_EQ(push_->AddRows(0, ids_, gradients_),
            absl::InvalidArgumentError(
                "table \"t\": its rows were handed in before"));
}

TEST_F(TablePushTest, AJobWithoutTablesTakesNoRows) {
  tables_.clear();
  Start(1, 1 << 20);
  EXPECT_EQ(push_->AddRows(0, {}, {}),
            absl::InvalidArgumentError("there is no table 0, only 0"));
}

// Also after a ps has refused them for lack of room.
TEST_F(TablePushTest, TheSameBytesAreSentAgain) {
  Start(2, 1 << 20);
  AddVariables();
  AddRows({0, 1, 2, 3});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  const auto bytes_of = [](const WithTensors<proto::PushRequest>& request) {
    std::string bytes = request.message.SerializeAsString();
    for (const TensorPiece& piece : request.tensors) {
      absl::StrAppend(&bytes, piece.variable);
      for (const float value : FloatsOf(piece)) absl::StrAppend(&bytes, value);
      if (piece.rows) absl::StrAppend(&bytes, piece.rows->SerializeAsString());
    }
    return bytes;
  };
  std::vector<std::string> refused;
  while (transport_.Has(rpc::kPush, 0)) {
    auto part = transport_.Take(rpc::kPush, 0);
    refused.push_back(bytes_of(part.request));
    part.Answer(absl::ResourceExhaustedError("2 pushes are here"));
  }
  ASSERT_THAT(refused, SizeIs(2));
  transport_.Pass(absl::Milliseconds(20));
  std::vector<std::string> again;
  while (transport_.Has(rpc::kPush, 0)) {
    auto part = transport_.Take(rpc::kPush, 0);
    again.push_back(bytes_of(part.request));
    part.Answer(proto::PushResponse());
  }
  std::sort(refused.begin(), refused.end());
  std::sort(again.begin(), again.end());
  EXPECT_EQ(again, refused);
}

// [H7] The rows go with the parts of variables that are not lent.
TEST_F(TablePushTest, WhatIsNotLentIsSentInMorePartsAndTheSameOfRows) {
  Start(2, 16, /*sent_part_bytes=*/8);
  AddVariables();
  const uint64_t x = IdOf(0, 2, 0), y = IdOf(0, 2, 1), z = IdOf(0, 2, 2);
  AddRows({x, y, z});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  const std::string first = absl::StrCat(" t ", x, " ", y);
  const std::string second = absl::StrCat(" t ", z);
  transport_.Take(rpc::kPush, 0).Answer(absl::OutOfRangeError("not lent"));
  EXPECT_THAT(Acknowledge(0),
              ElementsAre(absl::StrCat("1 of 3:", first),
                          absl::StrCat("2 of 3:", second), "0 of 4: b",
                          "1 of 4: a", absl::StrCat("2 of 4:", first),
                          absl::StrCat("3 of 4:", second)));
  EXPECT_THAT(Acknowledge(1), ElementsAre("0 of 1: b"));
  Accept();
}

// In a job with tables every ps applies.
TEST_F(TablePushTest, AnAsynchronousPushIsAppliedByEveryPs) {
  Ticket ticket;
  ticket.sequence = PushSequence(1);
  ticket.scalars.emplace_back();
  Parameters at;
  at.versions.assign(3, GlobalStep(4));
  push_ =
      StartPush(MakeGeneration(3, 1 << 20, /*asynchronous=*/true), ticket, at);
  AddVariables();
  AddRows({});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  for (const uint32_t ps : {0, 1, 2}) EXPECT_THAT(Acknowledge(ps), SizeIs(1));
  for (const uint32_t ps : {0, 1, 2}) {
    EXPECT_FALSE(transport_.Has(rpc::kPull, 0));
    proto::ApplyResponse applied;
    applied.set_verdict(proto::ACCEPTED);
    transport_.Take(rpc::kApply, ps).Answer(applied);
  }
  // The version of ps 1 counts, so it is asked for it.
  AnswerPull(0, 5);
  EXPECT_THAT(AnswerPull(1, 3).ranges(), IsEmpty());
  AnswerPull(2, 6);
  ExpectAccepted();
  EXPECT_EQ(next_.version, GlobalStep(3));
}

class TableExchangeTest : public TablePushTest {
 protected:
  // Answers with everything that is requested.
  WithTensors<proto::PushPullRequest> AnswerExchange(uint64_t version) {
    auto call = transport_.Take(rpc::kPushPull);
    WithTensors<proto::PushPullResponse> response;
    response.message.set_verdict(proto::ACCEPTED);
    response.message.set_version(version);
    response.message.set_global_step(version);
    response.tensors = PiecesAt(call.request.message, version);
    call.Answer(response);
    return call.request;
  }
};

TEST_F(TableExchangeTest, RowsGoBothWaysInTheSameCall) {
  Start(1, 1 << 20);
  AddVariables();
  AddRows({2, 5});
  const std::vector<uint64_t> wanted = {5, 6, 9};
  next_.WantRows(0, wanted);
  EXPECT_EQ(Contribute(), absl::OkStatus());
  const auto request = AnswerExchange(8);
  ASSERT_THAT(request.tensors, SizeIs(4));
  EXPECT_THAT(IdsOf(*request.tensors[3].rows), ElementsAre(2, 5));
  EXPECT_THAT(FloatsOf(request.tensors[3]), ElementsAreArray(gradients_));
  ASSERT_EQ(request.message.ranges_size(), 4);
  EXPECT_THAT(IdsOf(request.message.ranges(3).rows()), ElementsAre(5, 6, 9));
  ExpectAccepted();
  EXPECT_EQ(next_.version, GlobalStep(8));
  EXPECT_THAT(next_.Of(1), Each(8));
  EXPECT_THAT(next_.RowsOf(0), ElementsAreArray(Values(wanted, 8)));
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(TableExchangeTest, RowsGoBothWaysWithoutVariables) {
  RemoveVariables();
  Start(1, 1 << 20);
  AddRows({2, 5});
  const std::vector<uint64_t> wanted = {5, 6};
  next_.WantRows(0, wanted);
  EXPECT_EQ(Contribute(), absl::OkStatus());
  const auto request = AnswerExchange(8);
  ASSERT_THAT(request.tensors, SizeIs(1));
  EXPECT_THAT(IdsOf(*request.tensors[0].rows), ElementsAre(2, 5));
  ExpectAccepted();
  EXPECT_EQ(next_.version, GlobalStep(8));
  EXPECT_THAT(next_.RowsOf(0), ElementsAreArray(Values(wanted, 8)));
  EXPECT_THAT(transport_.names(), IsEmpty());
}

// The exchange brings no values, so the version is pulled by itself.
TEST_F(TableExchangeTest, WithoutVariablesAndRowsTheVersionFollows) {
  RemoveVariables();
  Start(1, 1 << 20);
  EXPECT_EQ(Contribute(), absl::OkStatus());
  const auto request = AnswerExchange(8);
  EXPECT_THAT(request.tensors, IsEmpty());
  EXPECT_THAT(request.message.ranges(), IsEmpty());
  EXPECT_EQ(AnswerPull(0, 8).min_version(), 8);
  ExpectAccepted();
  EXPECT_EQ(next_.version, GlobalStep(8));
}

TEST_F(TableExchangeTest, TheRowsOfEitherMayBeMissing) {
  Start(1, 1 << 20);
  AddVariables();
  next_.WantRows(0, {{3}});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_THAT(AnswerExchange(8).tensors, SizeIs(3));
  ExpectAccepted();
  EXPECT_THAT(next_.RowsOf(0), ElementsAreArray(Values({3}, 8)));

  Start(1, 1 << 20);
  AddVariables();
  AddRows({1});
  next_.WantRows(0, {});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_EQ(AnswerExchange(8).message.ranges_size(), 3);
  ExpectAccepted();
  EXPECT_THAT(next_.RowsOf(0), IsEmpty());

  // Without examples the pushed rows are not sent, but the wanted rows arrive.
  Start(1, 1 << 20);
  AddRows({1});
  next_.WantRows(0, {{3}});
  EXPECT_EQ(Contribute(0), absl::OkStatus());
  EXPECT_THAT(AnswerExchange(9).tensors, IsEmpty());
  ExpectAccepted();
  EXPECT_THAT(next_.RowsOf(0), ElementsAreArray(Values({3}, 9)));
}

// Parts have 24 bytes, which the variables use up.
TEST_F(TableExchangeTest, RowsThatDoNotFitBesideFollowInPartsOfTheirOwn) {
  Start(1, 24);
  AddVariables();
  AddRows({2, 5, 7, 8});
  EXPECT_THAT(transport_.names(), IsEmpty());
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_FALSE(transport_.Has(rpc::kPushPull));
  EXPECT_THAT(Acknowledge(0),
              ElementsAre("0 of 3: b b a", "1 of 3: t 2 5 7", "2 of 3: t 8"));
  Accept();
  AnswerPull(0, 8);
  ExpectAccepted();
}

TEST_F(TableExchangeTest, RowsWantedThatDoNotFitBesideArePulledByThemselves) {
  Start(1, 24);
  AddVariables();
  next_.WantRows(0, {{3}});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_FALSE(transport_.Has(rpc::kPushPull));
  EXPECT_THAT(Acknowledge(0), ElementsAre("0 of 1: b b a"));
  Accept();
  AnswerPull(0, 8);
  AnswerPull(0, 8);
  ExpectAccepted();
  EXPECT_THAT(next_.RowsOf(0), ElementsAreArray(Values({3}, 8)));
}

TEST_F(TableExchangeTest, WithoutRowsTheVariablesStillGoInOneCall) {
  Start(1, 24);
  AddVariables();
  AddRows({});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  AnswerExchange(8);
  ExpectAccepted();
}

// The loan may have been missing for the values.
TEST_F(TableExchangeTest, WhatIsNotLentGoesInParts) {
  Start(1, 1 << 20, /*sent_part_bytes=*/8);
  AddVariables();
  AddRows({2, 5});
  next_.WantRows(0, {{3}});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  transport_.Take(rpc::kPushPull).Answer(absl::OutOfRangeError("not lent"));
  EXPECT_THAT(Acknowledge(0), ElementsAre("0 of 2: b b a", "1 of 2: t 2 5"));
  Accept();
  AnswerPull(0, 8);
  AnswerPull(0, 8);
  ExpectAccepted();
  EXPECT_THAT(next_.RowsOf(0), ElementsAreArray(Values({3}, 8)));
}

TEST_F(TableExchangeTest, WrongRowsNamePsAndTable) {
  Start(1, 1 << 20);
  AddVariables();
  next_.WantRows(0, {{3}});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  {
    auto call = transport_.Take(rpc::kPushPull);
    WithTensors<proto::PushPullResponse> response;
    response.message.set_verdict(proto::ACCEPTED);
    response.tensors = PiecesAt(call.request.message, 8);
    response.tensors.back().data = response.tensors.back().data.Sub(0, 4);
    call.Answer(response);
  }
  EXPECT_EQ(push_->Await(absl::InfinitePast()).status(),
            absl::InternalError("ps 0: 1 rows of table \"t\" were requested, "
                                "but arrived in 4 bytes"));
}

TEST_F(TableExchangeTest, WhatCannotBeWantedLeavesThePushAsItIs) {
  Start(1, 1 << 20);
  AddVariables();
  next_.WantRows(1, {{3}});
  EXPECT_EQ(Contribute(),
            absl::InvalidArgumentError("there is no table 1, only 1"));
  next_ = Parameters();
  AddRows({2});
  EXPECT_EQ(Contribute(), absl::OkStatus());
  EXPECT_THAT(AnswerExchange(8).tensors, SizeIs(4));
  ExpectAccepted();
}

}  // namespace
}  // namespace holdfast::client

// SPDX-License-Identifier: Apache-2.0

// First values that workers give (docs/protocol/recovery.md, "First values").
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/job/given_values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::vector<float>& W() {
  static const auto* const kW = new std::vector<float>{1, 2, 3, 4};
  return *kW;
}
const std::vector<float>& B() {
  static const auto* const kB = new std::vector<float>{5, 6};
  return *kB;
}

// "w" and "b" are given, here, and "far" elsewhere.
proto::RestoreRequest MakeGiven(uint64_t generation = 1,
                                uint64_t wait_ms = 1000) {
  proto::RestoreRequest request = MakeRestore();
  request.mutable_sender()->set_generation(generation);
  request.set_wait_ms(wait_ms);
  const std::vector<std::vector<float>> first = {W(), {}, B()};
  for (const int i : {0, 1, 2}) {
    *request.mutable_declaration()
         ->mutable_variables(i)
         ->mutable_initializer()
         ->mutable_given() =
        GivenDigests(i == 1 ? std::vector<float>(8) : first[i]);
  }
  return request;
}

class ShardValuesTest : public ShardTest {
 protected:
  Answer<proto::RestoreResponse> RestoreGiven(uint64_t generation = 1,
                                              uint64_t wait_ms = 1000) {
    return Ask(shard_, &Shard::Restore, MakeGiven(generation, wait_ms));
  }
  Answer<proto::GiveResponse> Give(std::vector<TensorPiece> tensors,
                                   uint32_t worker = 0,
                                   uint64_t generation = 1) {
    GivenPart part;
    part.sender = Sender(kWorkerJob, worker, 1, generation);
    part.tensors = std::move(tensors);
    Answer<proto::GiveResponse> answer;
    shard_.Give(part, answer.Catch());
    return answer;
  }
  static TensorPiece GivenW() { return Tensor("w", {2, 2}, W()); }
  static TensorPiece GivenB() { return Tensor("b", {2}, B()); }
};

TEST_F(ShardValuesTest, NothingIsThereBeforeAllValuesAre_V1) {
  const auto first = RestoreGiven();
  ASSERT_TRUE(first.came());
  EXPECT_TRUE(first->pending());
  EXPECT_EQ(first->wants_values_of(), "w");
  const auto second = RestoreGiven();
  EXPECT_FALSE(second.came());
  const auto expect_nothing = [&] {
    EXPECT_EQ(shard_.state().phase(), proto::STARTING);
    EXPECT_TRUE(Fails(PullAtLeast(0).status(), kUnavailable,
                      {"is not in generation 1 yet"}));
    EXPECT_TRUE(Fails(Push(Whole(0, 1, 0, 2)).status(), kUnavailable, {}));
    EXPECT_FALSE(second.came());
  };
  expect_nothing();
  auto wanted = Give({});
  ASSERT_THAT(wanted->wanted(), SizeIs(2));
  EXPECT_EQ(wanted->wanted(0).variable(), "w");
  EXPECT_EQ(wanted->wanted(1).size(), 2u);
  // From any worker, in any order, and again.
  EXPECT_THAT(Give({GivenB()}, 1)->wanted(), SizeIs(1));
  EXPECT_THAT(Give({GivenB()}, 0)->wanted(), SizeIs(1));
  expect_nothing();
  EXPECT_THAT(Give({GivenW()}, 0)->wanted(), IsEmpty());
  ASSERT_TRUE(second.came());
  EXPECT_FALSE(second->pending());
  EXPECT_EQ(second->version(), 0u);
  EXPECT_EQ(Newest("w"), W());
  EXPECT_EQ(Newest("b"), B());
  EXPECT_THAT(Newest("frozen"), ElementsAre(3));
  // Values that come late change nothing.
  Step(0, 2);
  EXPECT_THAT(Give({GivenW()}, 1)->wanted(), IsEmpty());
  EXPECT_THAT(Newest("w"), ElementsAre(0, 1, 2, 3));
}

TEST_F(ShardValuesTest, ValuesAreThoseThatWereDeclaredWhoeverGivesThem_V2) {
  RestoreGiven();
  EXPECT_TRUE(Fails(Give({Tensor("w", {2, 2}, {1, 2, 3, 5})}, 1).status(),
                    kInvalid,
                    {"first values of variable \"w\": elements 0 to 3 are not "
                     "those that were declared",
                     "given by /job:worker/task:1"}));
  EXPECT_THAT(Give({})->wanted(), SizeIs(2));
  // Values before them in the same call are kept.
  EXPECT_FALSE(
      Give({GivenB(), Tensor("w", {2, 2}, {0, 0, 0, 0})}).status().ok());
  EXPECT_THAT(Give({GivenW()})->wanted(), IsEmpty());
  EXPECT_EQ(Newest("w"), W());
  EXPECT_EQ(Newest("b"), B());
}

TEST_F(ShardValuesTest, ANewGenerationWantsAllAgain_V3) {
  RestoreGiven();
  Give({GivenW()});
  const auto parked = RestoreGiven();
  EXPECT_EQ(RestoreGiven(2)->wants_values_of(), "w");
  EXPECT_EQ(parked.status().code(), kAborted);
  EXPECT_EQ(Give({GivenB()}).status().code(), kAborted);
  EXPECT_THAT(Give({}, 0, 2)->wanted(), SizeIs(2));
  EXPECT_EQ(Give({GivenB()}, 0, 3).status().code(), kUnavailable);
  EXPECT_THAT(Give({GivenW(), GivenB()}, 0, 2)->wanted(), IsEmpty());
  EXPECT_EQ(shard_.state().phase(), proto::TRAINING);
}

TEST_F(ShardValuesTest, ARestoreThatWaitsForValuesIsToldSo) {
  RestoreGiven();
  const auto parked = RestoreGiven();
  Pass(absl::Milliseconds(999));
  EXPECT_FALSE(parked.came());
  Give({GivenW()});
  Pass(absl::Milliseconds(1));
  ASSERT_TRUE(parked.came());
  EXPECT_TRUE(parked->pending());
  EXPECT_EQ(parked->wants_values_of(), "b");
  EXPECT_TRUE(RestoreGiven(1, 0).came());
}

TEST_F(ShardValuesTest, WhereACheckpointHasTheValuesNobodyIsAsked) {
  proto::RestoreRequest request = MakeGiven(2);
  // This loads all of the first slice.
  for (const int i : {1, 2}) {
    request.mutable_declaration()
        ->mutable_variables(i)
        ->mutable_initializer()
        ->mutable_zeros();
  }
  request.mutable_checkpoint()->set_step(7);
  const auto restored = Ask(shard_, &Shard::Restore, request);
  EXPECT_EQ(Give({GivenW()}, 0, 2).status().code(), kUnavailable);
  disk_.FinishLoad(9, 7);
  ASSERT_TRUE(restored.came());
  EXPECT_FALSE(restored->pending());
  EXPECT_EQ(restored->version(), 7u);
  EXPECT_THAT(Give({}, 0, 2)->wanted(), IsEmpty());
  proto::PullRequest pull = MakePull({"w"});
  pull.mutable_sender()->set_generation(2);
  EXPECT_THAT(Values(Ask(shard_, &Shard::Pull, pull), 0), Each(9.0f));
}

TEST_F(ShardValuesTest, WhatAWarmStartDoesNotHoldIsAskedFor) {
  proto::RestoreRequest request = MakeGiven();
  request.set_warm_start("/warm");
  const auto restored = Ask(shard_, &Shard::Restore, request);
  disk_.FinishLoad(9, 0);
  EXPECT_EQ(restored->wants_values_of(), "b");
  EXPECT_THAT(Give({GivenB()})->wanted(), IsEmpty());
  EXPECT_THAT(Newest("w"), Each(9.0f));
  EXPECT_EQ(Newest("b"), B());
}

TEST_F(ShardValuesTest, OnlyAWorkerGives) {
  RestoreGiven();
  GivenPart part;
  for (const proto::Sender& sender :
       {Reader(), Sender(kPsJob, 0), Sender(kWorkerJob, 2),
        Sender(kWorkerJob, 0, 0)}) {
    part.sender = sender;
    part.tensors = {GivenW()};
    Answer<proto::GiveResponse> answer;
    shard_.Give(part, answer.Catch());
    EXPECT_EQ(answer.status().code(), kInvalid);
  }
  EXPECT_THAT(Give({})->wanted(), SizeIs(2));
}

TEST_F(ShardValuesTest, TheEndOfTheJobEndsTheWait) {
  RestoreGiven();
  const auto parked = RestoreGiven();
  End(proto::FAILED, "nobody came");
  EXPECT_EQ(parked.status().code(), kAborted);
  EXPECT_TRUE(Fails(Give({GivenW()}).status(), kAborted, {"nobody came"}));
}

TEST_F(ShardValuesTest, DigestsThatDoNotFitAreRefused) {
  proto::RestoreRequest request = MakeGiven();
  request.mutable_declaration()
      ->mutable_variables(0)
      ->mutable_initializer()
      ->mutable_given()
      ->clear_sha256();
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Restore, request).status(), kInvalid,
                    {"variable \"w\": given: 0 digests"}));
}

}  // namespace
}  // namespace holdfast

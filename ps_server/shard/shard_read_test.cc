// SPDX-License-Identifier: Apache-2.0

// Reading a shard: pulls, and versions that are held for them.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/shard.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// ---- Pull ----

TEST_F(ShardTest, PullReturnsTheNewestAtOrAbove) {
  Restore();
  Step(0, 2);
  Step(1, 2);
  for (const uint64_t version : {0, 1, 2}) {
    const auto pull = PullAtLeast(version, 0);
    EXPECT_EQ(pull->version, GlobalStep(2)) << version;
    EXPECT_THAT(Values(pull, 0), Each(-1.0f));
  }
}

TEST_F(ShardTest, PullOfRanges) {
  Restore();
  Stage(Part(0, 1, 0,
             {Tensor("w", {2, 2}, {2, 4, 6, 8}), Tensor("b", {2}, {0, 2})}));
  Commit(0, {{0, 1, 1}});  // w = {0, -1, -2, -3}, b = {0, -1}
  proto::PullRequest request = MakePull({"w", "b", "w"});
  request.mutable_ranges(0)->set_begin(1);
  request.mutable_ranges(0)->set_size(2);
  request.mutable_ranges(2)->set_begin(4);
  request.mutable_ranges(2)->set_size(0);
  const auto pull = Ask(shard_, &Shard::Pull, request);
  ASSERT_THAT(pull->tensors, SizeIs(3));
  EXPECT_THAT(Values(pull, 0), ElementsAre(-1, -2));
  EXPECT_EQ(pull->tensors[0].begin, 1u);
  EXPECT_THAT(Values(pull, 1), ElementsAre(0, -1));
  EXPECT_THAT(Values(pull, 2), IsEmpty());
}

TEST_F(ShardTest, PullOfNothingTellsTheVersion) {
  Restore();
  Step(0, 2);
  const auto pull = Ask(shard_, &Shard::Pull, MakePull({}));
  EXPECT_EQ(pull->version, GlobalStep(1));
  EXPECT_THAT(pull->tensors, IsEmpty());
}

TEST_F(ShardTest, APullIsParkedUntilItsVersionIsThere) {
  Restore();
  const auto one = PullAtLeast(1);
  const auto two = PullAtLeast(2);
  EXPECT_FALSE(one.came());
  Step(0, 2);
  ASSERT_TRUE(one.came());
  EXPECT_EQ(one->version, GlobalStep(1));
  EXPECT_THAT(Values(one, 0), Each(0.0f));
  EXPECT_FALSE(two.came());
  Step(1, 2);
  ASSERT_TRUE(two.came());
  EXPECT_EQ(two->version, GlobalStep(2));
  EXPECT_THAT(Values(two, 0), Each(-1.0f));
}

TEST_F(ShardTest, AParkedPullIsAnsweredWithoutValuesWhenItsTimeIsUp) {
  Restore();
  const auto soon = PullAtLeast(1, 1000);
  const auto later = PullAtLeast(1, 2000);
  Pass(absl::Milliseconds(999));
  EXPECT_FALSE(soon.came());
  Pass(absl::Milliseconds(1));
  ASSERT_TRUE(soon.came());
  EXPECT_EQ(soon->version, GlobalStep(0));
  EXPECT_EQ(soon->state.phase(), proto::TRAINING);
  EXPECT_THAT(soon->tensors, IsEmpty());
  EXPECT_FALSE(later.came());
  Step(0, 2);
  EXPECT_EQ(later->version, GlobalStep(1));
}

TEST_F(ShardTest, APullThatMayNotWaitIsAnsweredAtOnce) {
  Restore();
  const auto pull = PullAtLeast(1, 0);
  ASSERT_TRUE(pull.came());
  EXPECT_EQ(pull->version, GlobalStep(0));
  EXPECT_THAT(pull->tensors, IsEmpty());
}

TEST_F(ShardTest, NobodyIsParkedForLongerThanTheLimit) {
  Restore();
  const auto pull = PullAtLeast(1, ~uint64_t{0});
  Pass(kMaxPark - absl::Milliseconds(1));
  EXPECT_FALSE(pull.came());
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(pull.came());
}

TEST_F(ShardTest, WhatCannotBeReadIsToldAtOnce) {
  Restore();
  const uint64_t most = ~uint64_t{0};
  const struct {
    const char* variable;
    uint64_t begin, size;
  } kCases[] = {{"x", 0, 1},    {"far", 0, 1},  {"w", 0, 5}, {"w", 4, 1},
                {"w", most, 2}, {"w", 1, most}, {"w", 5, 0}};
  for (const auto& c : kCases) {
    for (const uint64_t version : {0, 1}) {
      SCOPED_TRACE(testing::Message() << c.variable << " " << c.begin << " +"
                                      << c.size << " at " << version);
      proto::PullRequest request = MakePull({"w"});
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable(c.variable);
      range.set_begin(c.begin);
      range.set_size(c.size);
      request.set_min_version(version);
      request.set_wait_ms(1000);
      EXPECT_TRUE(Fails(Ask(shard_, &Shard::Pull, request).status(), kNotFound,
                        {absl::StrCat("variable \"", c.variable, "\"")}));
    }
  }
}

TEST_F(ShardTest, EmptyRangesCostTheirNamesAndShapes) {
  Restore();
  proto::PullRequest request;
  *request.mutable_sender() = Reader();
  for (int i = 0; i < 200000; ++i) request.add_ranges()->set_variable("w");
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Pull, request).status(), kInvalid,
                    {"in parts"}));
}

TEST_F(ShardTest, APullLargerThanAMessageIsRefused) {
  // 1 MiB, asked for again and again: 11, and what names them, fit in three
  // quarters of the 16 MiB.
  proto::RestoreRequest restore = MakeRestore();
  restore.mutable_declaration()->mutable_variables(2)->set_shape(0, 1 << 18);
  restore.mutable_slices(2)->set_size(1 << 18);
  Restore(restore);
  proto::PullRequest request;
  *request.mutable_sender() = Reader();
  const auto add = [&] {
    request.add_ranges()->set_variable("b");
    request.mutable_ranges(request.ranges_size() - 1)->set_size(1 << 18);
  };
  for (int i = 0; i < 11; ++i) add();
  EXPECT_THAT(Ask(shard_, &Shard::Pull, request)->tensors, SizeIs(11));
  add();
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Pull, request).status(), kInvalid,
                    {"12582912 bytes", "in parts"}));
}

TEST_F(ShardTest, AnswersMayCallBack) {
  Restore();
  const auto step = [&](uint64_t number) {
    Stage(Whole(0, number + 1, number, 2));
    const auto answer =
        Ask(shard_, &Shard::Commit, MakeCommit(number, {{0, number + 1, 1}}));
    EXPECT_EQ(answer->version(), number + 1);
  };
  // A reader that pulls each version from inside the answer with the previous
  // one, and makes step 2 inside the second.
  std::vector<std::pair<uint64_t, float>> seen;
  std::function<void(uint64_t)> pull = [&](uint64_t version) {
    proto::PullRequest request = MakePull({"w"});
    request.set_min_version(version);
    request.set_wait_ms(1000);
    shard_.Pull(request, [&](absl::StatusOr<PullReply> reply) {
      ASSERT_TRUE(reply.ok()) << reply.status();
      ASSERT_THAT(reply->tensors, SizeIs(1));
      float w = 0;
      reply->tensors[0].data.Sub(0, sizeof(w)).CopyTo(&w);
      seen.emplace_back(reply->version.value(), w);
      if (seen.size() == 2) step(2);
      if (seen.size() < 4) pull(reply->version.value() + 1);
    });
  };
  pull(1);
  step(0);
  step(1);
  EXPECT_THAT(seen, ElementsAre(Pair(1, 0), Pair(2, -1), Pair(3, -2)));
  step(3);
  EXPECT_THAT(seen, SizeIs(4));
  EXPECT_EQ(seen.back(), std::make_pair(uint64_t{4}, -3.0f));
}

TEST_F(ShardTest, TheLossScaleIsThatOfTheNewestVersion) {
  Restore();
  EXPECT_EQ(PullAtLeast(0)->loss_scale, 0) << "the job has none";
  proto::CommitRequest commit = MakeCommit(0, {});
  commit.set_loss_scale(64);
  const auto parked = PullAtLeast(1);
  Ask(shard_, &Shard::Commit, commit);
  EXPECT_EQ(parked->loss_scale, 64);
  Pin();
  commit = MakeCommit(1, {});
  commit.set_loss_scale(32);
  Ask(shard_, &Shard::Commit, commit);
  // A commit that comes again, late, changes nothing.
  commit = MakeCommit(0, {});
  commit.set_loss_scale(64);
  Ask(shard_, &Shard::Commit, commit);
  EXPECT_EQ(PullAtLeast(0)->loss_scale, 32);
  EXPECT_EQ(PullExactly(2)->loss_scale, 32);
  EXPECT_EQ(PullExactly(1)->loss_scale, 0) << "nothing is trained on it";
}

// ---- Versions that are held ----

TEST_F(ShardTest, AnAnswerStaysAsItWas) {
  Restore();
  const auto before = PullAtLeast(0);
  const char* const memory = before->tensors[0].data.spans()[0].data;
  EXPECT_EQ(PullAtLeast(0)->tensors[0].data.spans()[0].data, memory)
      << "answers lie in the store, not in copies";
  for (uint64_t step = 0; step < 5; ++step) {
    Step(step, 2);
    EXPECT_THAT(Values(before, 0), Each(1.0f)) << "after step " << step;
  }
}

TEST_F(ShardTest, APinnedVersionIsReadExactlyWhileTrainingGoesOn) {
  Restore();
  Step(0, 2);  // w = 0
  const auto pin = Pin();
  EXPECT_EQ(pin->version(), 1u);
  EXPECT_EQ(pin->generation(), 1u);
  for (uint64_t step = 1; step < 6; ++step) {
    Step(step, 2);
    const auto pull = PullExactly(1);
    EXPECT_EQ(pull->version, GlobalStep(1));
    EXPECT_THAT(Values(pull, 0), Each(0.0f)) << "after step " << step;
  }
  EXPECT_THAT(Newest("w"), Each(-5.0f));
  EXPECT_EQ(PullExactly(6)->version, GlobalStep(6)) << "the newest, unpinned";
  EXPECT_TRUE(Unpin(pin->pin()).status().ok());
  EXPECT_TRUE(
      Fails(PullExactly(1).status(), kNotFound,
            {"version 1 is not held at /job:ps/task:1", "the newest is 6"}));
}

TEST_F(ShardTest, AVersionThatIsNotHeldCannotBeReadOrPinned) {
  Restore();
  Step(0, 2);
  for (const uint64_t version : {0, 2}) {
    const std::vector<std::string> text = {
        absl::StrCat("version ", version, " is not held at /job:ps/task:1"),
        "the newest is 1"};
    EXPECT_TRUE(Fails(PullExactly(version).status(), kNotFound, text));
    EXPECT_TRUE(Fails(PinVersion(version).status(), kNotFound, text));
  }
  EXPECT_EQ(PinVersion(1)->version(), 1u);
}

TEST_F(ShardTest, PinsOfOneVersionAreCounted) {
  Restore();
  const auto first = Pin();
  Step(0, 2);
  const auto second = PinVersion(0);
  EXPECT_EQ(second->version(), 0u);
  EXPECT_NE(first->pin(), second->pin());
  Unpin(first->pin());
  EXPECT_TRUE(PullExactly(0).status().ok());
  // Naming a pin twice, or one that never existed, releases nothing.
  EXPECT_TRUE(Unpin(first->pin()).status().ok());
  EXPECT_TRUE(Unpin(12345).status().ok());
  EXPECT_TRUE(PullExactly(0).status().ok());
  Unpin(second->pin());
  EXPECT_FALSE(PullExactly(0).status().ok());
}

TEST_F(ShardTest, APinEndsAtItsDeadline) {
  Restore();
  Pin(1000);
  Step(0, 2);
  const auto longer = PinVersion(0, 5000);
  Pass(absl::Milliseconds(1000));
  EXPECT_TRUE(PullExactly(0).status().ok()) << "held by the longer one";
  Unpin(longer->pin());
  EXPECT_FALSE(PullExactly(0).status().ok());

  Pin(1000);
  Step(1, 2);
  Pass(absl::Milliseconds(999));
  EXPECT_TRUE(PullExactly(1).status().ok());
  Pass(absl::Milliseconds(1));
  EXPECT_FALSE(PullExactly(1).status().ok());
}

TEST_F(ShardTest, PinsAreBounded) {
  Restore();
  std::vector<uint64_t> pins;
  for (int i = 0; i < 1024; ++i) pins.push_back(Pin()->pin());
  EXPECT_TRUE(Fails(Pin().status(), kExhausted,
                    {"1024 pins are held at /job:ps/task:1"}));
  Unpin(pins[10]);
  EXPECT_TRUE(Pin().status().ok());
  Pass(absl::Seconds(1));
  EXPECT_TRUE(Pin().status().ok());
}

// The job needs 28 bytes of values, 24 each of the next version and one that is
// read, and 24 for a push of each of two workers (memory_plan.h).
TEST_F(ShardTest, AJobThatDoesNotFitIsRefused) {
  Shard::Options options = MakeOptions();
  options.memory_limit_bytes = 28 + 4 * 24 - 1;
  Shard shard(options, &clock_, nullptr);
  EXPECT_TRUE(Fails(Ask(shard, &Shard::Restore, MakeRestore()).status(),
                    kExhausted, {"/job:ps/task:1 may take 123 bytes"}));
  EXPECT_EQ(shard.state().phase(), proto::STARTING);
  EXPECT_EQ(shard.generation(), Generation(0));
}

TEST_F(ShardTest, PinsHoldAsManyVersionsAsThereIsMemoryFor) {
  Shard::Options options = MakeOptions();
  // In addition to what the job needs, room for two early pushes and one more
  // version.
  options.memory_limit_bytes = 28 + 4 * 24 + 2 * 24 + 24;
  Shard shard(options, &clock_, nullptr);
  ASSERT_TRUE(Ask(shard, &Shard::Restore, MakeRestore()).status().ok());
  const auto pin = [&](uint64_t version) {
    proto::PinRequest request;
    *request.mutable_sender() = Reader();
    request.set_version(version);
    request.set_hold_ms(1000);
    return Ask(shard, &Shard::Pin, request);
  };
  const auto step = [&](uint64_t number) {
    ASSERT_TRUE(
        Ask(shard, &Shard::Commit, MakeCommit(number, {})).status().ok());
  };
  const auto first = pin(0);
  step(0);
  EXPECT_TRUE(pin(1).status().ok());
  step(1);
  EXPECT_TRUE(Fails(pin(2).status(), kExhausted, {"2 versions"}));
  EXPECT_TRUE(pin(1).status().ok())
      << "of those that are held, as many as ever";
  proto::UnpinRequest unpin;
  *unpin.mutable_sender() = Reader();
  unpin.set_pin(first->pin());
  ASSERT_TRUE(Ask(shard, &Shard::Unpin, unpin).status().ok());
  EXPECT_TRUE(pin(2).status().ok());
}

TEST_F(ShardTest, MemoryOfAPinnedVersionIsUsedAgainOnlyAfterwards) {
  Restore();
  const auto memory = [](const Answer<PullReply>& pull) {
    return pull->tensors[0].data.spans()[0].data;
  };
  const auto pin = Pin();
  const char* const pinned = memory(PullExactly(0));
  // In addition there are only the newest version and the draft of the next.
  for (uint64_t step = 0; step < 6; ++step) {
    Step(step, 1);
    EXPECT_NE(memory(PullAtLeast(0)), pinned) << step;
  }
  Unpin(pin->pin());
  bool used_again = false;
  for (uint64_t step = 6; step < 12; ++step) {
    Step(step, 1);
    used_again |= memory(PullAtLeast(0)) == pinned;
  }
  EXPECT_TRUE(used_again);
}

}  // namespace
}  // namespace holdfast

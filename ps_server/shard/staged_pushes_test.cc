#include "ps_server/shard/staged_pushes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/buffer.h"
#include "common/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;

StoredSlice Slice(const std::string& name, uint64_t begin, uint64_t size,
                  bool trainable = true) {
  StoredSlice slice;
  slice.variable.set_name(name);
  slice.variable.set_trainable(trainable);
  slice.begin = begin;
  slice.size = size;
  return slice;
}

PushId Push(uint64_t sequence, uint32_t worker = 0, uint64_t incarnation = 1) {
  return {{{kWorkerJob, worker}, Incarnation(incarnation)},
          PushSequence(sequence)};
}

// The elements [begin, end) of a slice's variable, each with its index as
// value.
GradientPiece Piece(size_t slice, uint64_t begin, uint64_t end) {
  std::vector<float> values;
  for (uint64_t i = begin; i < end; ++i)
    values.push_back(static_cast<float>(i));
  return {slice, begin, end - begin,
          Buffer::FromString(
              std::string(reinterpret_cast<const char*>(values.data()),
                          values.size() * sizeof(float)))};
}

StagedPart Part(const PushId& push, uint32_t part, uint32_t num_parts,
                std::vector<GradientPiece> pieces, uint64_t step = 5) {
  return {push, GlobalStep(step), part, num_parts, std::move(pieces)};
}

std::vector<float> Values(const Buffer& buffer) {
  std::vector<float> values(buffer.size() / sizeof(float));
  buffer.CopyTo(values.data());
  return values;
}

class StagedPushesTest : public ::testing::Test {
 protected:
  // "w" is the middle of a variable: elements 4 to 10 of it are here.
  const std::vector<StoredSlice> slices_ = {Slice("w", 4, 6), Slice("b", 0, 2),
                                            Slice("frozen", 0, 3, false),
                                            Slice("empty", 0, 0)};
  StagedPushes staged_;

  StagedPushesTest() { staged_.Configure(&slices_, 2); }

  // The three parts of a whole push.
  std::vector<StagedPart> ThreeParts(const PushId& push) const {
    return {Part(push, 0, 3, {Piece(0, 4, 7)}),
            Part(push, 1, 3, {Piece(0, 7, 10), Piece(1, 0, 1)}),
            Part(push, 2, 3, {Piece(1, 1, 2)})};
  }
  void ExpectWhole(const PushId& push) const {
    const auto gradient = staged_.Find(push, GlobalStep(5));
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    ASSERT_EQ(gradient->size(), 4u);
    EXPECT_THAT(Values((*gradient)[0]), ElementsAre(4, 5, 6, 7, 8, 9));
    EXPECT_THAT(Values((*gradient)[1]), ElementsAre(0, 1));
    EXPECT_EQ((*gradient)[2].size(), 0u) << "not trainable";
    EXPECT_EQ((*gradient)[3].size(), 0u) << "no elements";
  }
};

TEST_F(StagedPushesTest, PartsComeInAnyOrderAndMoreThanOnce) {
  std::vector<int> order = {0, 1, 2};
  uint64_t sequence = 0;
  do {
    SCOPED_TRACE(testing::Message()
                 << "order " << order[0] << order[1] << order[2]);
    staged_.Clear();
    const PushId push = Push(++sequence);
    for (const int i : order) {
      // Not whole before the last.
      EXPECT_TRUE(Fails(staged_.Find(push, GlobalStep(5)).status(), kInternal,
                        {push.ToString()}));
      EXPECT_TRUE(staged_.Add(ThreeParts(push)[i]).ok());
      EXPECT_TRUE(staged_.Add(ThreeParts(push)[i]).ok());
    }
    ExpectWhole(push);
    EXPECT_EQ(staged_.bytes(), 8 * 4) << "6 elements of w and 2 of b, once";
    // And after it is whole.
    for (const StagedPart& part : ThreeParts(push)) {
      EXPECT_TRUE(staged_.Add(part).ok());
    }
    ExpectWhole(push);
    EXPECT_EQ(staged_.bytes(), 8 * 4);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(StagedPushesTest, WhatAPartBroughtFirstStands) {
  const PushId push = Push(1);
  for (const StagedPart& part : ThreeParts(push)) {
    ASSERT_TRUE(staged_.Add(part).ok());
  }
  StagedPart other = ThreeParts(push)[2];
  other.pieces[0].data = Buffer::FromString(std::string(4, 'x'));
  EXPECT_TRUE(staged_.Add(other).ok());
  ExpectWhole(push);
}

TEST_F(StagedPushesTest, PiecesStayInTheMemoryThatTheyCameIn) {
  StagedPart part = Part(Push(1), 0, 1, {Piece(0, 4, 10), Piece(1, 0, 2)});
  const char* const w = part.pieces[0].data.spans()[0].data;
  ASSERT_TRUE(staged_.Add(std::move(part)).ok());
  const auto gradient = staged_.Find(Push(1), GlobalStep(5));
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  ASSERT_EQ((*gradient)[0].spans().size(), 1u);
  EXPECT_EQ((*gradient)[0].spans()[0].data, w);
}

TEST_F(StagedPushesTest, APartWithoutTensorsIsKeptWhereNothingIsTrained) {
  const std::vector<StoredSlice> nothing = {Slice("frozen", 0, 3, false)};
  StagedPushes staged;
  staged.Configure(&nothing, 2);
  EXPECT_FALSE(staged.Find(Push(1), GlobalStep(5)).ok());
  ASSERT_TRUE(staged.Add(Part(Push(1), 0, 1, {})).ok());
  const auto gradient = staged.Find(Push(1), GlobalStep(5));
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  ASSERT_EQ(gradient->size(), 1u);
  EXPECT_EQ((*gradient)[0].size(), 0u);
}

TEST_F(StagedPushesTest, APushLacksEvenAnEmptyPart) {
  ASSERT_TRUE(
      staged_.Add(Part(Push(1), 0, 2, {Piece(0, 4, 10), Piece(1, 0, 2)})).ok());
  EXPECT_TRUE(Fails(staged_.Find(Push(1), GlobalStep(5)).status(), kInternal,
                    {"push 1 of /job:worker/task:0", "1 of 2 parts"}));
  ASSERT_TRUE(staged_.Add(Part(Push(1), 1, 2, {})).ok());
  ExpectWhole(Push(1));
}

TEST_F(StagedPushesTest, OverlappingPiecesAreRefused) {
  const struct {
    const char* what;
    GradientPiece piece;
    std::string text;
  } kCases[] = {
      {"the same again", Piece(0, 6, 8), "[6, 8)"},
      {"around", Piece(0, 5, 9), "[5, 9)"},
      {"inside", Piece(0, 7, 8), "[7, 8)"},
      {"over its front", Piece(0, 4, 7), "[4, 7)"},
      {"over its back", Piece(0, 7, 10), "[7, 10)"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    staged_.Clear();
    ASSERT_TRUE(staged_.Add(Part(Push(3), 0, 4, {Piece(0, 6, 8)})).ok());
    // With a piece that would fit: nothing of the part may stay.
    EXPECT_TRUE(Fails(
        staged_.Add(Part(Push(3), 1, 4, {Piece(1, 0, 2), c.piece})), kInvalid,
        {"variable \"w\": elements " + c.text, "came twice",
         "push 3 of /job:worker/task:0 (incarnation 1)"}));
    EXPECT_EQ(staged_.bytes(), 2 * 4);
    // The push can still be made whole.
    EXPECT_TRUE(staged_.Add(Part(Push(3), 1, 4, {Piece(1, 0, 2)})).ok());
    EXPECT_TRUE(staged_.Add(Part(Push(3), 2, 4, {Piece(0, 4, 6)})).ok());
    EXPECT_TRUE(staged_.Add(Part(Push(3), 3, 4, {Piece(0, 8, 10)})).ok());
    ExpectWhole(Push(3));
  }
}

TEST_F(StagedPushesTest, OverlapWithinOnePartIsRefused) {
  EXPECT_TRUE(
      Fails(staged_.Add(Part(Push(1), 0, 2, {Piece(0, 4, 7), Piece(0, 6, 8)})),
            kInvalid, {"variable \"w\": elements [6, 8) came twice"}));
  EXPECT_EQ(staged_.bytes(), 0);
  // It takes no place of the two that the worker has.
  EXPECT_TRUE(staged_.Add(Part(Push(2), 0, 2, {})).ok());
  EXPECT_TRUE(staged_.Add(Part(Push(3), 0, 2, {})).ok());
}

TEST_F(StagedPushesTest, SameElementsOfAnotherSliceOrPushDoNotOverlap) {
  ASSERT_TRUE(staged_.Add(Part(Push(1), 0, 2, {Piece(0, 4, 10)})).ok());
  EXPECT_TRUE(staged_.Add(Part(Push(1), 1, 2, {Piece(1, 0, 2)})).ok());
  EXPECT_TRUE(
      staged_.Add(Part(Push(2), 0, 1, {Piece(0, 4, 10), Piece(1, 0, 2)})).ok());
  ExpectWhole(Push(1));
  ExpectWhole(Push(2));
}

TEST_F(StagedPushesTest, ALastPartThatLeavesElementsUncoveredDropsThePush) {
  ASSERT_TRUE(staged_.Add(Part(Push(1), 0, 2, {Piece(0, 4, 7)})).ok());
  EXPECT_TRUE(
      Fails(staged_.Add(Part(Push(1), 1, 2, {Piece(0, 8, 10), Piece(1, 0, 2)})),
            kInvalid,
            {"push 1 of /job:worker/task:0 (incarnation 1) is dropped",
             "variable \"w\": 5 of 6 elements came in 2 of 2 parts"}));
  EXPECT_EQ(staged_.bytes(), 0);
  EXPECT_TRUE(Fails(staged_.Find(Push(1), GlobalStep(5)).status(), kInternal,
                    {"is not on this ps"}));
  // Its place is free, and it may be sent anew.
  EXPECT_TRUE(staged_.Add(Part(Push(2), 0, 2, {})).ok());
  for (const StagedPart& part : ThreeParts(Push(1))) {
    EXPECT_TRUE(staged_.Add(part).ok());
  }
  ExpectWhole(Push(1));
}

TEST_F(StagedPushesTest, AVariableThatIsMissingAltogetherIsUncovered) {
  EXPECT_TRUE(Fails(staged_.Add(Part(Push(1), 0, 1, {Piece(0, 4, 10)})),
                    kInvalid, {"variable \"b\": 0 of 2 elements"}));
  EXPECT_TRUE(Fails(staged_.Add(Part(Push(1), 0, 1, {})), kInvalid,
                    {"variable \"w\": 0 of 6 elements"}));
}

TEST_F(StagedPushesTest, PartsMustAgreeOnStepAndNumberOfParts) {
  ASSERT_TRUE(staged_.Add(ThreeParts(Push(1))[0]).ok());
  StagedPart wrong = ThreeParts(Push(1))[1];
  wrong.num_parts = 4;
  EXPECT_TRUE(Fails(
      staged_.Add(wrong), kInvalid,
      {"push 1 of /job:worker/task:0", "step 5 in 4 parts", "step 5 in 3"}));
  wrong = ThreeParts(Push(1))[1];
  wrong.step = GlobalStep(6);
  EXPECT_TRUE(Fails(staged_.Add(wrong), kInvalid,
                    {"step 6 in 3 parts", "step 5 in 3"}));
  EXPECT_EQ(staged_.bytes(), 3 * 4);
  for (const StagedPart& part : ThreeParts(Push(1))) {
    EXPECT_TRUE(staged_.Add(part).ok());
  }
  ExpectWhole(Push(1));
}

TEST_F(StagedPushesTest, FindTellsTheStep) {
  for (const StagedPart& part : ThreeParts(Push(1))) {
    ASSERT_TRUE(staged_.Add(part).ok());
  }
  EXPECT_TRUE(Fails(staged_.Find(Push(1), GlobalStep(6)).status(), kInternal,
                    {"push 1 of /job:worker/task:0", "is of step 5, not 6"}));
}

TEST_F(StagedPushesTest, AWorkerHasSoManyPushesInWhateverLife) {
  EXPECT_TRUE(staged_.Add(ThreeParts(Push(1))[0]).ok());
  EXPECT_TRUE(staged_.Add(ThreeParts(Push(1, 0, 2))[0]).ok());
  EXPECT_TRUE(Fails(staged_.Add(ThreeParts(Push(2))[0]), kExhausted,
                    {"push 2 of /job:worker/task:0", "2 pushes"}));
  EXPECT_EQ(staged_.bytes(), 2 * 3 * 4);
  // The pushes that are here go on, and so do other workers.
  EXPECT_TRUE(staged_.Add(ThreeParts(Push(1))[1]).ok());
  EXPECT_TRUE(staged_.Add(ThreeParts(Push(2, 1))[0]).ok());
}

TEST_F(StagedPushesTest, DropThroughFreesPlaceAndMemory) {
  const auto whole = [&](const PushId& push, uint64_t step) {
    return Part(push, 0, 1, {Piece(0, 4, 10), Piece(1, 0, 2)}, step);
  };
  ASSERT_TRUE(staged_.Add(whole(Push(1, 0), 4)).ok());
  ASSERT_TRUE(staged_.Add(whole(Push(1, 1), 5)).ok());
  ASSERT_TRUE(staged_.Add(whole(Push(2, 0), 6)).ok());
  EXPECT_EQ(staged_.bytes(), 3 * 32);

  const auto names = [](const std::vector<PushId>& pushes) {
    std::vector<std::string> result;
    for (const PushId& push : pushes) result.push_back(push.ToString());
    return result;
  };
  EXPECT_THAT(names(staged_.DropThrough(GlobalStep(5))),
              ElementsAre("push 1 of /job:worker/task:0 (incarnation 1)",
                          "push 1 of /job:worker/task:1 (incarnation 1)"));
  EXPECT_EQ(staged_.bytes(), 32);
  EXPECT_THAT(names(staged_.DropThrough(GlobalStep(5))), IsEmpty());
  EXPECT_TRUE(staged_.Find(Push(2, 0), GlobalStep(6)).ok());
  // Worker 0 held two, and has dropped one.
  EXPECT_TRUE(staged_.Add(whole(Push(3, 0), 6)).ok());
  EXPECT_TRUE(Fails(staged_.Add(whole(Push(4, 0), 6)), kExhausted));
}

TEST_F(StagedPushesTest, ClearDropsAll) {
  ASSERT_TRUE(staged_.Add(ThreeParts(Push(1))[0]).ok());
  ASSERT_TRUE(staged_.Add(ThreeParts(Push(2))[0]).ok());
  staged_.Clear();
  EXPECT_EQ(staged_.bytes(), 0);
  EXPECT_FALSE(staged_.Find(Push(1), GlobalStep(5)).ok());
  EXPECT_TRUE(staged_.Add(ThreeParts(Push(3))[0]).ok());
  EXPECT_TRUE(staged_.Add(ThreeParts(Push(4))[0]).ok());
}

TEST_F(StagedPushesTest, LetsTheMemoryGo) {
  auto owner = std::make_shared<const std::vector<float>>(6, 1.0f);
  const std::weak_ptr<const std::vector<float>> alive = owner;
  StagedPart part = Part(Push(1), 0, 2, {});
  part.pieces.push_back(
      {0, 4, 6, Buffer::FromMemory(owner->data(), 24, owner)});
  ASSERT_TRUE(staged_.Add(std::move(part)).ok());
  owner = nullptr;
  EXPECT_FALSE(alive.expired());
  staged_.DropThrough(GlobalStep(5));
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace holdfast

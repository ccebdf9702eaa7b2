// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/staged_pushes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/job/task_id.h"
#include "common/tensor/buffer.h"
#include "common/tensor/encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

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
  return {slice, begin,
          EncodedElements{proto::EXACT, end - begin,
                          Buffer::FromString(std::string(
                              reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(float)))}};
}

StagedPart Part(const PushId& push, uint32_t part, uint32_t num_parts,
                std::vector<GradientPiece> pieces, uint64_t step = 5) {
  return {push, GlobalStep(step), part, num_parts, std::move(pieces)};
}

std::vector<float> Values(const std::vector<EncodedElements>& pieces) {
  std::vector<float> values;
  for (const EncodedElements& piece : pieces) {
    std::vector<float> decoded(piece.size);
    Decode(piece, 0, absl::MakeSpan(decoded));
    values.insert(values.end(), decoded.begin(), decoded.end());
  }
  return values;
}

class StagedPushesTest : public ::testing::Test {
 protected:
  // "w" is the middle of a variable: elements 4 to 10 of it are here.
  const std::vector<StoredSlice> slices_ = {Slice("w", 4, 6), Slice("b", 0, 2),
                                            Slice("frozen", 0, 3, false),
                                            Slice("empty", 0, 0)};
  StagedPushes staged_;

  StagedPushesTest() {
    // Two pushes of each worker, of which one has the worker's own place; and
    // one shared place.
    staged_.Configure(&slices_, {}, {2, 1, 1});
  }

  absl::Status Add(StagedPart part, bool reserved = true) {
    return staged_.Add(std::move(part), reserved);
  }

  // The three parts of a whole push.
  std::vector<StagedPart> ThreeParts(const PushId& push) const {
    return {Part(push, 0, 3, {Piece(0, 4, 7)}),
            Part(push, 1, 3, {Piece(0, 7, 10), Piece(1, 0, 1)}),
            Part(push, 2, 3, {Piece(1, 1, 2)})};
  }
  void ExpectWhole(const PushId& push) const {
    const auto whole = staged_.Find(push);
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_EQ(whole->step, GlobalStep(5));
    ASSERT_EQ(whole->gradient.size(), 4u);
    EXPECT_THAT(Values(whole->gradient[0]), ElementsAre(4, 5, 6, 7, 8, 9));
    EXPECT_THAT(Values(whole->gradient[1]), ElementsAre(0, 1));
    EXPECT_EQ(whole->gradient[2].size(), 0u) << "not trainable";
    EXPECT_EQ(whole->gradient[3].size(), 0u) << "no elements";
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
      // Not complete before the last part.
      EXPECT_TRUE(
          Fails(staged_.Find(push).status(), kInternal, {push.ToString()}));
      EXPECT_TRUE(Add(ThreeParts(push)[i]).ok());
      EXPECT_TRUE(Add(ThreeParts(push)[i]).ok());
    }
    ExpectWhole(push);
    EXPECT_EQ(staged_.bytes(), 8 * 4) << "6 elements of w and 2 of b, once";
    // The parts come again once the push is complete.
    for (const StagedPart& part : ThreeParts(push)) {
      EXPECT_TRUE(Add(part).ok());
    }
    ExpectWhole(push);
    EXPECT_EQ(staged_.bytes(), 8 * 4);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(StagedPushesTest, WhatAPartBroughtFirstStands) {
  const PushId push = Push(1);
  for (const StagedPart& part : ThreeParts(push)) {
    ASSERT_TRUE(Add(part).ok());
  }
  StagedPart other = ThreeParts(push)[2];
  other.pieces[0].elements.data = Buffer::FromString(std::string(4, 'x'));
  EXPECT_TRUE(Add(other).ok());
  ExpectWhole(push);
}

TEST_F(StagedPushesTest, PiecesStayInTheMemoryThatTheyCameIn) {
  StagedPart part = Part(Push(1), 0, 1, {Piece(0, 4, 10), Piece(1, 0, 2)});
  const char* const w = part.pieces[0].elements.data.spans()[0].data;
  ASSERT_TRUE(Add(std::move(part)).ok());
  const auto gradient = staged_.Find(Push(1));
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  ASSERT_EQ(gradient->gradient[0].size(), 1u);
  ASSERT_EQ(gradient->gradient[0][0].data.spans().size(), 1u);
  EXPECT_EQ(gradient->gradient[0][0].data.spans()[0].data, w);
}

TEST_F(StagedPushesTest, PiecesMayBeWrittenInDifferentWays) {
  // 2^0 and 2^1 in the upper halves of float32.
  const auto bfloat16 = [](size_t slice, uint64_t begin) {
    return GradientPiece{
        slice, begin,
        EncodedElements{proto::BFLOAT16, 2,
                        Buffer::FromString(std::string("\x80\x3f\0\x40", 4))}};
  };
  ASSERT_TRUE(Add(Part(Push(1), 0, 2, {bfloat16(0, 8), Piece(0, 4, 8)})).ok());
  EXPECT_EQ(staged_.bytes(), 4 + 16) << "as they came";
  EXPECT_TRUE(Fails(Add(Part(Push(1), 1, 2, {bfloat16(0, 7), Piece(1, 0, 2)})),
                    kInvalid, {"variable \"w\": elements [7, 9) came twice"}));
  ASSERT_TRUE(Add(Part(Push(1), 1, 2, {Piece(1, 0, 2)})).ok());
  const auto whole = staged_.Find(Push(1));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(Values(whole->gradient[0]), ElementsAre(4, 5, 6, 7, 1, 2));
}

TEST_F(StagedPushesTest, APartWithoutTensorsIsKeptWhereNothingIsTrained) {
  const std::vector<StoredSlice> nothing = {Slice("frozen", 0, 3, false)};
  StagedPushes staged;
  staged.Configure(&nothing, {}, {2, 1, 0});
  EXPECT_FALSE(staged.Find(Push(1)).ok());
  ASSERT_TRUE(staged.Add(Part(Push(1), 0, 1, {}), true).ok());
  const auto gradient = staged.Find(Push(1));
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  ASSERT_EQ(gradient->gradient.size(), 1u);
  EXPECT_EQ(gradient->gradient[0].size(), 0u);
}

TEST_F(StagedPushesTest, APushLacksEvenAnEmptyPart) {
  ASSERT_TRUE(Add(Part(Push(1), 0, 2, {Piece(0, 4, 10), Piece(1, 0, 2)})).ok());
  EXPECT_TRUE(Fails(staged_.Find(Push(1)).status(), kInternal,
                    {"push 1 of /job:worker/task:0", "1 of 2 parts"}));
  ASSERT_TRUE(Add(Part(Push(1), 1, 2, {})).ok());
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
    ASSERT_TRUE(Add(Part(Push(3), 0, 4, {Piece(0, 6, 8)})).ok());
    // Comes with a piece that would fit: nothing of the part may stay.
    EXPECT_TRUE(Fails(Add(Part(Push(3), 1, 4, {Piece(1, 0, 2), c.piece})),
                      kInvalid,
                      {"variable \"w\": elements " + c.text, "came twice",
                       "push 3 of /job:worker/task:0 (incarnation 1)"}));
    EXPECT_EQ(staged_.bytes(), 2 * 4);
    // The push can still be completed.
    EXPECT_TRUE(Add(Part(Push(3), 1, 4, {Piece(1, 0, 2)})).ok());
    EXPECT_TRUE(Add(Part(Push(3), 2, 4, {Piece(0, 4, 6)})).ok());
    EXPECT_TRUE(Add(Part(Push(3), 3, 4, {Piece(0, 8, 10)})).ok());
    ExpectWhole(Push(3));
  }
}

TEST_F(StagedPushesTest, OverlapWithinOnePartIsRefused) {
  EXPECT_TRUE(Fails(Add(Part(Push(1), 0, 2, {Piece(0, 4, 7), Piece(0, 6, 8)})),
                    kInvalid, {"variable \"w\": elements [6, 8) came twice"}));
  EXPECT_EQ(staged_.bytes(), 0);
  // It takes neither of the worker's two places.
  EXPECT_TRUE(Add(Part(Push(2), 0, 2, {})).ok());
  EXPECT_TRUE(Add(Part(Push(3), 0, 2, {})).ok());
}

TEST_F(StagedPushesTest, SameElementsOfAnotherSliceOrPushDoNotOverlap) {
  ASSERT_TRUE(Add(Part(Push(1), 0, 2, {Piece(0, 4, 10)})).ok());
  EXPECT_TRUE(Add(Part(Push(1), 1, 2, {Piece(1, 0, 2)})).ok());
  EXPECT_TRUE(Add(Part(Push(2), 0, 1, {Piece(0, 4, 10), Piece(1, 0, 2)})).ok());
  ExpectWhole(Push(1));
  ExpectWhole(Push(2));
}

TEST_F(StagedPushesTest, ALastPartThatLeavesElementsUncoveredDropsThePush) {
  ASSERT_TRUE(Add(Part(Push(1), 0, 2, {Piece(0, 4, 7)})).ok());
  EXPECT_TRUE(Fails(Add(Part(Push(1), 1, 2, {Piece(0, 8, 10), Piece(1, 0, 2)})),
                    kInvalid,
                    {"push 1 of /job:worker/task:0 (incarnation 1) is dropped",
                     "variable \"w\": 5 of 6 elements came in 2 of 2 parts"}));
  EXPECT_EQ(staged_.bytes(), 0);
  EXPECT_TRUE(
      Fails(staged_.Find(Push(1)).status(), kInternal, {"is not on this ps"}));
  // Its place is free, and it may be sent anew.
  EXPECT_TRUE(Add(Part(Push(2), 0, 2, {})).ok());
  for (const StagedPart& part : ThreeParts(Push(1))) {
    EXPECT_TRUE(Add(part).ok());
  }
  ExpectWhole(Push(1));
}

TEST_F(StagedPushesTest, AVariableThatIsMissingAltogetherIsUncovered) {
  EXPECT_TRUE(Fails(Add(Part(Push(1), 0, 1, {Piece(0, 4, 10)})), kInvalid,
                    {"variable \"b\": 0 of 2 elements"}));
  EXPECT_TRUE(Fails(Add(Part(Push(1), 0, 1, {})), kInvalid,
                    {"variable \"w\": 0 of 6 elements"}));
}

TEST_F(StagedPushesTest, APushThatIsSentInMorePartsBeginsAnew) {
  ASSERT_TRUE(Add(Part(Push(1), 1, 2, {Piece(0, 4, 10), Piece(1, 0, 2)})).ok());
  for (const StagedPart& part : ThreeParts(Push(1))) {
    EXPECT_FALSE(staged_.IsWhole(Push(1)));
    EXPECT_TRUE(Add(part).ok());
  }
  ExpectWhole(Push(1));
  const int64_t bytes = staged_.bytes();
  EXPECT_EQ(bytes, (6 + 2) * 4);
  // A complete push lacks nothing, however it is sent.
  EXPECT_TRUE(Add(Part(Push(1), 3, 4, {Piece(0, 4, 10)})).ok());
  EXPECT_TRUE(Add(Part(Push(1), 0, 1, {Piece(0, 4, 10)})).ok());
  ExpectWhole(Push(1));
  EXPECT_EQ(staged_.bytes(), bytes);
}

TEST_F(StagedPushesTest, APartThatCannotBeKeptBeginsNothing) {
  ASSERT_TRUE(Add(Part(Push(1), 1, 2, {Piece(0, 4, 10)})).ok());
  EXPECT_TRUE(
      Fails(Add(Part(Push(1), 0, 3, {Piece(0, 4, 10), Piece(0, 4, 10)})),
            kInvalid, {"came twice"}));
  EXPECT_TRUE(Add(Part(Push(1), 1, 2, {Piece(0, 4, 10)})).ok());
  EXPECT_EQ(staged_.num_pushes(Push(1).from.worker), 1);
}

TEST_F(StagedPushesTest, PartsMustAgreeOnStepAndNotBecomeFewer) {
  ASSERT_TRUE(Add(ThreeParts(Push(1))[0]).ok());
  StagedPart wrong = ThreeParts(Push(1))[1];
  wrong.num_parts = 2;
  EXPECT_TRUE(Fails(
      Add(wrong), kInvalid,
      {"push 1 of /job:worker/task:0", "step 5 in 2 parts", "step 5 in 3"}));
  wrong = ThreeParts(Push(1))[1];
  wrong.step = GlobalStep(6);
  EXPECT_TRUE(
      Fails(Add(wrong), kInvalid, {"step 6 in 3 parts", "step 5 in 3"}));
  EXPECT_EQ(staged_.bytes(), 3 * 4);
  for (const StagedPart& part : ThreeParts(Push(1))) {
    EXPECT_TRUE(Add(part).ok());
  }
  ExpectWhole(Push(1));
}

TEST_F(StagedPushesTest, AWorkerHasSoManyPushesInWhateverLife) {
  EXPECT_TRUE(Add(ThreeParts(Push(1))[0]).ok());
  EXPECT_TRUE(Add(ThreeParts(Push(1, 0, 2))[0]).ok());
  EXPECT_TRUE(Fails(Add(ThreeParts(Push(2))[0]), kExhausted,
                    {"push 2 of /job:worker/task:0", "2 undecided pushes"}));
  EXPECT_EQ(staged_.bytes(), 2 * 3 * 4);
  // The pushes that are here go on, and so do other workers.
  EXPECT_TRUE(Add(ThreeParts(Push(1))[1]).ok());
  EXPECT_TRUE(Add(ThreeParts(Push(2, 1))[0]).ok());
}

TEST_F(StagedPushesTest, DropThroughFreesPlaceAndMemory) {
  const auto whole = [&](const PushId& push, uint64_t step) {
    return Part(push, 0, 1, {Piece(0, 4, 10), Piece(1, 0, 2)}, step);
  };
  ASSERT_TRUE(Add(whole(Push(1, 0), 4)).ok());
  ASSERT_TRUE(Add(whole(Push(1, 1), 5)).ok());
  ASSERT_TRUE(Add(whole(Push(2, 0), 6)).ok());
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
  EXPECT_TRUE(staged_.Find(Push(2, 0)).ok());
  // Worker 0 held two, and has dropped one.
  EXPECT_TRUE(Add(whole(Push(3, 0), 6)).ok());
  EXPECT_TRUE(Fails(Add(whole(Push(4, 0), 6)), kExhausted));
}

TEST_F(StagedPushesTest, RoomIsGivenToWholePushesAndReservedOnesHaveTheirs) {
  const auto part = [&](const PushId& push, int i) {
    return ThreeParts(push)[i];
  };
  // The one shared place.
  ASSERT_TRUE(Add(part(Push(2, 0), 0), /*reserved=*/false).ok());
  EXPECT_TRUE(Fails(Add(part(Push(2, 1), 0), /*reserved=*/false), kExhausted,
                    {"push 2 of /job:worker/task:1", "no room"}));
  EXPECT_EQ(staged_.num_pushes({kWorkerJob, 1}), 0u) << "nothing is kept";
  // Reserved ones come in all the same, and those that are in go on.
  ASSERT_TRUE(Add(part(Push(1, 0), 0)).ok());
  ASSERT_TRUE(Add(part(Push(1, 1), 0)).ok());
  for (const int i : {1, 2}) {
    ASSERT_TRUE(Add(part(Push(2, 0), i), /*reserved=*/false).ok());
  }
  ExpectWhole(Push(2, 0));
  // A push that gets its worker's own place frees the one that it had.
  staged_.Drop(Push(1, 0));
  staged_.Reserve(Push(2, 0));
  staged_.Reserve(Push(2, 0));
  staged_.Reserve(Push(7, 0));  // is not here
  ASSERT_TRUE(Add(part(Push(2, 1), 0), /*reserved=*/false).ok());
  EXPECT_TRUE(Fails(Add(part(Push(3, 0), 0), /*reserved=*/false), kExhausted));
  // So does its end.
  staged_.Drop(Push(2, 1));
  EXPECT_TRUE(Add(part(Push(3, 0), 0), /*reserved=*/false).ok());
}

TEST_F(StagedPushesTest, AWorkersOwnPushesLeaveTheReservedPlaceFree) {
  staged_.Configure(&slices_, {}, {3, 1, 100});
  ASSERT_TRUE(Add(ThreeParts(Push(2))[0], /*reserved=*/false).ok());
  ASSERT_TRUE(Add(ThreeParts(Push(3))[0], /*reserved=*/false).ok());
  EXPECT_TRUE(Fails(Add(ThreeParts(Push(4))[0], /*reserved=*/false), kExhausted,
                    {"push 4 of /job:worker/task:0", "2 undecided pushes"}));
  ASSERT_TRUE(Add(ThreeParts(Push(1))[0]).ok());
  EXPECT_TRUE(
      Fails(Add(ThreeParts(Push(4))[0]), kExhausted, {"3 undecided pushes"}))
      << "three in all, reserved or not";
  // The next push takes the worker's own place, and leaves the shared one to
  // another.
  staged_.Drop(Push(1));
  EXPECT_FALSE(Add(ThreeParts(Push(4))[0], /*reserved=*/false).ok());
  staged_.Reserve(Push(2));
  EXPECT_TRUE(Add(ThreeParts(Push(4))[0], /*reserved=*/false).ok());
  // A dropped push leaves it too.
  EXPECT_FALSE(Add(ThreeParts(Push(5))[0], /*reserved=*/false).ok());
  staged_.Drop(Push(4));
  EXPECT_TRUE(Add(ThreeParts(Push(5))[0], /*reserved=*/false).ok());
}

TEST_F(StagedPushesTest, AWorkersOwnPlacesAreAsManyAsThereAre) {
  staged_.Configure(&slices_, {}, {4, 2, 1});
  for (const uint64_t life : {1, 2}) {
    ASSERT_TRUE(Add(ThreeParts(Push(1, 0, life))[0]).ok());
  }
  // A third takes the shared place, whether it is reserved or not.
  ASSERT_TRUE(Add(ThreeParts(Push(1, 0, 3))[0]).ok());
  EXPECT_TRUE(Fails(Add(ThreeParts(Push(1, 0, 4))[0]), kExhausted,
                    {"no room beside the 3 undecided pushes"}));
  EXPECT_FALSE(Add(ThreeParts(Push(2, 1))[0], /*reserved=*/false).ok());
  staged_.Reserve(Push(1, 0, 3));
  EXPECT_FALSE(Add(ThreeParts(Push(2, 1))[0], /*reserved=*/false).ok());
  staged_.Drop(Push(1, 0, 1));
  staged_.Reserve(Push(1, 0, 3));
  EXPECT_TRUE(Add(ThreeParts(Push(2, 1))[0], /*reserved=*/false).ok());
  // One of two places is taken, however often Reserve is called.
  ASSERT_TRUE(Add(ThreeParts(Push(1, 2))[0]).ok());
  staged_.Reserve(Push(1, 2));
  EXPECT_FALSE(Add(ThreeParts(Push(2, 2))[0], /*reserved=*/false).ok());
}

TEST_F(StagedPushesTest, DropAllDropsOneLife) {
  ASSERT_TRUE(Add(ThreeParts(Push(1, 0, 1))[0]).ok());
  ASSERT_TRUE(Add(ThreeParts(Push(1, 0, 2))[0]).ok());
  ASSERT_TRUE(Add(ThreeParts(Push(1, 1, 1))[0]).ok());
  staged_.DropAll(Push(1, 0, 1).from);
  EXPECT_EQ(staged_.num_pushes({kWorkerJob, 0}), 1u);
  EXPECT_EQ(staged_.num_pushes({kWorkerJob, 1}), 1u);
  EXPECT_EQ(staged_.bytes(), 2 * 3 * 4);
  staged_.Drop(Push(1, 0, 1));  // gone already
  EXPECT_EQ(staged_.bytes(), 2 * 3 * 4);
}

TEST_F(StagedPushesTest, ClearDropsAll) {
  ASSERT_TRUE(Add(ThreeParts(Push(1))[0]).ok());
  ASSERT_TRUE(Add(ThreeParts(Push(2))[0]).ok());
  staged_.Clear();
  EXPECT_EQ(staged_.bytes(), 0);
  EXPECT_FALSE(staged_.Find(Push(1)).ok());
  EXPECT_TRUE(Add(ThreeParts(Push(3))[0]).ok());
  EXPECT_TRUE(Add(ThreeParts(Push(4))[0]).ok());
}

TEST_F(StagedPushesTest, LetsTheMemoryGo) {
  auto owner = std::make_shared<const std::vector<float>>(6, 1.0f);
  const std::weak_ptr<const std::vector<float>> alive = owner;
  StagedPart part = Part(Push(1), 0, 2, {});
  part.pieces.push_back(
      {0, 4,
       EncodedElements{proto::EXACT, 6,
                       Buffer::FromMemory(owner->data(), 24, owner)}});
  ASSERT_TRUE(Add(std::move(part)).ok());
  owner = nullptr;
  EXPECT_FALSE(alive.expired());
  staged_.DropThrough(GlobalStep(5));
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace holdfast

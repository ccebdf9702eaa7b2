// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/shard.h"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/buffer.h"
#include "common/tensor/encoding.h"
#include "common/tensor/tensor_piece.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/shard/testing/shard_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// ---- What there is ----

TEST_F(ShardTest, RestoreMakesWhatIsPlacedHere) {
  Restore();
  EXPECT_EQ(shard_.state().phase(), proto::TRAINING);
  const auto pull = Ask(shard_, &Shard::Pull, MakePull({"w", "b", "frozen"}));
  EXPECT_EQ(pull->version, GlobalStep(0));
  EXPECT_EQ(pull->generation, Generation(1));
  EXPECT_EQ(pull->state.phase(), proto::TRAINING);
  ASSERT_THAT(pull->tensors, SizeIs(3));
  EXPECT_THAT(Values(pull, 0), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(Values(pull, 1), ElementsAre(0, 0));
  EXPECT_THAT(Values(pull, 2), ElementsAre(3));
  EXPECT_EQ(pull->tensors[0].variable, "w");
  EXPECT_THAT(pull->tensors[0].shape, ElementsAre(2, 2));
  EXPECT_EQ(pull->tensors[0].dtype, proto::FLOAT32);
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Pull, MakePull({"far"})).status(),
                    kNotFound, {"variable \"far\" is not on this ps"}));
}

TEST_F(ShardTest, ADeclarationThatCannotBeIsRefusedAndNothingMade) {
  const struct {
    const char* what;
    std::function<void(proto::RestoreRequest&)> change;
    std::string text;
  } kCases[] = {
      {"slice of nothing",
       [](auto& r) { r.mutable_slices(0)->set_variable("x"); }, "\"x\""},
      {"slice too long", [](auto& r) { r.mutable_slices(0)->set_size(5); },
       "\"w\""},
      {"no optimizer",
       [](auto& r) { r.mutable_declaration()->clear_optimizers(); },
       "optimizer 0 of 0"},
      {"no initializer",
       [](auto& r) {
         r.mutable_declaration()->mutable_variables(0)->clear_initializer();
       },
       "\"w\""},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    proto::RestoreRequest request = MakeRestore();
    c.change(request);
    EXPECT_TRUE(Fails(Ask(shard_, &Shard::Restore, request).status(), kInvalid,
                      {c.text}));
    EXPECT_EQ(shard_.state().phase(), proto::STARTING);
  }
  Restore();
}

// ---- Who may ----

// A stranger who reaches the port may know everything but the nonce.
TEST_F(ShardTest, WhatIsForgedInTheCoordinatorsNameDoesNothing_P5) {
  for (const bool restored : {false, true}) {
    if (restored) {
      Restore();
      Stage(Whole(0, 1, 0, 1));
      Stage(Whole(1, 1, 0, 3));
    }
    AllShardMessages::ForEach([&](auto* type) {
      using Request = std::remove_pointer_t<decltype(type)>;
      SCOPED_TRACE(ShardMethod<Request>::kName);
      for (const uint64_t nonce : {uint64_t{0}, kThisLife - 1}) {
        for (const uint64_t generation : {0, 1, 2}) {
          Request forged;
          if constexpr (std::is_same_v<Request, proto::RestoreRequest>) {
            forged = MakeRestore();
          } else if constexpr (std::is_same_v<Request, proto::CommitRequest>) {
            forged = MakeCommit(0, {{0, 1, 1}});
          } else if constexpr (std::is_same_v<Request, proto::EndRequest>) {
            forged.mutable_state()->set_phase(proto::FAILED);
          }
          *forged.mutable_sender() = Coordinator();
          forged.mutable_sender()->set_generation(generation);
          forged.mutable_sender()->set_receiver_nonce(nonce);
          EXPECT_TRUE(
              Fails(Ask(shard_, kShardHandler<Request>, forged).status(),
                    kUnavailable, {"another life of /job:ps/task:1"}));
        }
      }
    });
    EXPECT_EQ(shard_.state().phase(),
              restored ? proto::TRAINING : proto::STARTING);
    EXPECT_EQ(shard_.generation(), Generation(restored ? 1 : 0));
    EXPECT_EQ(shard_.version(), GlobalStep(0));
  }
  Commit(0, {{0, 1, 0.5f}, {1, 1, 0.5f}});
  EXPECT_EQ(shard_.version(), GlobalStep(1));
}

TEST_F(ShardTest, OnlyTheCoordinatorRestoresCommitsAndEnds) {
  Restore();
  Stage(Whole(0, 1, 0, 1));
  for (const proto::Sender& sender :
       {Sender(kWorkerJob, 0), Sender(kPsJob, 1), Reader()}) {
    SCOPED_TRACE(sender.ShortDebugString());
    const std::vector<std::string> text = {
        absl::StrCat("/job:", sender.task().job()),
        "that only /job:ps/task:0 may send"};
    proto::RestoreRequest restore = MakeRestore();
    *restore.mutable_sender() = sender;
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::Restore, restore).status(), kDenied, text));
    proto::CommitRequest commit = MakeCommit(0, {{0, 1, 1}});
    *commit.mutable_sender() = sender;
    EXPECT_TRUE(
        Fails(Ask(shard_, &Shard::Commit, commit).status(), kDenied, text));
    proto::EndRequest end;
    *end.mutable_sender() = sender;
    end.mutable_state()->set_phase(proto::DONE);
    EXPECT_TRUE(Fails(Ask(shard_, &Shard::End, end).status(), kDenied, text));
  }
  EXPECT_EQ(shard_.version(), GlobalStep(0));
  EXPECT_EQ(shard_.state().phase(), proto::TRAINING);
}

TEST_F(ShardTest, OnlyWorkersOfTheClusterPush) {
  Restore();
  const struct {
    const char* what;
    proto::Sender sender;
    std::string text;
  } kCases[] = {
      {"a ps", Sender(kPsJob, 1), "(pushed by /job:ps/task:1)"},
      {"a reader", Reader(), "(pushed by /job:client/task:0)"},
      {"an evaluator", Sender(kEvaluatorJob, 0), "only a worker"},
      {"index M", Sender(kWorkerJob, 2), "(pushed by /job:worker/task:2)"},
      {"not registered", Sender(kWorkerJob, 0, 0), "incarnation 0"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    PushPart part = Whole(0, 1, 0, 1);
    part.sender = c.sender;
    EXPECT_TRUE(Fails(Push(part).status(), kInvalid, {c.text}));
  }
  EXPECT_EQ(shard_.staged_bytes(), 0);
  PushPart chief = Whole(0, 1, 0, 1);
  chief.sender = Sender(kChiefJob, 0);
  Stage(chief);
}

// ---- Push ----

TEST_F(ShardTest, PartsAreKeptOnceInAnyOrder) {
  Restore();
  const std::vector<PushPart> parts = {
      Part(0, 1, 0, {Tensor("w", {2, 2}, {1, 2}, 0)}, 0, 3),
      Part(0, 1, 0, {Tensor("b", {2}, {5, 6})}, 1, 3),
      Part(0, 1, 0, {Tensor("w", {2, 2}, {3, 4}, 2)}, 2, 3),
  };
  for (const int i : {2, 2, 0, 1, 0, 2}) {
    const auto answer = Push(parts[i]);
    EXPECT_EQ(answer->verdict(), proto::VERDICT_UNSPECIFIED);
    EXPECT_EQ(answer->version(), 0u);
    EXPECT_EQ(answer->generation(), 1u);
  }
  EXPECT_EQ(shard_.staged_bytes(), 6 * 4);
  Commit(0, {{0, 1, 1}});
  // 1 - 0.5 {1, 2, 3, 4};  0 - 0.5 {5, 6}.
  EXPECT_THAT(Newest("w"), ElementsAre(0.5f, 0, -0.5f, -1));
  EXPECT_THAT(Newest("b"), ElementsAre(-2.5f, -3));
  EXPECT_THAT(Newest("frozen"), ElementsAre(3));
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardTest, APushThatDoesNotFitIsRefusedByName) {
  Restore();
  const std::string by = "(pushed by /job:worker/task:1)";
  const uint64_t most = ~uint64_t{0};
  const auto part = [&](TensorPiece piece) {
    return Part(1, 1, 0, {Tensor("b", {2}, {1, 1}), std::move(piece)}, 0, 2);
  };
  const auto with = [](TensorPiece piece, auto change) {
    change(piece);
    return piece;
  };
  const TensorPiece good = Tensor("w", {2, 2}, {1, 1, 1, 1});
  const struct {
    const char* what;
    PushPart part;
    std::vector<std::string> text;
  } kCases[] = {
      {"shape",
       part(Tensor("w", {4}, {1, 1, 1, 1})),
       {"variable \"w\": gradient has shape [4], declared [2,2]"}},
      {"a larger shape, and as many elements",
       part(Tensor("w", {2, 3}, {1, 1, 1, 1, 1, 1})),
       {"variable \"w\": gradient has shape [2,3], declared [2,2]"}},
      {"rank 0",
       part(Tensor("w", {}, {1, 1, 1, 1})),
       {"variable \"w\": gradient has shape [], declared [2,2]"}},
      {"shape with more dimensions",
       part(Tensor("w", {2, 2, 1}, {1, 1, 1, 1})),
       {"variable \"w\": gradient has shape [2,2,1], declared [2,2]"}},
      {"dtype",
       part(
           with(good, [](auto& p) { p.dtype = proto::DATA_TYPE_UNSPECIFIED; })),
       {"variable \"w\": gradient is DATA_TYPE_UNSPECIFIED, declared FLOAT32"}},
      {"name", part(Tensor("v", {2, 2}, {1, 1, 1, 1})), {"variable \"v\""}},
      {"on another ps", part(Tensor("far", {8}, {1})), {"variable \"far\""}},
      {"too many elements",
       part(Tensor("w", {2, 2}, {1, 1, 1, 1, 1})),
       {"variable \"w\"", "[0, +5)"}},
      {"begins too late",
       part(Tensor("w", {2, 2}, {1, 1}, 3)),
       {"variable \"w\"", "[3, +2)"}},
      {"begins at 2^64 - 1",
       part(Tensor("w", {2, 2}, {1, 1}, most)),
       {"variable \"w\""}},
      {"not trainable",
       part(Tensor("frozen", {1}, {1})),
       {"variable \"frozen\": gradient for a variable that is not trainable"}},
      {"part of an element",
       part(with(good, [](auto& p) { p.data = p.data.Sub(0, 15); })),
       {"variable \"w\": gradient: 15 bytes", "not a whole number"}},
      {"an encoding that nobody knows",
       part(
           with(good,
                [](auto& p) { p.encoding = static_cast<proto::Encoding>(9); })),
       {"variable \"w\": gradient: encoding 9 is not known"}},
      {"an encoding that was not declared",
       part(with(good,
                 [](auto& p) {
                   p.encoding = proto::FLOAT16;
                   p.data = p.data.Sub(0, 8);
                 })),
       {"variable \"w\": gradient is FLOAT16, declared EXACT"}},
      {"not as many elements as it says",
       part(with(good, [](auto& p) { p.size = 5; })),
       {"variable \"w\": gradient: 16 bytes, which is 4 elements", "5"}},
      {"the same elements twice",
       part(Tensor("b", {2}, {1}, 1)),
       {"variable \"b\": elements [1, 2) came twice"}},
      {"part k of k", Part(1, 1, 0, {good}, 2, 2), {"part 2 of 2"}},
      {"last part uncovered",
       Part(1, 1, 0, {good}),
       {"variable \"b\": 0 of 2 elements", "is dropped"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    std::vector<std::string> text = c.text;
    text.push_back(by);
    EXPECT_TRUE(Fails(Push(c.part).status(), kInvalid, text));
    EXPECT_EQ(shard_.staged_bytes(), 0) << "nothing of the part is kept";
  }
  // None of this hinders the correct push.
  Stage(Whole(1, 1, 0, 1));
}

// The values of `piece` in `encoding`.
TensorPiece Encoded(TensorPiece piece, proto::Encoding encoding,
                    uint64_t kept = 0) {
  std::vector<float> values(piece.data.size() / sizeof(float));
  piece.data.CopyTo(values.data());
  std::vector<float> after(values.size());
  EncodedElements elements = EncodeWithFeedback(
      encoding, kept, values, std::vector<float>(values.size()),
      absl::MakeSpan(after));
  piece.encoding = encoding;
  piece.size = elements.size;
  piece.data = std::move(elements.data);
  return piece;
}

TEST_F(ShardTest, GradientsComeAsDeclaredOrExact) {
  proto::RestoreRequest restore = MakeRestore(1, 1);
  proto::Compression& compression = *restore.mutable_declaration()
                                         ->mutable_variables(0)
                                         ->mutable_compression();
  compression.set_push(proto::TOP_K);
  compression.set_top_k(0.5);
  Restore(restore);
  const auto part = [&](TensorPiece w) {
    return Part(0, 1, 0, {std::move(w), Tensor("b", {2}, {1, 1})});
  };
  const TensorPiece w = Tensor("w", {2, 2}, {1, -2, 4, 0});
  EXPECT_TRUE(Fails(Push(part(Encoded(w, proto::INT8))).status(), kInvalid,
                    {"variable \"w\": gradient is INT8, declared TOP_K"}));
  EXPECT_TRUE(Fails(Push(part(Encoded(w, proto::TOP_K, 3))).status(), kInvalid,
                    {"variable \"w\": gradient of TOP_K with 3 of 4 elements, "
                     "declared 2 at most"}));
  TensorPiece wrong = Encoded(w, proto::TOP_K, 2);
  wrong.size = 2;
  EXPECT_TRUE(Fails(Push(part(wrong)).status(), kInvalid,
                    {"variable \"w\": gradient: TOP_K with element 2 of 2"}));
  wrong.size = 5;
  EXPECT_TRUE(Fails(Push(part(wrong)).status(), kInvalid,
                    {"variable \"w\"", "[0, +5)"}));
  EXPECT_EQ(shard_.staged_bytes(), 0);

  Stage(part(Encoded(w, proto::TOP_K, 2)));
  EXPECT_EQ(shard_.staged_bytes(), 2 * 6 + 8);
  Commit(0, {{0, 1, 1}});
  EXPECT_THAT(Newest("w"), ElementsAre(1, 2, -1, 1)) << "1 - 0.5 x gradient";
  PushPart exact = part(w);
  exact.step = GlobalStep(1);
  exact.sequence = PushSequence(2);
  Stage(exact);
  Commit(1, {{0, 2, 1}});
  EXPECT_THAT(Newest("w"), ElementsAre(0.5f, 3, -3, 1));
}

TEST_F(ShardTest, ValuesComeAsTheyAreAskedFor) {
  Restore();
  const auto pull = [&](proto::Encoding encoding) {
    proto::PullRequest request = MakePull({"frozen"});
    request.mutable_ranges(0)->set_encoding(encoding);
    return Ask(shard_, &Shard::Pull, request);
  };
  for (const auto& [encoding, bytes] :
       {std::pair(proto::EXACT, std::string("\0\0\x40\x40", 4)),
        std::pair(proto::FLOAT16, std::string("\0\x42", 2)),
        std::pair(proto::BFLOAT16, std::string("\x40\x40", 2))}) {
    const auto reply = pull(encoding);
    ASSERT_TRUE(reply.status().ok()) << reply.status();
    const TensorPiece& piece = reply->tensors[0];
    EXPECT_EQ(piece.encoding, encoding);
    std::string data(piece.data.size(), ' ');
    piece.data.CopyTo(&data[0]);
    EXPECT_EQ(data, bytes);
  }
  for (const int encoding : {3, 4, 5, -1}) {
    EXPECT_TRUE(
        Fails(pull(static_cast<proto::Encoding>(encoding)).status(), kInvalid,
              {"variable \"frozen\"", absl::StrCat("encoding ", encoding)}));
  }
}

TEST_F(ShardTest, APartThatContradictsThoseHereIsRefused) {
  Restore();
  Stage(Part(0, 1, 0, {Tensor("w", {2, 2}, {1, 1, 1, 1})}, 0, 3));
  EXPECT_TRUE(Fails(
      Push(Part(0, 1, 0, {Tensor("b", {2}, {1, 1})}, 1, 2)).status(), kInvalid,
      {"push 1 of /job:worker/task:0", "in 2 parts", "in 3",
       "(pushed by /job:worker/task:0)"}));
  EXPECT_EQ(shard_.staged_bytes(), 4 * 4);
}

TEST_F(ShardTest, AGradientIsLetGoBeforeItsStepIsTold) {
  Restore();
  PushPart part = Whole(0, 1, 0, 1);
  std::weak_ptr<const void> gradient;
  {
    const auto owner = std::make_shared<const std::vector<float>>(4, 1.0f);
    gradient = owner;
    part.tensors[0].data =
        Buffer::FromMemory(owner->data(), 4 * sizeof(float), owner);
  }
  Stage(std::move(part));
  EXPECT_FALSE(gradient.expired());
  bool told = false;
  shard_.Commit(MakeCommit(0, {{0, 1, 1}}),
                [&](const absl::StatusOr<proto::CommitResponse>& response) {
                  told = response.ok();
                  EXPECT_TRUE(gradient.expired());
                });
  EXPECT_TRUE(told);
}

TEST_F(ShardTest, APushOfAnEarlierStepIsStale) {
  Restore();
  Step(0, 1);
  Step(1, 1);
  for (const uint64_t step : {0, 1}) {
    const auto answer = Push(Whole(1, 1, step, 1));
    EXPECT_EQ(answer->verdict(), proto::STALE) << step;
    EXPECT_EQ(answer->version(), 2u) << "the open step";
  }
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

TEST_F(ShardTest, APushOfALaterStepIsAnError) {
  Restore();
  EXPECT_TRUE(Fails(Push(Whole(1, 1, 2, 1)).status(), kNotReady,
                    {"gradient of step 2", "/job:ps/task:1 is at step 0",
                     "(pushed by /job:worker/task:1)"}));
  EXPECT_EQ(shard_.staged_bytes(), 0);
}

// Its worker may know the verdict, and so the next step, before this shard has
// committed it.
TEST_F(ShardTest, APushOfTheNextStepIsSentAgain_P4) {
  Restore();
  Stage(Whole(0, 1, 0, 1));
  EXPECT_TRUE(Fails(Push(Whole(0, 2, 1, 1)).status(), kUnavailable,
                    {"gradient of step 1", "/job:ps/task:1 is at step 0"}));
  EXPECT_EQ(shard_.staged_bytes(), 24);
  Commit(0, {{0, 1, 1}});
  Stage(Whole(0, 2, 1, 1));
}

TEST_F(ShardTest, WhatIsAveragedGoesByShares) {
  proto::RestoreRequest restore = MakeRestore();
  restore.mutable_declaration()
      ->mutable_variables(2)
      ->mutable_moving_average()
      ->set_momentum(0.5f);
  Restore(restore);
  Stage(Whole(0, 1, 0, 2, 4));
  Stage(Whole(1, 1, 0, 2, 8));
  Commit(0, {{0, 1, 0.125f, 0.25f}, {1, 1, 0.5f, 0.75f}});
  EXPECT_THAT(Newest("w"), Each(0.375f));  // 1 - 0.5 (0.125 + 0.5) 2
  EXPECT_THAT(Newest("b"), Each(3.5f));    // 0.5 (0.25 x 4 + 0.75 x 8)

  Stage(Whole(0, 2, 1, 2, 4));
  Stage(Whole(1, 2, 1, 4, 8));
  proto::CommitRequest divided = MakeCommit(1, {{0, 2, 0.5f, 1}, {1, 2, 1, 3}});
  divided.set_weight_divisor(5);
  divided.set_share_divisor(4);
  EXPECT_TRUE(Ask(shard_, &Shard::Commit, divided).status().ok());
  EXPECT_THAT(Newest("w"), Each(-0.125f));  // 0.375 - 0.5 (1 + 4) / 5
  EXPECT_THAT(Newest("b"), Each(5.25f));    // 3.5 + 0.5 ((4 + 24) / 4 - 3.5)
  proto::CommitRequest commit =
      MakeCommit(2, {{0, 3, 1, std::numeric_limits<float>::quiet_NaN()}});
  EXPECT_TRUE(Fails(Ask(shard_, &Shard::Commit, commit).status(), kInternal,
                    {"a weight of 1 and a share of nan"}));
}

TEST_F(ShardTest, ADecidedPushGetsItsFirstVerdictHoweverLate) {
  Restore();
  Stage(Whole(0, 1, 0, 1));
  Stage(Whole(1, 1, 0, 1));
  Commit(0, {{0, 1, 1}});
  EXPECT_EQ(Push(Whole(0, 1, 0, 1))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Push(Whole(1, 1, 0, 1))->verdict(), proto::STALE);
  // The ledger comes before the step: a decided push is not staged again even
  // where it claims the open one.
  EXPECT_EQ(Push(Whole(0, 1, 1, 1))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Push(Whole(1, 1, 1, 1))->verdict(), proto::STALE);
  EXPECT_EQ(shard_.staged_bytes(), 0);
  for (uint64_t step = 1; step < 4; ++step) Step(step, 1);
  EXPECT_EQ(Push(Whole(0, 1, 0, 1))->verdict(), proto::ACCEPTED);
  EXPECT_EQ(Push(Whole(1, 1, 0, 1))->verdict(), proto::STALE);
}

TEST_F(ShardTest, APushAtOrBelowAckedThroughIsDecided) {
  Restore();
  Step(0, 1);
  PushPart next = Whole(0, 5, 1, 1);
  next.acked_through = PushSequence(4);
  Stage(next);
  // Push 1 was ACCEPTED, 4 never came here; their worker knows both.
  EXPECT_EQ(Push(Whole(0, 1, 1, 1))->verdict(), proto::STALE);
  EXPECT_EQ(Push(Whole(0, 4, 1, 1))->verdict(), proto::STALE);
  EXPECT_EQ(shard_.staged_bytes(), 6 * 4) << "push 5 alone";
  // A push cannot acknowledge itself.
  PushPart own = Whole(1, 3, 1, 1);
  own.acked_through = PushSequence(3);
  Stage(own);
}

TEST_F(ShardTest, ThePushesAboveAckedThroughAreBounded) {
  Restore();
  EXPECT_TRUE(Fails(Push(Whole(0, kMaxUnacknowledgedPushes + 1, 0, 1)).status(),
                    kNotReady,
                    {"push 4097 of /job:worker/task:0", "acked_through, 0",
                     "(pushed by /job:worker/task:0)"}));
  EXPECT_EQ(shard_.staged_bytes(), 0);
  Stage(Whole(0, kMaxUnacknowledgedPushes, 0, 1));
  PushPart acked = Whole(0, kMaxUnacknowledgedPushes + 1, 0, 1);
  acked.acked_through = PushSequence(1);
  Stage(acked);
}

TEST_F(ShardTest, AWorkerHasTwicePlaceForItsSeats) {
  const struct {
    uint32_t n, m, place;
  } kCases[] = {{2, 2, 2}, {1, 2, 2}, {2, 3, 2}, {6, 2, 6}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << "N " << c.n << ", M " << c.m);
    Shard shard(MakeOptions(), &clock_, nullptr);
    ASSERT_TRUE(
        Ask(shard, &Shard::Restore, MakeRestore(c.n, c.m)).status().ok());
    const auto push = [&](uint32_t worker, uint64_t sequence, uint64_t step) {
      Answer<proto::PushResponse> answer;
      shard.Push(Whole(worker, sequence, step, 1), answer.Catch());
      return answer.status();
    };
    for (uint32_t i = 1; i <= c.place; ++i) EXPECT_TRUE(push(0, i, 0).ok());
    EXPECT_TRUE(Fails(push(0, c.place + 1, 0), kExhausted,
                      {"(pushed by /job:worker/task:0)"}));
    EXPECT_EQ(shard.staged_bytes(), c.place * 24);
    EXPECT_TRUE(push(1, 1, 0).ok()) << "another worker";
    // The commit of the step makes room.
    EXPECT_TRUE(
        Ask(shard, &Shard::Commit, MakeCommit(0, {{0, 1, 1}})).status().ok());
    EXPECT_EQ(shard.staged_bytes(), 0);
    EXPECT_TRUE(push(0, c.place + 1, 1).ok());
  }
}

// ---- Commit ----

TEST_F(ShardTest, AStepByHand) {
  Restore(MakeRestore(2, 2, /*momentum=*/true));
  // Step 0: g = 0.25 x 4 + 0.75 x 8 = 7;  a = 7;  w = 1 - 0.5 x 7 = -2.5.
  Stage(Whole(0, 1, 0, 4));
  Stage(Whole(1, 1, 0, 8));
  Commit(0, {{0, 1, 0.25f}, {1, 1, 0.75f}});
  EXPECT_THAT(Newest("w"), Each(-2.5f));
  // Step 1: g = 0.5 x 2 + 0.5 x -1 = 0.5;  a = 3.5 + 0.5 = 4;
  // w = -2.5 - 0.5 x 4 = -4.5.
  Stage(Whole(0, 2, 1, 2));
  Stage(Whole(1, 2, 1, -1));
  Commit(1, {{0, 2, 0.5f}, {1, 2, 0.5f}});
  EXPECT_THAT(Newest("w"), Each(-4.5f));
  EXPECT_THAT(Newest("frozen"), ElementsAre(3));
}

// 2^24 + 1 is 2^24 in float32 (a tie, to even): (2^24 + 1) + 1 = 2^24, but
// (1 + 1) + 2^24 = 2^24 + 2. In the order of S, not of arrival or of workers.
TEST_F(ShardTest, SumsInTheOrderOfS) {
  Restore(MakeRestore(6, 2));
  // Worker 0 has the big one, worker 1 two small ones; b begins at 0.
  const auto stage = [&](uint64_t step, uint64_t base) {
    Stage(Whole(1, base + 2, step, 0, 1));
    Stage(Whole(0, base + 1, step, 0, 0x1p24f));
    Stage(Whole(1, base + 1, step, 0, 1));
  };
  stage(0, 0);
  Commit(0, {{0, 1, 1}, {1, 1, 1}, {1, 2, 1}});
  EXPECT_THAT(Newest("b"), Each(-0x1p23f));  // 0 - 0.5 x 2^24
  stage(1, 2);
  Commit(1, {{1, 3, 1}, {1, 4, 1}, {0, 3, 1}});
  // -2^23 - 0.5 (2^24 + 2) = -2^24 - 1, which is -2^24 again; so look at the
  // third step, from zero: 2^24 is taken away first.
  stage(2, 4);
  Commit(2, {{0, 5, -2}});  // -2^24 + 2^24 = 0
  EXPECT_THAT(Newest("b"), Each(0.0f));
  stage(3, 6);
  Commit(3, {{1, 7, 1}, {1, 8, 1}, {0, 7, 1}});
  EXPECT_THAT(Newest("b"), Each(-(0x1p23f + 1)));
}

TEST_F(ShardTest, CommitAgainDoesNothing) {
  Restore(MakeRestore(2, 2, /*momentum=*/true));
  Step(0, 2);  // a = 2, w = 0
  const proto::CommitRequest commit = MakeCommit(0, {{0, 1, 1}});
  for (int i = 0; i < 2; ++i) {
    const auto again = Ask(shard_, &Shard::Commit, commit);
    EXPECT_EQ(again->version(), 1u);
  }
  EXPECT_EQ(shard_.version(), GlobalStep(1));
  EXPECT_THAT(Newest("w"), Each(0.0f));
  Step(1, 2);  // a = 1 + 2 = 3, w = -1.5
  EXPECT_EQ(Ask(shard_, &Shard::Commit, commit)->version(), 2u);
  EXPECT_THAT(Newest("w"), Each(-1.5f));
}

TEST_F(ShardTest, ACommitThatCannotBeIsAnErrorAndChangesNothing) {
  Restore();
  Stage(Whole(0, 1, 0, 2));
  Stage(Part(1, 1, 0, {Tensor("w", {2, 2}, {1, 1, 1, 1})}, 0, 2));
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const float kInf = std::numeric_limits<float>::infinity();
  proto::CommitRequest no_scalars = MakeCommit(0, {{0, 1, 1}});
  no_scalars.clear_scalars();
  proto::CommitRequest nan_divisor = MakeCommit(0, {{0, 1, 1}});
  nan_divisor.set_weight_divisor(kNan);
  proto::CommitRequest negative_divisor = MakeCommit(0, {{0, 1, 1}});
  negative_divisor.set_share_divisor(-2);
  proto::CommitRequest second_life = MakeCommit(0, {{0, 1, 1}});
  second_life.mutable_contributions(0)->set_incarnation(2);
  const struct {
    const char* what;
    proto::CommitRequest request;
    std::string text;
  } kCases[] = {
      {"ahead", MakeCommit(1, {{0, 1, 1}}), "the shard is at step 0"},
      {"missing push", MakeCommit(0, {{0, 1, 0.5f}, {1, 7, 0.5f}}),
       "push 7 of /job:worker/task:1 (incarnation 1) is not on this ps"},
      {"of another life", second_life, "incarnation 2"},
      {"not whole", MakeCommit(0, {{0, 1, 0.5f}, {1, 1, 0.5f}}),
       "push 1 of /job:worker/task:1 (incarnation 1): variable \"b\": 0 of 2"},
      {"NaN", MakeCommit(0, {{0, 1, kNan}}), "a weight of nan"},
      {"infinite", MakeCommit(0, {{0, 1, kInf}}), "a weight of inf"},
      {"NaN of one without parts", MakeCommit(0, {{0, 1, 1}, {1, 9, kNan}}),
       "push 9 of /job:worker/task:1"},
      {"a divisor of NaN", nan_divisor, "the divisor of weights is nan"},
      {"a divisor below 0", negative_divisor, "the divisor of shares is -2"},
      {"no scalars", no_scalars, "scalars of 0 optimizers, declared 1"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    EXPECT_TRUE(Fails(Ask(shard_, &Shard::Commit, c.request).status(),
                      kInternal,
                      {absl::StrCat("commit of step ", c.request.step(),
                                    " at /job:ps/task:1"),
                       c.text}));
    EXPECT_EQ(shard_.version(), GlobalStep(0));
  }
  EXPECT_THAT(Newest("w"), Each(1.0f));
  EXPECT_EQ(shard_.staged_bytes(), 24 + 16);
  // No verdict was noted either: the push counts when the right one comes.
  Stage(Whole(0, 1, 0, 2));
  Commit(0, {{0, 1, 1}});
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

// A Commit with the older life's push may already be on its way.
TEST_F(ShardTest, ANewerLifeTakesNothingOfTheOlderAway_R6) {
  Restore();
  Stage(Whole(0, 1, 0, 2));
  PushPart newer = Whole(0, 1, 0, 100);
  newer.sender.set_incarnation(2);
  Stage(std::move(newer));
  Commit(0, {{0, 1, 1}});
  // Push 1 of life 1: w = 1 - 0.5 x 2.
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

TEST_F(ShardTest, WhenEveryWeightIs0TheVersionMovesAndNothingElse) {
  Restore(MakeRestore(2, 2, /*momentum=*/true));
  Step(0, 2);  // a = 2, w = 1 - 1 = 0
  // One has parts nevertheless (clipped to nothing), the other has none.
  Stage(Whole(0, 2, 1, 100));
  Commit(1, {{0, 2, 0}, {1, 1, 0}});
  EXPECT_THAT(Newest("w"), Each(0.0f));
  EXPECT_EQ(shard_.staged_bytes(), 0);
  EXPECT_EQ(Push(Whole(0, 2, 1, 100))->verdict(), proto::ACCEPTED);
  // The slot is as it was: a = 0.5 x 2 + 4 = 5, w = 0 - 2.5. Had momentum
  // coasted through step 1, a would be 4.5.
  Stage(Whole(0, 3, 2, 4));
  Commit(2, {{0, 3, 1}});
  EXPECT_THAT(Newest("w"), Each(-2.5f));
}

TEST_F(ShardTest, AStepOfNoContributionsMovesTheVersion) {
  Restore();
  Commit(0, {});
  EXPECT_THAT(Newest("w"), Each(1.0f));
}

TEST_F(ShardTest, Weight0NeedsNoPartsAmongOthers) {
  Restore();
  Stage(Whole(1, 1, 0, 2));
  Commit(0, {{0, 1, 0}, {1, 1, 1}});
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

// Were it multiplied, 0 x infinity would poison the step.
TEST_F(ShardTest, Weight0LeavesOutEvenWhatIsNotFinite) {
  Restore();
  Stage(Whole(0, 1, 0, std::numeric_limits<float>::infinity()));
  Stage(Whole(1, 1, 0, 2));
  Commit(0, {{0, 1, 0}, {1, 1, 1}});
  EXPECT_THAT(Newest("w"), Each(0.0f));
}

TEST_F(ShardTest, TheLateAreDroppedAndTheNextStepBegins) {
  Restore(MakeRestore(1, 2));
  Stage(Whole(0, 1, 0, 2));
  Stage(Part(1, 1, 0, {Tensor("w", {2, 2}, {9, 9, 9, 9})}, 0, 2));
  Commit(0, {{0, 1, 1}});
  EXPECT_THAT(Newest("w"), Each(0.0f));
  EXPECT_EQ(shard_.staged_bytes(), 0);
  EXPECT_EQ(Push(Part(1, 1, 0, {Tensor("b", {2}, {9, 9})}, 1, 2))->verdict(),
            proto::STALE);
  Stage(Whole(1, 2, 1, 2));
  Commit(1, {{1, 2, 1}});
  EXPECT_THAT(Newest("w"), Each(-1.0f));
}

// ---- Several chunks ----

TEST_F(ShardTest, AVariableOfSeveralChunksInPartsCutInsideElements) {
  constexpr uint64_t kSize = kChunkElements + 11;
  proto::RestoreRequest restore = MakeRestore();
  restore.mutable_declaration()->mutable_variables()->Clear();
  restore.clear_slices();
  proto::Variable& variable = *restore.mutable_declaration()->add_variables();
  variable.set_name("v");
  variable.add_shape(kSize);
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  proto::Slice& slice = *restore.add_slices();
  slice.set_variable("v");
  slice.set_size(kSize);
  slice.set_ps(kThisPs);
  Restore(restore);

  std::vector<float> gradient(kSize);
  for (uint64_t i = 0; i < kSize; ++i) gradient[i] = static_cast<float>(i);
  // Parts that end at element 5, in the second chunk, and at the end; each in
  // spans that end 1, 2 and 3 bytes into an element.
  const std::vector<uint64_t> ends = {5, kChunkElements + 3, kSize};
  std::vector<PushPart> parts;
  uint64_t begin = 0;
  for (const uint64_t end : ends) {
    TensorPiece piece =
        Tensor("v", {static_cast<int64_t>(kSize)},
               {gradient.begin() + begin, gradient.begin() + end}, begin);
    const Buffer whole = piece.data;
    piece.data = Buffer();
    size_t at = 0;
    for (const size_t to : {size_t{1}, size_t{6}, size_t{15}, whole.size()}) {
      std::string span(to - at, '\0');
      whole.Sub(at, to - at).CopyTo(span.data());
      piece.data.Append(Buffer::FromString(std::move(span)));
      at = to;
    }
    parts.push_back(Part(0, 1, 0, {std::move(piece)},
                         static_cast<uint32_t>(parts.size()), 3));
    begin = end;
  }
  for (const int i : {1, 2, 0}) Stage(parts[i]);
  Commit(0, {{0, 1, 1}});

  proto::PullRequest pull;
  *pull.mutable_sender() = Reader();
  pull.add_ranges()->set_variable("v");
  pull.mutable_ranges(0)->set_size(kSize);
  const std::vector<float> values = Values(Ask(shard_, &Shard::Pull, pull), 0);
  ASSERT_EQ(values.size(), kSize);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    // Halves of numbers below 2^24: exact.
    if (values[i] != -0.5f * static_cast<float>(i)) ++wrong;
  }
  EXPECT_EQ(wrong, 0u);

  // A range that only spans the border of the chunks.
  pull.mutable_ranges(0)->set_begin(kChunkElements - 1);
  pull.mutable_ranges(0)->set_size(2);
  const float border = static_cast<float>(kChunkElements);
  EXPECT_THAT(Values(Ask(shard_, &Shard::Pull, pull), 0),
              ElementsAre(-0.5f * (border - 1), -0.5f * border));
}

}  // namespace
}  // namespace holdfast

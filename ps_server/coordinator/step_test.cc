// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/step.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SeatOffer Offer(uint32_t worker, uint64_t sequence, uint64_t examples,
                float clip_factor = 1) {
  SeatOffer offer;
  offer.push = {{{kWorkerJob, worker}, Incarnation(1)}, PushSequence(sequence)};
  offer.examples = examples;
  offer.clip_factor = clip_factor;
  return offer;
}

proto::CommitRequest CommitOf(
    const Step& step,
    proto::Consistency::Aggregation aggregation = proto::Consistency::MEAN) {
  proto::CommitRequest commit;
  step.FillIn(aggregation, &commit);
  return commit;
}

std::vector<float> Weights(const proto::CommitRequest& commit) {
  std::vector<float> weights;
  for (const auto& contribution : commit.contributions()) {
    weights.push_back(contribution.weight());
  }
  return weights;
}

std::vector<float> Shares(const proto::CommitRequest& commit) {
  std::vector<float> shares;
  for (const auto& contribution : commit.contributions()) {
    shares.push_back(contribution.share());
  }
  return shares;
}

// A step of as many seats as workers, filled in the order given.
Step Filled(const std::vector<SeatOffer>& offers) {
  const uint32_t n = static_cast<uint32_t>(offers.size());
  Step step(GlobalStep(0), n, n);
  for (uint32_t seat = 0; seat < n; ++seat) step.Fill(seat, offers[seat]);
  return step;
}

TEST(StepTest, SeatsAndTheirOwners) {
  const struct {
    const char* what;
    uint32_t n, m;
    std::vector<uint32_t> owners;  // by seat: max(N, M) seats, seat mod M
  } kCases[] = {
      {"one worker", 1, 1, {0}},
      {"N = M", 3, 3, {0, 1, 2}},
      {"N < M: a seat for the backup too", 2, 3, {0, 1, 2}},
      {"N = 3 M", 6, 2, {0, 1, 0, 1, 0, 1}},
      {"N above M, and no multiple of it", 5, 3, {0, 1, 2, 0, 1}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    const Step step(GlobalStep(7), c.n, c.m);
    EXPECT_EQ(step.number(), GlobalStep(7));
    std::vector<uint32_t> owners;
    for (uint32_t seat = 0; seat < step.num_seats(); ++seat) {
      owners.push_back(step.OwnerOf(seat));
    }
    EXPECT_EQ(owners, c.owners);
    for (uint32_t replica = 0; replica < c.m; ++replica) {
      EXPECT_EQ(NumSeatsOf(replica, c.n, c.m),
                std::count(owners.begin(), owners.end(), replica))
          << replica;
    }
  }
}

TEST(StepTest, IsFullAtTheNthOffer) {
  const struct {
    uint32_t n, m;
  } kCases[] = {{1, 1}, {2, 2}, {2, 3}, {1, 3}, {4, 2}, {3, 2}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << "N " << c.n << ", M " << c.m);
    Step step(GlobalStep(0), c.n, c.m);
    // Filled from the last seat: it does not matter which seats are filled.
    for (uint32_t i = 0; i < c.n; ++i) {
      EXPECT_FALSE(step.full()) << "after " << i;
      const uint32_t seat = step.num_seats() - 1 - i;
      step.Fill(seat, Offer(step.OwnerOf(seat), 1, 10));
    }
    EXPECT_TRUE(step.full());
  }
}

TEST(StepTest, FindsTheOfferOfASeat) {
  Step step(GlobalStep(0), 2, 2);
  EXPECT_EQ(step.Find(1), nullptr);
  step.Fill(1, Offer(1, 42, 10));
  ASSERT_NE(step.Find(1), nullptr);
  EXPECT_EQ(step.Find(1)->push.sequence, PushSequence(42));
  EXPECT_EQ(step.Find(0), nullptr);
}

TEST(StepTest, MissingReplicasAreThoseWithAnEmptySeatEachOnce) {
  Step backup(GlobalStep(0), 2, 3);
  EXPECT_THAT(backup.MissingReplicas(), ElementsAre(0, 1, 2));
  backup.Fill(1, Offer(1, 1, 10));
  EXPECT_THAT(backup.MissingReplicas(), ElementsAre(0, 2));

  // Seats 0, 2, 4 are worker 0's; 1, 3, 5 are worker 1's.
  Step many(GlobalStep(0), 6, 2);
  EXPECT_THAT(many.MissingReplicas(), ElementsAre(0, 1));
  for (const uint32_t seat : {1, 3}) many.Fill(seat, Offer(1, seat, 10));
  EXPECT_THAT(many.MissingReplicas(), ElementsAre(0, 1));
  many.Fill(5, Offer(1, 5, 10));
  EXPECT_THAT(many.MissingReplicas(), ElementsAre(0));
  for (const uint32_t seat : {0, 2, 4}) many.Fill(seat, Offer(0, seat, 10));
  EXPECT_THAT(many.MissingReplicas(), IsEmpty());
}

TEST(StepTest, TheMeanAndWhatIsAveraged) {
  const struct {
    const char* what;
    std::vector<SeatOffer> offers;
    std::vector<float> weights;
    float weight_divisor;
    std::vector<float> shares;
    float share_divisor;
  } kCases[] = {
      {"equal batches",
       {Offer(0, 1, 25), Offer(1, 1, 25), Offer(2, 1, 25)},
       {1, 1, 1},
       3,
       {1, 1, 1},
       3},
      // Shares depend on the examples alone.
      {"clipped",
       {Offer(0, 1, 16, 0.5f), Offer(1, 1, 48, 0.125f)},
       {0.5f, 0.375f},
       4,
       {1, 3},
       4},
      // The mean's denominator keeps the clipped examples; shares average over
      // the offers that count.
      {"clipped to nothing",
       {Offer(0, 1, 32, 0.f), Offer(1, 1, 8), Offer(2, 1, 24)},
       {0, 1, 3},
       8,
       {0, 1, 3},
       4},
      {"without examples",
       {Offer(0, 1, 0), Offer(1, 1, 30)},
       {0, 1},
       1,
       {0, 1},
       1},
      {"all without", {Offer(0, 1, 0), Offer(1, 1, 0)}, {0, 0}, 1, {0, 0}, 1},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    const proto::CommitRequest commit = CommitOf(Filled(c.offers));
    EXPECT_EQ(Weights(commit), c.weights);
    EXPECT_EQ(commit.weight_divisor(), c.weight_divisor);
    EXPECT_EQ(Shares(commit), c.shares);
    EXPECT_EQ(commit.share_divisor(), c.share_divisor);
  }
}

// Gradients are added regardless of their batches; shares still form a mean.
TEST(StepTest, TheSum) {
  const proto::CommitRequest commit =
      CommitOf(Filled({Offer(0, 1, 16, 0.5f), Offer(1, 1, 0), Offer(2, 1, 48),
                       Offer(3, 1, 32, 0.f)}),
               proto::Consistency::SUM);
  EXPECT_THAT(Weights(commit), ElementsAre(0.5f, 0, 1, 0));
  EXPECT_EQ(commit.weight_divisor(), 1);
  EXPECT_THAT(Shares(commit), ElementsAre(1, 0, 3, 0));
  EXPECT_EQ(commit.share_divisor(), 4);
}

TEST(StepTest, WeightsOfABackupStepCountOnlyThoseWhoCame) {
  Step step(GlobalStep(0), 2, 3);
  step.Fill(2, Offer(2, 1, 30));
  step.Fill(0, Offer(0, 1, 10));
  const proto::CommitRequest commit = CommitOf(step);
  EXPECT_THAT(Weights(commit), ElementsAre(1, 3));
  EXPECT_EQ(commit.weight_divisor(), 4);
}

TEST(StepTest, ContributionsAreInTheOrderOfSeatsAndSayWhose) {
  Step step(GlobalStep(3), 4, 2);
  // In the order of their coming: seats 3, 0, 2, 1.
  step.Fill(3, Offer(1, 12, 10));
  step.Fill(0, Offer(0, 21, 10));
  step.Fill(2, Offer(0, 22, 10));
  SeatOffer second_life = Offer(1, 1, 10);
  second_life.push.from.incarnation = Incarnation(5);
  step.Fill(1, second_life);

  std::vector<std::string> s;
  const proto::CommitRequest commit = CommitOf(step);
  for (const auto& c : commit.contributions()) {
    s.push_back(absl::StrCat(c.seat(), ": ", c.worker().job(),
                             c.worker().index(), "/", c.incarnation(), "/",
                             c.sequence()));
  }
  EXPECT_THAT(s, ElementsAre("0: worker0/1/21", "1: worker1/5/1",
                             "2: worker0/1/22", "3: worker1/1/12"));
}

}  // namespace
}  // namespace holdfast

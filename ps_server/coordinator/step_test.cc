#include "ps_server/coordinator/step.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/task_id.h"
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

std::vector<float> Weights(const Step& step) {
  std::vector<float> weights;
  for (const auto& contribution : step.Contributions()) {
    weights.push_back(contribution.weight());
  }
  return weights;
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
  }
}

TEST(StepTest, IsFullAtTheNthOffer) {
  const struct {
    uint32_t n, m;
  } kCases[] = {{1, 1}, {2, 2}, {2, 3}, {1, 3}, {4, 2}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << "N " << c.n << ", M " << c.m);
    Step step(GlobalStep(0), c.n, c.m);
    // From the last seat: which seats they are does not matter.
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

TEST(StepTest, Weights) {
  const struct {
    const char* what;
    std::vector<SeatOffer> offers;
    std::vector<float> weights;
  } kCases[] = {
      {"equal batches: 25 of 100 each",
       {Offer(0, 1, 25), Offer(1, 1, 25), Offer(2, 1, 25), Offer(3, 1, 25)},
       {0.25f, 0.25f, 0.25f, 0.25f}},
      {"unequal: 10, 20 and 34 of 64",
       {Offer(0, 1, 10), Offer(1, 1, 20), Offer(2, 1, 34)},
       {0.15625f, 0.3125f, 0.53125f}},
      // The float next to 1/3 is 0x1.555556p-2.
      {"a third", {Offer(0, 1, 1), Offer(1, 1, 2)}, {0x1.555556p-2f, 2 / 3.f}},
      {"one alone", {Offer(0, 1, 7)}, {1.f}},
      // 16 of 64 is a quarter, clipped to a half of it; the mean's denominator
      // keeps the clipped examples: 48 of 64.
      {"clipped", {Offer(0, 1, 16, 0.5f), Offer(1, 1, 48)}, {0.125f, 0.75f}},
      {"clipped to nothing",
       {Offer(0, 1, 32, 0.f), Offer(1, 1, 32)},
       {0.f, 0.5f}},
      // A worker with nothing to give does not thin out the others.
      {"weight 0",
       {Offer(0, 1, 0), Offer(1, 1, 30), Offer(2, 1, 10)},
       {0.f, 0.75f, 0.25f}},
      {"all of weight 0: not 0 / 0",
       {Offer(0, 1, 0), Offer(1, 1, 0)},
       {0.f, 0.f}},
      // float(0.7) x 13 / 97, exactly and then rounded once, is 0x1.80439p-4
      // (rational arithmetic); in float32 throughout it would be 0x1.80438ep-4.
      {"rounded once",
       {Offer(0, 1, 13, 0.7f), Offer(1, 1, 84)},
       {0x1.80439p-4f, static_cast<float>(84 / 97.0)}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    EXPECT_EQ(Weights(Filled(c.offers)), c.weights);
  }
}

// Of the examples alone, and 1 in all where any counts.
TEST(StepTest, SharesAreNotClipped) {
  const auto shares = [](const std::vector<SeatOffer>& offers) {
    std::vector<float> shares;
    for (const auto& contribution : Filled(offers).Contributions()) {
      shares.push_back(contribution.share());
    }
    return shares;
  };
  EXPECT_THAT(shares({Offer(0, 1, 16, 0.5f), Offer(1, 1, 48, 0.125f)}),
              ElementsAre(0.25f, 0.75f));
  EXPECT_THAT(shares({Offer(0, 1, 32, 0.f), Offer(1, 1, 8), Offer(2, 1, 24)}),
              ElementsAre(0, 0.25f, 0.75f));
  EXPECT_THAT(shares({Offer(0, 1, 0), Offer(1, 1, 30)}), ElementsAre(0, 1));
  EXPECT_THAT(shares({Offer(0, 1, 0)}), ElementsAre(0));
}

TEST(StepTest, WeightsOfABackupStepCountOnlyThoseWhoCame) {
  Step step(GlobalStep(0), 2, 3);
  step.Fill(2, Offer(2, 1, 30));
  step.Fill(0, Offer(0, 1, 10));
  EXPECT_THAT(Weights(step), ElementsAre(0.25f, 0.75f));
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
  for (const auto& c : step.Contributions()) {
    s.push_back(absl::StrCat(c.seat(), ": ", c.worker().job(),
                             c.worker().index(), "/", c.incarnation(), "/",
                             c.sequence()));
  }
  EXPECT_THAT(s, ElementsAre("0: worker0/1/21", "1: worker1/5/1",
                             "2: worker0/1/22", "3: worker1/1/12"));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/chronicle.h"

#include <string>

#include "common/job/task_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class ChronicleTest : public ::testing::Test {
 protected:
  ChronicleTest() { archive_.quick = false; }

  void SetGeneration(uint64_t generation) {
    proto::Journal journal;
    journal.set_generation(generation);
    journal.set_directory_nonce(77);
    journal_.TakeUp(journal);
  }
  void Write() {
    const Outbox::Event event(&outbox_);
    chronicle_.Write();
  }
  // Commits `steps` more steps, each of 10 examples with that loss.
  void Train(uint64_t steps, double loss) {
    for (uint64_t i = 0; i < steps; ++i) {
      AcceptedPush push;
      push.examples = 10;
      push.loss = loss;
      progress_.AddStep({push});
      progress_.SetCommitted(GlobalStep(++step_));
      chronicle_.OnProgress();
    }
  }

  FakeClock clock_;
  PuppetArchive archive_;
  Outbox outbox_;
  JournalWriter journal_{&clock_, &archive_, &outbox_,
                         [] { return absl::Seconds(1); },
                         [](const absl::Status&) {}};
  Progress progress_;
  uint64_t step_ = 0;
  Chronicle chronicle_{[] { return absl::FromUnixSeconds(1700000000); },
                       &clock_,
                       &archive_,
                       &outbox_,
                       &journal_,
                       &progress_,
                       [this] {
                         return Chronicle::Moment{Generation(3), step_};
                       }};
};

TEST_F(ChronicleTest, AnEventIsOfItsMoment) {
  step_ = 7;
  chronicle_.Tell(proto::Event::LOST, "a worker is lost", Worker(1));
  ASSERT_THAT(chronicle_.events().events(), SizeIs(1));
  const proto::Event& event = chronicle_.events().events()[0];
  EXPECT_EQ(event.number(), 1u);
  EXPECT_EQ(event.kind(), proto::Event::LOST);
  EXPECT_EQ(event.time(), 1700000000);
  EXPECT_EQ(event.generation(), 3u);
  EXPECT_EQ(event.step(), 7u);
  EXPECT_EQ(event.task().index(), 1u);
  EXPECT_EQ(event.text(), "a worker is lost");
}

TEST_F(ChronicleTest, TheTextOfAnEventIsPrintable) {
  chronicle_.Tell(proto::Event::CHECKPOINT_FAILED,
                  "caf\xe9: cannot write\033]0;title\a", std::nullopt);
  EXPECT_EQ(chronicle_.events().events()[0].text(),
            "caf?: cannot write?]0;title?");
}

TEST_F(ChronicleTest, AStepMakesAPoint) {
  chronicle_.OnTraining();
  Train(1, 0.5);
  Train(1, 0.25);
  const auto history = chronicle_.history().Answer({});
  ASSERT_THAT(history.points(), SizeIs(2));
  EXPECT_EQ(history.points(1).step(), 2u);
  EXPECT_EQ(history.points(1).loss(), 0.25);
  EXPECT_EQ(history.points(1).examples(), 20u);
  EXPECT_EQ(history.points(1).time(), 1700000000);
}

// 10,000 points are thinned to every second step, so that the last of these
// steps does not make a point by itself.
TEST_F(ChronicleTest, TheLastStepMakesOneWhetherOrNotItIsDue) {
  Train(JobHistory::kMostPoints + 2, 1);
  const uint64_t last = chronicle_.history().last_step();
  Train(1, 1);
  ASSERT_EQ(chronicle_.history().last_step(), last);
  chronicle_.Close();
  EXPECT_EQ(chronicle_.history().last_step(), step_);
  chronicle_.Close();
  EXPECT_EQ(chronicle_.history().last_step(), step_);
}

TEST_F(ChronicleTest, ADirectoryWithoutAGenerationIsNobodysYet) {
  chronicle_.Tell(proto::Event::TRAINING, "training begins");
  Write();
  EXPECT_THAT(archive_.histories, IsEmpty());
  SetGeneration(1);
  Write();
  ASSERT_THAT(archive_.histories, SizeIs(1));
  const proto::History& written = archive_.histories[0].request;
  EXPECT_EQ(written.directory_nonce(), 77u);
  EXPECT_THAT(written.events(), SizeIs(1));
  archive_.AnswerHistory();
  Write();
  EXPECT_THAT(archive_.histories, IsEmpty()) << "nothing has changed";
}

}  // namespace
}  // namespace holdfast

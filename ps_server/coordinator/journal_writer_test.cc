// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/journal_writer.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(5);

// Keeps what is written, for the test to answer.
class SlowArchive : public Archive {
 public:
  void WriteJournal(const proto::Journal& journal, Reply<Done> reply) override {
    writes.emplace_back(journal, std::move(reply));
  }
  void WriteManifest(const proto::Manifest&, Reply<Done>) override {}
  void WriteHistory(proto::History, Reply<Done>) override {}
  void ReadManifest(const proto::CheckpointName&,
                    Reply<proto::Manifest>) override {}
  void SetAside(const proto::CheckpointName&) override {}
  void KeepBest(const proto::CheckpointName&, Reply<Done>) override {}
  void RemoveOthersOfBest() override {}
  void RemoveOthers(const proto::CheckpointName*) override {}

  // Answers the oldest write, and returns its generation.
  uint64_t Answer(const absl::Status& status = absl::OkStatus()) {
    auto [journal, reply] = std::move(writes.front());
    writes.pop_front();
    status.ok() ? reply(Done()) : reply(status);
    return journal.generation();
  }

  std::deque<std::pair<proto::Journal, Reply<Done>>> writes;
};

class JournalWriterTest : public ::testing::Test {
 protected:
  void Change(uint64_t generation) {
    const Outbox::Event event(&outbox_);
    writer_.Change(
        [generation](proto::Journal* journal) {
          journal->set_generation(generation);
        },
        [this, generation] { done_.push_back(generation); });
  }
  void Tick(absl::Duration after) {
    clock_.Advance(after);
    const Outbox::Event event(&outbox_);
    writer_.Tick();
  }

  FakeClock clock_;
  SlowArchive archive_;
  Outbox outbox_;
  const absl::Duration patience_ = kPatience;
  std::vector<uint64_t> done_;
  std::vector<std::string> given_up_;
  JournalWriter writer_{&clock_, &archive_, &outbox_,
                        [this] { return patience_; },
                        [this](const absl::Status& why) {
                          given_up_.emplace_back(why.message());
                        }};
};

TEST_F(JournalWriterTest, OneChangeAfterTheOther) {
  Change(1);
  Change(2);
  ASSERT_EQ(archive_.writes.size(), 1u);
  EXPECT_EQ(writer_.journal().generation(), 0u) << "nothing is on disk";
  EXPECT_EQ(archive_.Answer(), 1u);
  EXPECT_EQ(writer_.journal().generation(), 1u);
  EXPECT_THAT(done_, ElementsAre(1));
  EXPECT_FALSE(writer_.idle());
  EXPECT_EQ(archive_.Answer(), 2u);
  EXPECT_THAT(done_, ElementsAre(1, 2));
  EXPECT_TRUE(writer_.idle());
}

TEST_F(JournalWriterTest, AWriteThatFailsIsTriedAgain) {
  Change(1);
  archive_.Answer(absl::UnavailableError("no space"));
  EXPECT_EQ(writer_.trouble(), "no space");
  EXPECT_TRUE(writer_.busy());
  Tick(kDiskRetryAfter / 2);
  EXPECT_THAT(archive_.writes, IsEmpty());
  Tick(kDiskRetryAfter / 2);
  EXPECT_EQ(archive_.Answer(), 1u);
  EXPECT_EQ(writer_.trouble(), "");
  EXPECT_THAT(done_, ElementsAre(1));
}

TEST_F(JournalWriterTest, GivesUpAfterAWhile) {
  Change(1);
  Change(2);
  archive_.Answer(absl::UnavailableError("no space"));
  for (absl::Duration passed; passed < kPatience; passed += kDiskRetryAfter) {
    EXPECT_THAT(given_up_, IsEmpty());
    Tick(kDiskRetryAfter);
    archive_.Answer(absl::UnavailableError("still no space"));
  }
  EXPECT_THAT(given_up_, ElementsAre("still no space"));
  EXPECT_TRUE(writer_.idle());
  Tick(kDiskRetryAfter);
  EXPECT_THAT(archive_.writes, IsEmpty());
  EXPECT_THAT(done_, IsEmpty());
}

TEST_F(JournalWriterTest, GivesUpAtOnceWhereSomebodyElseWrites) {
  Change(1);
  archive_.Answer(absl::AbortedError("another wrote"));
  EXPECT_THAT(given_up_, ElementsAre("another wrote"));
}

TEST_F(JournalWriterTest, StopForgetsWhatIsQueued) {
  Change(1);
  Change(2);
  writer_.Stop();
  EXPECT_EQ(archive_.Answer(), 1u);
  EXPECT_THAT(archive_.writes, IsEmpty());
  EXPECT_THAT(done_, ElementsAre(1)) << "what the disk has done is so";
}

TEST_F(JournalWriterTest, TheJournalThatEndsTheJobIsKnown) {
  Change(1);
  EXPECT_FALSE(writer_.finishing());
  archive_.Answer();
  {
    const Outbox::Event event(&outbox_);
    writer_.Change([](proto::Journal* j) { j->set_finished(true); }, [] {});
  }
  EXPECT_TRUE(writer_.finishing());
  EXPECT_EQ(writer_.begun(), clock_.Now());
  archive_.Answer();
  EXPECT_FALSE(writer_.finishing());
}

}  // namespace
}  // namespace holdfast

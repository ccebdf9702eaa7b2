// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/history_writer.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The history is a number of changes.
class HistoryWriterTest : public ::testing::Test {
 protected:
  HistoryWriterTest() { archive_.quick = false; }

  void Write() {
    const Outbox::Event event(&outbox_);
    writer_.Write();
  }
  void Tick(absl::Duration after) {
    clock_.Advance(after);
    const Outbox::Event event(&outbox_);
    writer_.Tick();
  }
  // The writes that the disk has not answered.
  std::vector<uint64_t> Given() const {
    std::vector<uint64_t> given;
    for (const auto& asked : archive_.histories) {
      given.push_back(asked.request.stride());
    }
    return given;
  }

  FakeClock clock_;
  PuppetArchive archive_;
  Outbox outbox_;
  uint64_t changes_ = 0;
  HistoryWriter writer_{&clock_, &archive_, &outbox_,
                        [this] { return changes_; },
                        [this] {
                          proto::History history;
                          history.set_stride(changes_);
                          return history;
                        }};
};

TEST_F(HistoryWriterTest, WritesWhatHasChanged) {
  Write();
  EXPECT_THAT(Given(), IsEmpty());
  changes_ = 3;
  Write();
  EXPECT_THAT(Given(), ElementsAre(3));
  archive_.AnswerHistory();
  Write();
  EXPECT_THAT(Given(), IsEmpty());
  EXPECT_EQ(archive_.history.stride(), 3u);
}

TEST_F(HistoryWriterTest, EveryTenSeconds) {
  changes_ = 1;
  Tick(absl::Seconds(9));
  EXPECT_THAT(Given(), IsEmpty());
  Tick(absl::Seconds(1));
  EXPECT_THAT(Given(), ElementsAre(1));
  changes_ = 2;
  Tick(absl::Seconds(20));
  EXPECT_THAT(Given(), ElementsAre(1)) << "the disk is busy";
  archive_.AnswerHistory();
  Tick(absl::ZeroDuration());
  EXPECT_THAT(Given(), ElementsAre(2));
}

// The end of a job does not wait for an earlier write.
TEST_F(HistoryWriterTest, AMomentThatMattersIsNotPutOff) {
  changes_ = 1;
  Write();
  changes_ = 2;
  Write();
  EXPECT_THAT(Given(), ElementsAre(1, 2));
}

TEST_F(HistoryWriterTest, WhatFailedIsWrittenAgain) {
  changes_ = 1;
  Write();
  archive_.AnswerHistory(absl::ResourceExhaustedError("disk full"));
  Tick(absl::Seconds(5));
  EXPECT_THAT(Given(), IsEmpty());
  Tick(absl::Seconds(5));
  EXPECT_THAT(Given(), ElementsAre(1));
  archive_.AnswerHistory();
  Tick(absl::Seconds(10));
  EXPECT_THAT(Given(), IsEmpty());
}

TEST_F(HistoryWriterTest, NothingWithoutADirectory) {
  HistoryWriter nowhere(
      &clock_, nullptr, &outbox_, [] { return uint64_t{7}; },
      [] { return proto::History(); });
  const Outbox::Event event(&outbox_);
  nowhere.Write();
  nowhere.Tick();
}

}  // namespace
}  // namespace holdfast

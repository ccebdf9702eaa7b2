// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/outbox.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OutboxTest : public ::testing::Test {
 protected:
  void Say(const std::string& what) {
    outbox_.Send([this, what] { said_.push_back(what); });
  }

  std::vector<std::string> said_;
  Outbox outbox_{[this] { ++settled_; }};
  int settled_ = 0;
};

TEST_F(OutboxTest, NothingGoesOutBeforeTheEventIsOver) {
  {
    const Outbox::Event event(&outbox_);
    Say("a");
    outbox_.Answer(Reply<int>([&](absl::StatusOr<int> n) {
                     said_.push_back(std::to_string(*n));
                   }),
                   7);
    Say("b");
    EXPECT_THAT(said_, IsEmpty());
    EXPECT_EQ(settled_, 0);
  }
  EXPECT_THAT(said_, ElementsAre("a", "7", "b"));
  EXPECT_EQ(settled_, 1);
}

TEST_F(OutboxTest, WhatComesBackIsAnEventBehindWhatIsLeft) {
  {
    const Outbox::Event event(&outbox_);
    outbox_.Send([this] {
      said_.push_back("a");
      const Outbox::Event answered(&outbox_);
      Say("answer to a");
      Say("more");
    });
    Say("b");
  }
  EXPECT_THAT(said_, ElementsAre("a", "b", "answer to a", "more"));
  EXPECT_EQ(settled_, 2);
}

TEST_F(OutboxTest, WhatSettlesAnEventGoesOutWithIt) {
  Outbox outbox([&] { outbox.Send([&] { said_.push_back("settled"); }); });
  {
    const Outbox::Event event(&outbox);
    outbox.Send([&] { said_.push_back("a"); });
  }
  EXPECT_THAT(said_, ElementsAre("a", "settled"));
}

TEST_F(OutboxTest, AReplyIsAnEvent) {
  Reply<int> reply = outbox_.AsEvent<int>([this](absl::StatusOr<int> n) {
    Say(std::to_string(*n));
    EXPECT_THAT(said_, IsEmpty());
  });
  reply(3);
  EXPECT_THAT(said_, ElementsAre("3"));
  EXPECT_EQ(settled_, 1);
}

}  // namespace
}  // namespace holdfast

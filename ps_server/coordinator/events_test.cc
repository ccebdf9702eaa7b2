// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/events.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

proto::Event MakeEvent(const std::string& text) {
  proto::Event event;
  event.set_kind(proto::Event::JOINED);
  event.set_text(text);
  return event;
}

// Numbers and texts, like "1:joined".
template <typename Events>
std::vector<std::string> Texts(const Events& events) {
  std::vector<std::string> texts;
  for (const proto::Event& event : events) {
    texts.push_back(absl::StrCat(event.number(), ":", event.text()));
  }
  return texts;
}

TEST(EventLogTest, NumbersRiseByOne) {
  EventLog log;
  EXPECT_EQ(log.last_number(), 0u);
  EXPECT_THAT(log.After(0).events(), IsEmpty());
  log.Add(MakeEvent("a"));
  log.Add(MakeEvent("b"));
  log.Add(MakeEvent("c"));
  EXPECT_EQ(log.last_number(), 3u);
  EXPECT_THAT(Texts(log.After(0).events()), ElementsAre("1:a", "2:b", "3:c"));
  EXPECT_THAT(Texts(log.After(2).events()), ElementsAre("3:c"));
  EXPECT_THAT(log.After(3).events(), IsEmpty());
  EXPECT_THAT(log.After(1000).events(), IsEmpty()) << "of another life";
}

TEST(EventLogTest, KeepsTheNewest) {
  EventLog log;
  for (uint64_t i = 1; i <= EventLog::kMostEvents + 5; ++i) {
    log.Add(MakeEvent("e"));
  }
  ASSERT_EQ(log.events().size(), EventLog::kMostEvents);
  EXPECT_EQ(log.events().front().number(), 6u);
  EXPECT_EQ(log.After(0).events_size(), 1000);
  EXPECT_EQ(log.After(3).events_size(), 1000) << "4 and 5 are gone";
  EXPECT_EQ(log.After(1000).events_size(), 5);
}

TEST(EventLogTest, GoesOnWhereTheFileEnds) {
  proto::History history;
  {
    EventLog log;
    log.Add(MakeEvent("a"));
    log.Add(MakeEvent("b"));
    log.AddTo(&history);
  }
  EventLog log;
  log.TakeUp(history);
  log.Add(MakeEvent("c"));
  EXPECT_THAT(Texts(log.events()), ElementsAre("1:a", "2:b", "3:c"));
}

TEST(EventLogTest, AFileWithGapsLeavesNone) {
  proto::History history;
  for (const uint64_t number : {3, 4, 7, 6, 8}) {
    history.add_events()->set_number(number);
  }
  EventLog log;
  log.TakeUp(history);
  log.Add(MakeEvent("next"));
  EXPECT_THAT(Texts(log.events()), ElementsAre("7:", "8:", "9:next"));
  EXPECT_THAT(Texts(log.After(7).events()), ElementsAre("8:", "9:next"));
}

}  // namespace
}  // namespace holdfast

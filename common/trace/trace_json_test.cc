// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/trace/testing/trace_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TraceSpan SpanOf(const std::string& name, int64_t begin, int64_t end) {
  return {TraceKind::kRpc,
          name,
          absl::UnixEpoch() + absl::Microseconds(begin),
          absl::UnixEpoch() + absl::Microseconds(end),
          {{"sequence", 1}},
          ""};
}

TEST(TraceJsonTest, ProcessesHaveRowsOfTheirOwn) {
  const TraceSpan push = SpanOf("Push", 10, 20);
  const TraceSpan second = SpanOf("Push", 15, 25);
  const TraceSpan served = SpanOf("Push", 12, 18);
  const auto kOverlapping = TraceTrack::Kind::kOverlapping;
  const std::vector<TraceProcess> processes = {
      {1, "a \"worker\"", {{"calls", kOverlapping, {&push, &second}}}},
      {2,
       "a ps",
       {{"empty", kOverlapping, {}}, {"pushes", kOverlapping, {&served}}}}};
  const std::string json =
      ToChromeTrace(processes, {{"Push", {0, 0, 0}, {1, 1, 0}}}, "\"a\":3");
  const ReadTrace trace(json);
  std::vector<std::string> events;
  for (const ReadTrace::Event& event : trace.events) {
    events.push_back(absl::StrCat(event.process, ": ", event.track, ": ",
                                  event.begin, " to ", event.end));
  }
  EXPECT_THAT(events, ElementsAre("a \"worker\": calls: 10 to 20",
                                  "a \"worker\": calls: 15 to 25",
                                  "a ps: pushes: 12 to 18"));
  EXPECT_NE(trace.events[0].thread, trace.events[1].thread);
  EXPECT_EQ(trace.data.at("a"), 3);
  // From one span to the other, at their beginnings.
  EXPECT_THAT(json, HasSubstr(R"({"ph":"s","name":"Push","cat":"flow","id":1,)"
                              R"("ts":10.000,"pid":1,"tid":1})"));
  EXPECT_THAT(json, HasSubstr(R"({"ph":"f","name":"Push","cat":"flow","id":1,)"
                              R"("ts":12.000,"pid":2,"tid":1,"bp":"e"})"));
}

TEST(TraceJsonTest, OneWithoutProcessesIsValid) {
  const ReadTrace trace(ToChromeTrace({}, {}, ""));
  EXPECT_TRUE(trace.events.empty());
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_file.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/trace/testing/trace_testing.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A worker whose clock is 1 ms behind that of ps 0, which pushes and is
// committed at ps 1, whose clock is 2 ms ahead.
FetchedTrace Example() {
  FetchedTrace fetched;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(state: COMPLETE trace: 7 first_step: 3 end_step: 5 global_step: 5
         begin_ns: 10000000 end_ns: 30000000
         tasks { task { job: 'worker' } process: 'host:9' pieces: 1 spans: 2
                 clock_offset_ns: 1000000 clock_error_ns: 50000
                 tracks { name: 'training' }
                 tracks { name: 'tensors: ps 1' overlapping: true } }
         tasks { task { job: 'ps' index: 1 } pieces: 1 spans: 2
                 clock_offset_ns: -2000000 clock_error_ns: 70000
                 tracks { name: 'pushes' overlapping: true }
                 tracks { name: 'shard: commit' overlapping: true } }
         tasks { task { job: 'ps' } pieces: 1 spans: 1
                 tracks { name: 'coordinator: commit' } })",
      &fetched.trace));
  const std::vector<std::string> spans = {
      R"(spans { kind: MODEL name: 'compute' begin_ns: 10000000
                          duration_ns: 4000000
                          args { name: 'step' value: 3 } }
         spans { kind: RPC track: 1 name: 'Push' begin_ns: 13000000
                 duration_ns: 2000000 args { name: 'step' value: 3 }
                 args { name: 'sequence' value: 4 } })",
      R"(spans { kind: RPC name: 'Push' begin_ns: 16500000 duration_ns: 1000000
                 args { name: 'sequence' value: 4 }
                 args { name: 'worker' value: 0 } }
         spans { kind: RPC track: 1 name: 'Commit' begin_ns: 20000000
                 duration_ns: 1000000 args { name: 'step' value: 3 } })",
      R"(spans { kind: STEP name: 'step 3' begin_ns: 17000000
                 duration_ns: 3000000 args { name: 'step' value: 3 } })"};
  for (const std::string& text : spans) {
    proto::TraceResponse piece;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &piece));
    fetched.spans.push_back(piece.spans());
  }
  return fetched;
}

TEST(TraceFileTest, AllTasksAreOnTheClockOfPs0) {
  const std::string text = TraceFileText(Example());
  const ReadTrace trace(text);
  std::vector<std::string> events;
  for (const ReadTrace::Event& event : trace.events) {
    events.push_back(absl::StrCat(event.process, " ", event.track, ": ",
                                  event.name, " ", event.begin, " to ",
                                  event.end));
  }
  EXPECT_THAT(
      events,
      ElementsAre(
          "/job:ps/task:0 coordinator: commit: step 3 17000 to 20000",
          "/job:ps/task:1 pushes: Push 14500 to 15500",
          "/job:ps/task:1 shard: commit: Commit 18000 to 19000",
          "/job:worker/task:0 (host:9) training: compute 11000 to 15000",
          "/job:worker/task:0 (host:9) tensors: ps 1: Push 14000 to 16000"));
  EXPECT_EQ(trace.data.at("first"), 3);
  EXPECT_EQ(trace.data.at("end"), 5);
  EXPECT_EQ(trace.data.at("clock_error_us"), 70);
  EXPECT_THAT(text, HasSubstr("{\"task\":\"/job:worker/task:0\",\"spans\":2,"
                              "\"clock_offset_us\":1000.000,"
                              "\"clock_error_us\":50.000,\"missing\":\"\"}"));
  // Arrows lead from the push to its execution, and from the commit to the
  // shard's.
  EXPECT_THAT(text,
              AllOf(HasSubstr(R"("ph":"s","name":"Push","cat":"flow","id":1,)"
                              R"("ts":14000.000,"pid":3,"tid":2})"),
                    HasSubstr(R"("ph":"f","name":"Push","cat":"flow","id":1,)"
                              R"("ts":14500.000,"pid":2,"tid":1,"bp":"e"})"),
                    HasSubstr(R"("ph":"s","name":"Commit","cat":"flow","id":2,)"
                              R"("ts":17000.000,"pid":1,"tid":1})"),
                    HasSubstr(R"("ph":"f","name":"Commit","cat":"flow","id":2,)"
                              R"("ts":18000.000,"pid":2,"tid":2,"bp":"e"})")));
}

TEST(TraceFileTest, PeopleAreToldWhatItShows) {
  EXPECT_EQ(TraceSummary(Example()),
            "steps 3 to 4, in 20ms\n"
            "  /job:ps/task:0              1 spans\n"
            "  /job:ps/task:1              2 spans, times within 70 us of "
            "those of ps 0\n"
            "  /job:worker/task:0          2 spans, times within 50 us of "
            "those of ps 0\n");
  EXPECT_THAT(MissingFromTrace(Example()), IsEmpty());
}

TEST(TraceFileTest, WhatIsMissingIsNamed) {
  FetchedTrace fetched = Example();
  fetched.trace.set_cut_short("the job has ended (FAILED)");
  fetched.trace.set_global_step(4);
  fetched.trace.mutable_tasks(0)->set_missing("it was lost");
  fetched.trace.mutable_tasks(1)->set_complete_from_ns(17000000);
  EXPECT_THAT(TraceSummary(fetched),
              HasSubstr("steps 3 to 4, of which 1 were finished, in 20ms"));
  EXPECT_THAT(MissingFromTrace(fetched),
              ElementsAre("its last steps: the job has ended (FAILED)",
                          "/job:ps/task:1: spans that ended in the first 0.005 "
                          "s, because a task keeps only 20000 spans",
                          "/job:worker/task:0: it was lost"));
  fetched.trace.set_end_step(3);
  EXPECT_THAT(TraceSummary(fetched), HasSubstr("no step has begun"));
}

// Numbers from tasks are not trusted.
TEST(TraceFileTest, StrangeNumbersDoNoHarm) {
  FetchedTrace fetched = Example();
  fetched.trace.mutable_tasks(0)->set_clock_offset_ns(-4000000000000000000);
  fetched.spans[0].Mutable(1)->set_track(1000);
  const std::string text = TraceFileText(fetched);
  EXPECT_EQ(ReadTrace(text).events.size(), 4u);
  EXPECT_THAT(text, Not(HasSubstr("\"ts\":-")));
}

}  // namespace
}  // namespace holdfast

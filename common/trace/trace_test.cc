// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/trace/testing/trace_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch() + absl::Seconds(10);
};

class TraceTest : public ::testing::Test {
 protected:
  // Microseconds after the epoch.
  static absl::Time At(int64_t us) {
    return absl::UnixEpoch() + absl::Microseconds(us);
  }
  void Add(Tracer::Track track, TraceKind kind, const std::string& name,
           int64_t begin, int64_t end) {
    tracer.Add(track, {kind, name, At(begin), At(end), {}, ""});
  }

  FakeClock clock;
  Tracer tracer{{.max_spans = 20,
                 .clock = &clock,
                 .process = 3,
                 .process_name = "/job:worker/task:3"}};
};

TEST_F(TraceTest, AnEmptyTraceIsOne) {
  const ReadTrace trace(tracer.ToJson());
  EXPECT_THAT(trace.events, IsEmpty());
  EXPECT_EQ(trace.data.count("rpc_seconds"), 1);
  EXPECT_EQ(trace.data.count("communication_hidden"), 0);
}

TEST_F(TraceTest, ASpanHasTimesTrackAndArguments) {
  const Tracer::Track track =
      tracer.AddTrack("calls", Tracer::TrackKind::kOverlapping);
  tracer.Add(track, {TraceKind::kRpc,
                     "Push",
                     At(7) + absl::Nanoseconds(5),
                     At(9),
                     {{"step", 4}, {"sent_bytes", 1 << 20}},
                     "a \"quoted\"\nline\\"});
  const std::vector<ReadTrace::Event> events =
      ReadTrace(tracer.ToJson()).events;
  ASSERT_EQ(events.size(), 1);
  const ReadTrace::Event& event = events[0];
  EXPECT_EQ(event.name, "Push");
  EXPECT_EQ(event.kind, "rpc");
  EXPECT_EQ(event.track, "calls");
  EXPECT_DOUBLE_EQ(event.begin, 7.005);
  EXPECT_DOUBLE_EQ(event.end, 9);
  EXPECT_THAT(event.args,
              ElementsAre(Pair("sent_bytes", 1 << 20), Pair("step", 4)));
  EXPECT_EQ(event.error, "a \"quoted\"\nline\\");
}

TEST_F(TraceTest, WhatAThreadDoesNestsOnItsTrack) {
  tracer.NameThread("trainer");
  {
    ScopedTrace step(&tracer, TraceKind::kStep, "step");
    step.Set("step", 12);
    clock.now += absl::Microseconds(1);
    {
      ScopedTrace forward(&tracer, TraceKind::kModel, "forward");
      ScopedTrace operation(&tracer, TraceKind::kCompute, "MatMul");
      clock.now += absl::Microseconds(3);
    }
    ScopedTrace wait(&tracer, TraceKind::kWait, "verdict");
    clock.now += absl::Microseconds(2);
  }
  std::thread([&] {
    ScopedTrace other(&tracer, TraceKind::kStep, "evaluation");
  }).join();
  const ReadTrace trace(tracer.ToJson());
  EXPECT_TRUE(trace.Nests());
  std::vector<std::string> told;
  for (const ReadTrace::Event& event : trace.events) {
    told.push_back(absl::StrCat(event.track, ": ", event.name, " ",
                                event.begin - 1e7, " ", event.end - 1e7));
  }
  EXPECT_THAT(told, ElementsAre("trainer: step 0 6", "trainer: forward 1 4",
                                "trainer: MatMul 1 4", "trainer: verdict 4 6",
                                HasSubstr(": evaluation 6 6")));
}

TEST_F(TraceTest, CallsThatOverlapGetTracksOfTheirOwn) {
  const Tracer::Track track =
      tracer.AddTrack("ps 0", Tracer::TrackKind::kOverlapping);
  Add(track, TraceKind::kRpc, "b", 2, 4);
  Add(track, TraceKind::kRpc, "a", 1, 5);
  Add(track, TraceKind::kRpc, "c", 5, 8);
  Add(track, TraceKind::kRpc, "d", 4, 6);
  const ReadTrace trace(tracer.ToJson());
  EXPECT_TRUE(trace.Nests());
  std::vector<std::pair<std::string, int>> lanes;
  for (const ReadTrace::Event& event : trace.events) {
    EXPECT_EQ(event.track, "ps 0");
    lanes.emplace_back(event.name, event.thread);
  }
  EXPECT_THAT(lanes, ElementsAre(Pair("a", 1), Pair("b", 2), Pair("d", 2),
                                 Pair("c", 1)));
}

// Times of a clock that is mapped to another may be slightly off.
TEST_F(TraceTest, SpansThatDoNotNestAreKeptApart) {
  const Tracer::Track track = tracer.AddTrack("x", Tracer::TrackKind::kNested);
  Add(track, TraceKind::kCompute, "a", 1, 5);
  Add(track, TraceKind::kCompute, "b", 3, 7);
  Add(track, TraceKind::kCompute, "backward", 9, 8);
  const ReadTrace trace(tracer.ToJson());
  const std::vector<ReadTrace::Event>& events = trace.events;
  ASSERT_EQ(events.size(), 3);
  EXPECT_TRUE(trace.Nests());
  EXPECT_NE(events[0].thread, events[1].thread);
  EXPECT_EQ(events[2].begin, events[2].end);
}

TEST_F(TraceTest, WhenItIsFullTheRestIsCounted) {
  const Tracer::Track track = tracer.AddTrack("x", Tracer::TrackKind::kNested);
  for (int i = 0; i < 25; ++i) Add(track, TraceKind::kStep, "s", i, i + 1);
  EXPECT_EQ(tracer.dropped(), 5);
  const ReadTrace trace(tracer.ToJson());
  EXPECT_EQ(trace.events.size(), 20);
  EXPECT_EQ(trace.events.back().end, 20);
  EXPECT_EQ(trace.data.at("spans_dropped"), 5);
}

TEST_F(TraceTest, CommunicationHiddenBehindComputation) {
  const auto compute = tracer.AddTrack("c", Tracer::TrackKind::kNested);
  const auto calls = tracer.AddTrack("r", Tracer::TrackKind::kOverlapping);
  EXPECT_EQ(tracer.overlap().hidden(), std::nullopt);
  Add(calls, TraceKind::kRpc, "a", 10, 30);
  Add(calls, TraceKind::kRpc, "b", 20,
      40);  // 30 in total, and 34 with the next
  Add(calls, TraceKind::kRpc, "c", 50, 54);
  // If no backend runs, the model counts as computation: 10 to 20.
  Add(compute, TraceKind::kModel, "model", 0, 20);
  EXPECT_EQ(tracer.overlap().both, absl::Microseconds(10));
  // 15 to 25 and 38 to 52: 10 + 2 + 2.
  Add(compute, TraceKind::kCompute, "x", 15, 25);
  Add(compute, TraceKind::kCompute, "y", 17, 22);
  Add(compute, TraceKind::kCompute, "z", 38, 52);
  Add(compute, TraceKind::kWait, "w", 0, 100);
  const Tracer::Overlap overlap = tracer.overlap();
  EXPECT_EQ(overlap.compute, absl::Microseconds(24));
  EXPECT_EQ(overlap.rpc, absl::Microseconds(34));
  EXPECT_EQ(overlap.both, absl::Microseconds(14));
  EXPECT_NEAR(ReadTrace(tracer.ToJson()).data["communication_hidden"],
              14.0 / 34, 1e-4);
}

TEST_F(TraceTest, NothingIsRecordedWithoutATracer) {
  ScopedTrace span(nullptr, TraceKind::kStep, "step");
  span.Set("step", 1);
}

TEST_F(TraceTest, ThreadsMayAddAtTheSameTime) {
  Tracer many({});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&many, i] {
      many.NameThread(absl::StrCat("thread ", i));
      for (int j = 0; j < 1000; ++j) {
        ScopedTrace span(&many, TraceKind::kStep, "span");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ReadTrace trace(many.ToJson());
  EXPECT_TRUE(trace.Nests());
  EXPECT_EQ(trace.events.size(), 4000);
}

TEST(TraceFileTest, IsWrittenOnce) {
  const std::string path = ::testing::TempDir() + "/trace.json";
  auto file = TraceFile::Create(path, {.process_name = "w"});
  ASSERT_TRUE(file.ok()) << file.status();
  { ScopedTrace span((*file)->tracer(), TraceKind::kStep, "first"); }
  (*file)->Finish();
  { ScopedTrace span((*file)->tracer(), TraceKind::kStep, "second"); }
  file->reset();
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)),
                         std::istreambuf_iterator<char>());
  EXPECT_EQ(ReadTrace(text).events.size(), 1);
}

TEST(TraceFileTest, OneAtATimeWritesAFile) {
  const std::string path = ::testing::TempDir() + "/trace_of_one.json";
  auto first = TraceFile::Create(path, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(TraceFile::Create(path, {}).status().message(),
              HasSubstr("trace_of_one.json: another process is writing it"));
  first->reset();
  EXPECT_TRUE(TraceFile::Create(path, {}).ok());
}

TEST(TraceFileTest, AFileThatCannotBeWritten) {
  const auto file = TraceFile::Create("/no/such/folder/t.json", {});
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(file.status().message(), HasSubstr("/no/such/folder/t.json"));
}

class OnDemandTest : public TraceTest {
 protected:
  static std::vector<std::string> Names(const Tracer::Recorded& recorded,
                                        size_t track) {
    std::vector<std::string> names;
    for (const TraceSpan& span : recorded.tracks.at(track).spans) {
      names.push_back(span.name);
    }
    return names;
  }
  void AddOne(const std::string& name, int64_t begin, int64_t end) {
    tracer_.Add(track_, {TraceKind::kWait, name, At(begin), At(end), {}, ""});
  }
  Tracer::Recorded End(int64_t from, int64_t until) {
    return tracer_.End(At(from), At(until));
  }

  Tracer tracer_{{.max_spans = 3, .on_demand = true, .clock = &clock}};
  const Tracer::Track track_ =
      tracer_.AddTrack("training", Tracer::TrackKind::kNested);
};

TEST_F(OnDemandTest, RecordsBetweenBeginAndEnd) {
  EXPECT_FALSE(tracer_.recording());
  AddOne("before", 1, 2);
  tracer_.Begin();
  EXPECT_TRUE(tracer_.recording());
  AddOne("a", 3, 4);
  AddOne("b", 5, 6);
  const Tracer::Recorded recorded = End(0, 100);
  EXPECT_FALSE(tracer_.recording());
  AddOne("after", 7, 8);
  EXPECT_EQ(recorded.tracks.at(0).name, "training");
  EXPECT_THAT(Names(recorded, 0), ElementsAre("a", "b"));
  EXPECT_FALSE(recorded.complete_from.has_value());
  // The previous trace is discarded.
  tracer_.Begin();
  EXPECT_THAT(Names(End(0, 100), 0), IsEmpty());
}

TEST_F(OnDemandTest, OnlyWhatTouchesTheTimeThatIsAskedForIsTold) {
  tracer_.Begin();
  AddOne("over before", 1, 9);
  AddOne("within", 8, 10);
  AddOne("begins later", 21, 22);
  EXPECT_THAT(Names(End(10, 20), 0), ElementsAre("within"));
}

TEST_F(OnDemandTest, KeepsTheNewest) {
  tracer_.Begin();
  for (int i = 0; i < 5; ++i) {
    AddOne(absl::StrCat(i), 10 * i, 10 * i + 5);
  }
  EXPECT_EQ(tracer_.dropped(), 2);
  const Tracer::Recorded recorded = End(0, 100);
  EXPECT_THAT(Names(recorded, 0), ElementsAre("2", "3", "4"));
  EXPECT_EQ(recorded.complete_from, At(15));
  // Dropped spans do not matter if they ended before the requested time.
  tracer_.Begin();
  for (int i = 0; i < 5; ++i) {
    AddOne(absl::StrCat(i), 10 * i, 10 * i + 5);
  }
  EXPECT_FALSE(End(20, 100).complete_from.has_value());
}

TEST_F(OnDemandTest, AScopeThatBeganBeforeIsNotRecorded) {
  {
    const ScopedTrace scope(&tracer_, TraceKind::kStep, "step");
    tracer_.Begin();
  }
  {
    const ScopedTrace scope(&tracer_, TraceKind::kStep, "next");
    clock.now += absl::Microseconds(1);
  }
  const Tracer::Recorded recorded =
      tracer_.End(absl::InfinitePast(), absl::InfiniteFuture());
  ASSERT_EQ(recorded.tracks.size(), 2u);
  EXPECT_THAT(Names(recorded, 1), ElementsAre("next"));
}

}  // namespace
}  // namespace holdfast

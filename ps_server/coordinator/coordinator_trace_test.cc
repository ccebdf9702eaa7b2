// SPDX-License-Identifier: Apache-2.0

// Traces of the whole cluster: which steps are recorded, and what happens if
// tasks do not send what they have recorded.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/trace/trace_span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/trace.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using proto::TraceRequest;
using proto::TraceResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kTrace = 7;

class TraceTest : public CoordinatorTest {
 protected:
  Answer<TraceResponse> Do(TraceRequest::Action action, uint64_t trace = kTrace,
                           uint32_t steps = 2) {
    TraceRequest request;
    request.set_action(action);
    request.set_trace(trace);
    if (action == TraceRequest::BEGIN) request.set_steps(steps);
    return Ask(&Coordinator::Trace, request);
  }
  TraceResponse Look() { return *Do(TraceRequest::LOOK); }
  TraceResponse::State State() { return Look().state(); }

  // The task states in its renewal for which trace it records.
  Answer<proto::RenewLeaseResponse> Renewal(const TaskId& task,
                                            uint64_t recording,
                                            uint64_t wait_ms = 0) {
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_known_phase(state().phase());
    request.set_wait_ms(wait_ms);
    request.set_recording(recording);
    return Ask(&Coordinator::RenewLease, request);
  }
  void AllRecord(const std::vector<TaskId>& tasks) {
    coordinator_->OnOwnRecording(kTrace);
    for (const TaskId& task : tasks) Renewal(task, kTrace);
  }

  // One span for each of `tracks`, on track 0 where there is one.
  Answer<proto::ReportTraceResponse> Send(const TaskId& task, uint32_t piece,
                                          bool last, uint32_t tracks = 1,
                                          uint64_t trace = kTrace) {
    proto::ReportTraceRequest request;
    *request.mutable_sender() = SenderOf(task);
    request.set_trace(trace);
    proto::TracePart& part = *request.mutable_part();
    part.set_piece(piece);
    part.set_last(last);
    part.set_clock_offset_ns(5);
    part.set_clock_error_ns(6);
    for (uint32_t i = 0; i < tracks; ++i) part.add_tracks()->set_name("t");
    proto::TraceSpan& span = *part.add_spans();
    span.set_name(absl::StrCat(task.job, task.index, " piece ", piece));
    return Ask(&Coordinator::ReportTrace, request);
  }
  void SendOwn() { coordinator_->AddOwnTrace({}, std::nullopt); }

  std::vector<std::string> Missing() {
    std::vector<std::string> missing;
    const TraceResponse trace = Look();
    for (const proto::TraceTask& task : trace.tasks()) {
      if (task.missing().empty()) continue;
      missing.push_back(absl::StrCat(task.task().job(), task.task().index(),
                                     ": ", task.missing()));
    }
    return missing;
  }
  // Names of the spans of a task, with begin and end in seconds after `from`.
  std::vector<std::string> Spans(const TaskId& task, uint32_t piece = 0,
                                 std::optional<absl::Time> from = {}) {
    TraceRequest request;
    request.set_action(TraceRequest::FETCH);
    request.set_trace(kTrace);
    request.mutable_task()->set_job(task.job);
    request.mutable_task()->set_index(task.index);
    request.set_piece(piece);
    const auto answer = Ask(&Coordinator::Trace, request);
    std::vector<std::string> spans;
    if (!answer.status().ok()) return {answer.status().ToString()};
    for (const proto::TraceSpan& span : answer->spans()) {
      if (!from.has_value()) {
        spans.push_back(span.name());
        continue;
      }
      const absl::Time begin = absl::FromUnixNanos(span.begin_ns());
      spans.push_back(absl::StrCat(span.track(), " ", span.name(), ": ",
                                   absl::ToDoubleSeconds(begin - *from),
                                   " for ", span.duration_ns() / 1e9));
    }
    return spans;
  }
  void Step(uint64_t step) {
    Advance(absl::Seconds(1));
    Offer(Worker(0), step, 0, step + 1);
    Advance(absl::Seconds(1));
    Offer(Worker(1), step, 1, step + 1);
    Advance(absl::Milliseconds(500));
    AckCommits();
  }
};

TEST_F(TraceTest, RecordsTheStepsToCome) {
  StartTraining();
  const auto parked = Renewal(Worker(0), 0, /*wait_ms=*/3000);
  EXPECT_FALSE(parked.came());
  EXPECT_EQ(Do(TraceRequest::BEGIN)->state(), TraceResponse::ARMING);
  // A parked renewal is answered at once.
  ASSERT_TRUE(parked.came());
  EXPECT_EQ(parked->trace().trace(), kTrace);
  EXPECT_FALSE(parked->trace().over());
  // Step 0 is open, and not all tasks have recorded all of it.
  AllRecord({Ps(1), Worker(0)});
  EXPECT_THAT(Look().waiting_for(), HasSubstr("/job:worker/task:1"));
  Step(0);
  EXPECT_EQ(State(), TraceResponse::ARMING);
  Renewal(Worker(1), kTrace);
  EXPECT_EQ(Look().waiting_for(), "the next step to begin");
  const auto recording = Renewal(Worker(1), kTrace, /*wait_ms=*/30000);
  EXPECT_FALSE(recording.came()) << "it does what is wanted";
  Step(1);
  const absl::Time begin = clock_.Now() - absl::Milliseconds(500);
  TraceResponse trace = Look();
  EXPECT_EQ(trace.state(), TraceResponse::RECORDING);
  EXPECT_EQ(trace.first_step(), 2u);
  EXPECT_EQ(trace.end_step(), 4u);
  EXPECT_EQ(trace.begin_ns(), absl::ToUnixNanos(begin));
  Step(2);
  EXPECT_EQ(State(), TraceResponse::RECORDING);
  Step(3);
  EXPECT_EQ(State(), TraceResponse::COLLECTING);
  ASSERT_TRUE(recording.came());
  EXPECT_TRUE(recording->trace().over());
  EXPECT_EQ(recording->trace().begin_ns(), absl::ToUnixNanos(begin));
  EXPECT_EQ(recording->trace().end_ns(), absl::ToUnixNanos(clock_.Now()));

  SendOwn();
  EXPECT_TRUE(Send(Ps(1), 0, true).status().ok());
  EXPECT_TRUE(Send(Worker(0), 0, true).status().ok());
  EXPECT_TRUE(Send(Worker(1), 0, false).status().ok());
  EXPECT_THAT(Look().waiting_for(), HasSubstr("/job:worker/task:1"));
  EXPECT_TRUE(Send(Worker(1), 1, true, 0).status().ok());
  EXPECT_EQ(State(), TraceResponse::COMPLETE);
  EXPECT_THAT(Missing(), IsEmpty());
  EXPECT_EQ(Look().cut_short(), "");
  EXPECT_THAT(Spans(Worker(1)), ElementsAre("worker1 piece 0"));
  EXPECT_THAT(Spans(Worker(1), 1), ElementsAre("worker1 piece 1"));
  EXPECT_THAT(Spans(Worker(1), 2), ElementsAre(HasSubstr("NOT_FOUND")));
  // The coordinator's own: collecting, verdict, commit. Step 1 was committed,
  // and step 4 is open, when the trace began and ended.
  EXPECT_THAT(Spans(Ps(0), 0, begin),
              ElementsAre("0 step 1: -2.5 for 2.5", "0 step 2: 0 for 2.5",
                          "0 step 3: 2.5 for 2.5", "1 step 1: 0 for 0",
                          "1 step 2: 2.5 for 0", "1 step 3: 5 for 0",
                          "2 step 1: 0 for 0.5", "2 step 2: 2.5 for 0.5",
                          "2 step 3: 5 for 0.5"));

  EXPECT_EQ(Do(TraceRequest::DROP)->state(), TraceResponse::NONE);
  EXPECT_TRUE(Fails(Do(TraceRequest::LOOK).status(), kNotFound, {}));
  EXPECT_TRUE(Do(TraceRequest::BEGIN, 8).status().ok());
}

TEST_F(TraceTest, ThereIsOneAtATime) {
  StartTraining();
  EXPECT_EQ(Do(TraceRequest::LOOK, 0)->state(), TraceResponse::NONE);
  Do(TraceRequest::BEGIN);
  EXPECT_EQ(Do(TraceRequest::LOOK, 0)->trace(), kTrace);
  EXPECT_TRUE(Fails(Do(TraceRequest::BEGIN, 8).status(), kExists,
                    {"another trace, of 2 steps, is being recorded"}));
  // A repeated request is not another trace.
  EXPECT_EQ(Do(TraceRequest::BEGIN)->trace(), kTrace);
  EXPECT_TRUE(Fails(Do(TraceRequest::LOOK, 8).status(), kNotFound, {}));
}

TEST_F(TraceTest, OneThatNobodyAsksForIsDropped) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  for (int i = 0; i < 2; ++i) {
    Pass(absl::Seconds(9), AllTasks());
    EXPECT_EQ(Do(TraceRequest::LOOK, 0)->trace(), kTrace);
    if (i == 0) Look();
  }
  const auto parked = Renewal(Worker(0), kTrace, /*wait_ms=*/3000);
  EXPECT_FALSE(parked.came());
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(Do(TraceRequest::LOOK, 0)->state(), TraceResponse::NONE);
  // Tasks are told to stop.
  ASSERT_TRUE(parked.came());
  EXPECT_FALSE(parked->has_trace());
  EXPECT_FALSE(Renewal(Worker(0), kTrace, /*wait_ms=*/3000)->has_trace());
  EXPECT_TRUE(Fails(Send(Worker(0), 0, true).status(), kNotFound, {}));
}

TEST_F(TraceTest, TasksThatDoNotRecordAreNamed) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  AllRecord({Worker(1)});
  // A program that knows nothing of traces. ps 1 says nothing at all.
  Renew(Worker(0));
  Step(0);
  EXPECT_EQ(State(), TraceResponse::ARMING);
  Pass(kLease / 2, {Worker(0), Worker(1)});
  Step(1);
  EXPECT_EQ(Look().first_step(), 2u);
  Step(2);
  Step(3);
  SendOwn();
  Send(Worker(1), 0, true);
  EXPECT_EQ(State(), TraceResponse::COMPLETE);
  EXPECT_THAT(Missing(),
              ElementsAre("worker0: its program cannot record cluster traces",
                          "ps1: it did not answer in time"));
}

TEST_F(TraceTest, ATaskThatIsLostIsNotWaitedFor) {
  StartTraining(WithMode(1, 2));
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  Offer(Worker(0), 0, 0, 1);
  AckCommits();
  for (uint64_t step = 1; step < 3; ++step) {
    Offer(Worker(0), step, 0, step + 1);
    AckCommits();
  }
  EXPECT_EQ(State(), TraceResponse::COLLECTING);
  SendOwn();
  Send(Worker(0), 0, true);
  Send(Ps(1), 0, true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(State(), TraceResponse::COLLECTING);
    Pass(absl::Seconds(4), AllBut(Worker(1)));
  }
  EXPECT_EQ(State(), TraceResponse::COMPLETE);
  EXPECT_THAT(Missing(),
              ElementsAre("worker1: it was lost before it had sent its spans"));
  // It comes back as another process.
  Join(Worker(1), 2);
  EXPECT_THAT(Missing(), ElementsAre("worker1: it ended before it had sent its "
                                     "spans, and was started again"));
}

TEST_F(TraceTest, ATaskThatNeverSendsHasItsTime) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  for (uint64_t step = 0; step < 3; ++step) Step(step);
  SendOwn();
  Send(Worker(0), 0, true);
  Send(Ps(1), 0, true);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(State(), TraceResponse::COLLECTING);
    Pass(absl::Seconds(4), AllTasks());
  }
  EXPECT_EQ(State(), TraceResponse::COMPLETE);
  EXPECT_THAT(Missing(),
              ElementsAre("worker1: it did not send its spans in time"));
}

TEST_F(TraceTest, AnOperatorMayEndItEarlier) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  Step(0);
  Step(1);
  EXPECT_EQ(Do(TraceRequest::FINISH)->state(), TraceResponse::COLLECTING);
  EXPECT_EQ(Look().cut_short(), "the operator stopped waiting for it");
  EXPECT_EQ(Look().global_step(), 2u);
  // Again, it changes nothing.
  EXPECT_EQ(Do(TraceRequest::FINISH)->state(), TraceResponse::COLLECTING);
}

TEST_F(TraceTest, TheEndOfTheJobEndsIt) {
  StartTraining(MakeDeclaration(3));
  Do(TraceRequest::BEGIN, kTrace, 10);
  AllRecord(AllTasks());
  Step(0);
  EXPECT_EQ(Look().end_step(), 3u) << "there are no more";
  Step(1);
  Step(2);
  EXPECT_EQ(state().phase(), proto::DONE);
  EXPECT_EQ(State(), TraceResponse::COLLECTING);
  EXPECT_EQ(Look().cut_short(), "");
  EXPECT_TRUE(coordinator_->trace_held());
  EXPECT_TRUE(Renewal(Worker(0), kTrace)->trace().over());
  Do(TraceRequest::DROP);
  EXPECT_FALSE(coordinator_->trace_held());
  EXPECT_TRUE(Fails(Do(TraceRequest::BEGIN).status(), kNotReady,
                    {"the job has ended (DONE)"}));
}

TEST_F(TraceTest, AFailureCutsItShort) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  coordinator_->Fail("a disk is on fire");
  EXPECT_EQ(State(), TraceResponse::COMPLETE) << "nobody had begun to record";
  EXPECT_EQ(Look().cut_short(), "the job has ended (FAILED)");
}

TEST_F(TraceTest, ARollBackCutsItShort) {
  MakeWithArchive();
  StartTraining();
  Do(TraceRequest::BEGIN, kTrace, 5);
  AllRecord(AllTasks());
  Step(0);
  Step(1);
  EXPECT_EQ(State(), TraceResponse::RECORDING);
  Leave(Ps(1));
  Join(Ps(1), /*nonce=*/2);  // without its state
  EXPECT_EQ(State(), TraceResponse::COLLECTING);
  EXPECT_THAT(Look().cut_short(),
              HasSubstr("goes back to its last checkpoint"));
  SendOwn();
  Send(Worker(0), 0, true);
  Send(Worker(1), 0, true);
  EXPECT_EQ(State(), TraceResponse::COMPLETE);
  EXPECT_THAT(Missing(),
              ElementsAre("ps1: it ended before it had sent its spans, and was "
                          "started again"));
}

TEST_F(TraceTest, TicketsOfAnAsynchronousJob) {
  Make(1, 1);
  StartTraining(Asynchronous(10));
  Take(Worker(0), 1);
  const absl::Time begin = clock_.Now();
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  const TraceResponse trace = Look();
  EXPECT_EQ(trace.state(), TraceResponse::RECORDING);
  EXPECT_TRUE(trace.asynchronous());
  EXPECT_EQ(trace.first_step(), 0u);
  EXPECT_EQ(trace.end_step(), 2u);
  Advance(absl::Seconds(2));
  Book(Worker(0), 1);
  Take(Worker(0), 2);
  Advance(absl::Seconds(1));
  Book(Worker(0), 2);
  EXPECT_EQ(State(), TraceResponse::COLLECTING);
  SendOwn();
  EXPECT_THAT(Spans(Ps(0), 0, begin),
              ElementsAre("0 ticket 0: 0 for 2", "0 ticket 1: 2 for 1"));
}

TEST_F(TraceTest, WhatATaskSendsIsTested) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  EXPECT_TRUE(Fails(Send(Worker(0), 0, true).status(), kNotFound, {}))
      << "it is still recorded";
  Do(TraceRequest::FINISH);
  EXPECT_TRUE(Fails(Send(Worker(0), 1, true).status(), kInvalid,
                    {"piece 1", "expected piece 0"}));
  EXPECT_TRUE(Fails(Send(Worker(0), 0, false, /*tracks=*/0).status(), kInvalid,
                    {"track 0 of 0"}));
  EXPECT_TRUE(
      Fails(Send(Worker(0), 0, true, 1, /*trace=*/9).status(), kNotFound, {}));
  EXPECT_TRUE(Send(Worker(0), 0, true).status().ok());
  EXPECT_TRUE(Send(Worker(0), 0, true).status().ok()) << "again";
  EXPECT_TRUE(Fails(Send(Worker(0), 1, true).status(), kInvalid, {}));
  proto::ReportTraceRequest stranger;
  *stranger.mutable_sender() = SenderOf(Worker(5));
  EXPECT_EQ(Ask(&Coordinator::ReportTrace, stranger)->time_ns(),
            absl::ToUnixNanos(clock_.Now()))
      << "everybody may ask the time";
  stranger.mutable_part();
  stranger.set_trace(kTrace);
  EXPECT_TRUE(
      Fails(Ask(&Coordinator::ReportTrace, stranger).status(), kNotFound, {}));
}

TEST_F(TraceTest, WhatItHoldsIsBounded) {
  StartTraining();
  Do(TraceRequest::BEGIN);
  AllRecord(AllTasks());
  Do(TraceRequest::FINISH);
  proto::ReportTraceRequest request;
  *request.mutable_sender() = SenderOf(Worker(0));
  request.set_trace(kTrace);
  request.mutable_part()->add_tracks()->set_name("t");
  for (int i = 0; i < 1024; ++i) {
    proto::TraceSpan& span = *request.mutable_part()->add_spans();
    span.set_name(std::string(64, 'n'));
    span.set_error(std::string(256, 'e'));
    for (int j = 0; j < 8; ++j) {
      span.add_args()->set_name(std::string(32, 'a'));
    }
  }
  // Each piece has some 680 KB, so that 64 MiB hold about 98.
  int kept = 0;
  absl::Status status;
  for (const TaskId& task : {Worker(0), Worker(1), Ps(1)}) {
    *request.mutable_sender() = SenderOf(task);
    for (int piece = 0; piece < 63 && status.ok(); ++piece) {
      request.mutable_part()->set_piece(piece);
      status = Ask(&Coordinator::ReportTrace, request).status();
      kept += status.ok();
    }
  }
  EXPECT_TRUE(Fails(status, kExhausted, {"67108864 bytes"}));
  EXPECT_GT(kept, 80);
  EXPECT_LT(kept, 110);
}

}  // namespace
}  // namespace holdfast

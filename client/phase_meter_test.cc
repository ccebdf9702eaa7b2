// SPDX-License-Identifier: Apache-2.0
#include "client/phase_meter.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

using Phase = PhaseMeter::Phase;

class HandClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

class PhaseMeterTest : public testing::Test {
 protected:
  void Spend(Phase phase, double seconds) {
    const PhaseMeter::Scope scope(&meter_, phase);
    Pass(seconds);
  }
  void WaitForInput(double seconds) { Spend(Phase::kInput, seconds); }
  void Pass(double seconds) { clock_.now += absl::Seconds(seconds); }
  void ExpectInputWait(double recent, double overall) {
    const auto wait = meter_.Report().input_wait;
    ASSERT_TRUE(wait.has_value());
    EXPECT_DOUBLE_EQ(wait->recent(), recent);
    EXPECT_DOUBLE_EQ(wait->overall(), overall);
  }

  HandClock clock_;
  PhaseMeter meter_{&clock_};
};

TEST_F(PhaseMeterTest, NothingToTellBeforeTraining) {
  Pass(10);
  Spend(Phase::kCompute, 1);
  const TaskReport report = meter_.Report();
  EXPECT_FALSE(report.input_wait.has_value());
  EXPECT_FALSE(report.worker.has_value());
  EXPECT_FALSE(meter_.Look().has_value());
}

TEST_F(PhaseMeterTest, TellsSkippedRows) {
  meter_.SetSkippedRows(3);
  meter_.BeginTraining();
  EXPECT_EQ(meter_.Look()->skipped_rows(), 3);
  EXPECT_EQ(meter_.Report().worker->skipped_rows(), 3);
}

TEST_F(PhaseMeterTest, SecondsByPhase) {
  meter_.BeginTraining();
  Spend(Phase::kInput, 1);
  Spend(Phase::kVersion, 2);
  Spend(Phase::kCompute, 3);
  Spend(Phase::kPush, 4);
  Spend(Phase::kVerdict, 5);
  Spend(Phase::kTicket, 6);
  Pass(7);  // none of these
  Spend(Phase::kCompute, 8);
  meter_.FinishStep();
  meter_.FinishStep();
  const auto report = meter_.Look();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->phases().input(), 1);
  EXPECT_EQ(report->phases().version(), 2);
  EXPECT_EQ(report->phases().compute(), 3 + 8);
  EXPECT_EQ(report->phases().push(), 4);
  EXPECT_EQ(report->phases().verdict(), 5);
  EXPECT_EQ(report->phases().ticket(), 6);
  EXPECT_EQ(report->steps(), 2);
  EXPECT_EQ(report->waiting_for(), "");
  EXPECT_EQ(report->waiting_seconds(), 0);
}

TEST_F(PhaseMeterTest, APhaseWithinAnotherCountsOnce) {
  meter_.BeginTraining();
  {
    const PhaseMeter::Scope compute(&meter_, Phase::kCompute);
    Pass(1);
    Spend(Phase::kInput, 10);
    Pass(2);
  }
  EXPECT_EQ(meter_.Look()->phases().compute(), 3);
  EXPECT_EQ(meter_.Look()->phases().input(), 10);
}

TEST_F(PhaseMeterTest, WhatItWaitsForAndHowLong) {
  meter_.BeginTraining();
  {
    const PhaseMeter::Scope wait(&meter_, Phase::kVerdict);
    Pass(2.5);
    EXPECT_EQ(meter_.Look()->waiting_for(), "verdict");
    EXPECT_EQ(meter_.Look()->waiting_seconds(), 2.5);
    EXPECT_EQ(meter_.Look()->phases().verdict(), 2.5);
  }
  {
    const PhaseMeter::Scope compute(&meter_, Phase::kCompute);
    Pass(1);
    EXPECT_EQ(meter_.Look()->waiting_for(), "");
  }
  const PhaseMeter::Scope wait(&meter_, Phase::kTicket);
  Pass(1);
  EXPECT_EQ(meter_.Look()->waiting_for(), "ticket");
  meter_.EndTraining();
  Pass(1);
  EXPECT_EQ(meter_.Look()->waiting_for(), "");
  EXPECT_EQ(meter_.Look()->phases().ticket(), 1);
}

TEST_F(PhaseMeterTest, InputWaitOfTheLastReportsAndOfAll) {
  meter_.BeginTraining();
  WaitForInput(1);
  Pass(3);
  ExpectInputWait(0.25, 0.25);
  Pass(4);
  ExpectInputWait(0, 0.125);
  // Less than a second: the last value stays.
  WaitForInput(0.5);
  ExpectInputWait(0, 1.5 / 8.5);
  // Since the last report that counted: 0.5 of 1 s.
  Pass(0.5);
  ExpectInputWait(0.5, 1.5 / 9);
}

TEST_F(PhaseMeterTest, NoInputWaitBeforeASecondOfTraining) {
  meter_.BeginTraining();
  Pass(0.9);
  EXPECT_FALSE(meter_.Report().input_wait.has_value());
  EXPECT_TRUE(meter_.Report().worker.has_value());
  WaitForInput(0.1);
  ExpectInputWait(0.1, 0.1);
}

TEST_F(PhaseMeterTest, AWaitUnderWayCounts) {
  meter_.BeginTraining();
  meter_.Enter(Phase::kInput);
  Pass(2);
  ExpectInputWait(1, 1);
  Pass(2);
  meter_.Enter(Phase::kOther);
  ExpectInputWait(1, 1);
}

TEST_F(PhaseMeterTest, WhatIsNoTrainingDoesNotCount) {
  meter_.BeginTraining();
  WaitForInput(1);
  // Training ends during a wait, as when the job is rolled back.
  meter_.Enter(Phase::kInput);
  Pass(1);
  meter_.EndTraining();
  Pass(100);
  ExpectInputWait(1, 1);
  meter_.BeginTraining();
  Pass(2);
  ExpectInputWait(0, 0.5);
}

// The report is valid whatever the clock does.
TEST_F(PhaseMeterTest, StaysInTheRangesOfTheReport) {
  meter_.BeginTraining();
  Pass(4);
  meter_.Enter(Phase::kInput);
  Pass(-2);
  EXPECT_EQ(meter_.Look()->waiting_seconds(), 0);
  EXPECT_EQ(meter_.Look()->phases().input(), 0);
  meter_.Enter(Phase::kOther);
  ExpectInputWait(0, 0);
}

class TracedPhaseMeterTest : public PhaseMeterTest {
 protected:
  // "step 3: 0 for 2, step 3", in the order in which they ended.
  std::vector<std::string> Spans() {
    const Tracer::Recorded recorded =
        tracer_.End(absl::InfinitePast(), absl::InfiniteFuture());
    EXPECT_EQ(recorded.tracks.at(0).name, "training");
    std::vector<std::string> spans;
    for (const TraceSpan& span : recorded.tracks[0].spans) {
      spans.push_back(
          absl::StrCat(span.name, ": ",
                       absl::ToDoubleSeconds(span.begin - absl::UnixEpoch()),
                       " for ", absl::ToDoubleSeconds(span.end - span.begin)));
      for (const auto& [name, value] : span.args) {
        absl::StrAppend(&spans.back(), ", ", name, " ", value);
      }
    }
    return spans;
  }
  void SpendTraced(Phase phase, double seconds) {
    const PhaseMeter::Scope scope(&traced_, phase);
    Pass(seconds);
  }

  Tracer tracer_{{.on_demand = true, .clock = &clock_}};
  PhaseMeter traced_{&clock_, &tracer_};
};

TEST_F(TracedPhaseMeterTest, PhasesLieWithinTheirStep) {
  tracer_.Begin();
  traced_.BeginTraining();
  SpendTraced(Phase::kVersion, 1);
  traced_.BeginStep("step", 3);
  SpendTraced(Phase::kInput, 1);
  SpendTraced(Phase::kCompute, 2);
  Pass(1);  // none of the phases
  SpendTraced(Phase::kVerdict, 1);
  traced_.FinishStep();
  traced_.BeginStep("step", 4);
  SpendTraced(Phase::kCompute, 1);
  traced_.EndTraining();
  EXPECT_THAT(
      Spans(),
      ElementsAre("version: 0 for 1", "input: 1 for 1, step 3",
                  "compute: 2 for 2, step 3", "verdict: 5 for 1, step 3",
                  "step 3: 1 for 5, step 3", "compute: 6 for 1, step 4",
                  "step 4: 6 for 1, step 4"));
}

TEST_F(TracedPhaseMeterTest, APhaseThatGoesOnIsCutWhereAStepBegins) {
  tracer_.Begin();
  traced_.BeginTraining();
  traced_.Enter(Phase::kTicket);
  Pass(1);
  traced_.BeginStep("ticket", 9);
  Pass(1);
  traced_.Enter(Phase::kOther);
  EXPECT_THAT(Spans(),
              ElementsAre("ticket: 0 for 1", "ticket: 1 for 1, ticket 9"));
  EXPECT_EQ(traced_.Look()->phases().ticket(), 2);
}

TEST_F(TracedPhaseMeterTest, NothingIsRecordedWhileNobodyWantsIt) {
  traced_.BeginTraining();
  traced_.BeginStep("step", 3);
  SpendTraced(Phase::kInput, 1);
  tracer_.Begin();
  // A phase in progress is recorded as a whole when it ends.
  traced_.EndTraining();
  EXPECT_THAT(Spans(), ElementsAre("step 3: 0 for 1, step 3"));
}

}  // namespace
}  // namespace holdfast

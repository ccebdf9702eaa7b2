#include "worker/trainer/input_meter.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class HandClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

class InputMeterTest : public testing::Test {
 protected:
  void Wait(double seconds) {
    meter_.BeginWait();
    Pass(seconds);
    meter_.EndWait();
  }
  void Pass(double seconds) { clock_.now += absl::Seconds(seconds); }
  void ExpectReport(double recent, double overall) {
    const auto report = meter_.Report();
    ASSERT_TRUE(report.has_value());
    EXPECT_DOUBLE_EQ(report->recent(), recent);
    EXPECT_DOUBLE_EQ(report->overall(), overall);
  }

  HandClock clock_;
  InputMeter meter_{&clock_};
};

TEST_F(InputMeterTest, NothingToTellBeforeTraining) {
  Pass(10);
  EXPECT_FALSE(meter_.Report().has_value());
}

TEST_F(InputMeterTest, ShareOfTheLastReportsAndOfAll) {
  meter_.BeginTraining();
  Wait(1);
  Pass(3);
  ExpectReport(0.25, 0.25);
  Pass(4);
  ExpectReport(0, 0.125);
  // Less than a second: it stays.
  Wait(0.5);
  ExpectReport(0, 1.5 / 8.5);
  // From the last one that counted: 0.5 of 1 s.
  Pass(0.5);
  ExpectReport(0.5, 1.5 / 9);
}

TEST_F(InputMeterTest, NothingToTellBeforeASecondOfTraining) {
  meter_.BeginTraining();
  Pass(0.9);
  EXPECT_FALSE(meter_.Report().has_value());
  Wait(0.1);
  ExpectReport(0.1, 0.1);
}

TEST_F(InputMeterTest, AWaitUnderWayCounts) {
  meter_.BeginTraining();
  meter_.BeginWait();
  Pass(2);
  ExpectReport(1, 1);
  Pass(2);
  meter_.EndWait();
  ExpectReport(1, 1);
}

TEST_F(InputMeterTest, WhatIsNoTrainingDoesNotCount) {
  meter_.BeginTraining();
  Wait(1);
  // Given up in a wait, as when the job is rolled back.
  meter_.BeginWait();
  Pass(1);
  meter_.EndTraining();
  Pass(100);
  ExpectReport(1, 1);
  meter_.BeginTraining();
  Pass(2);
  ExpectReport(0, 0.5);
}

// The machine's date was set back.
TEST_F(InputMeterTest, StaysBetween0And1) {
  meter_.BeginTraining();
  Pass(4);
  meter_.BeginWait();
  Pass(-2);
  meter_.EndWait();
  ExpectReport(0, 0);
}

}  // namespace
}  // namespace holdfast

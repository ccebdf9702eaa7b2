// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/timeouts.h"

#include "gtest/gtest.h"

namespace holdfast {
namespace {

class TimeoutsTest : public ::testing::Test {
 protected:
  static CoordinatorOptions MakeOptions() {
    CoordinatorOptions options;
    options.start_timeout = absl::Seconds(1);
    options.step_timeout = absl::Seconds(2);
    options.recovery_timeout = absl::Seconds(3);
    return options;
  }
  void Declare(const proto::Timeouts& timeouts) {
    proto::Declaration declaration;
    *declaration.mutable_timeouts() = timeouts;
    ASSERT_TRUE(declared_.Set(declaration).ok());
  }

  JobDeclaration declared_{1, 1, false};
  const Timeouts timeouts_{MakeOptions(), &declared_};
};

TEST_F(TimeoutsTest, ThoseOfThePsUntilADeclarationBringsItsOwn) {
  EXPECT_EQ(timeouts_.Start(), absl::Seconds(1));
  EXPECT_EQ(timeouts_.Step(), absl::Seconds(2));
  EXPECT_EQ(timeouts_.Recovery(), absl::Seconds(3));
  EXPECT_EQ(timeouts_.Disk(), absl::Seconds(300));
  proto::Timeouts declared;
  declared.set_start_seconds(10);
  declared.set_step_seconds(20);
  declared.set_recovery_seconds(30);
  declared.set_disk_seconds(40);
  Declare(declared);
  EXPECT_EQ(timeouts_.Start(), absl::Seconds(10));
  EXPECT_EQ(timeouts_.Step(), absl::Seconds(20));
  EXPECT_EQ(timeouts_.Recovery(), absl::Seconds(30));
  EXPECT_EQ(timeouts_.Disk(), absl::Seconds(40));
}

TEST_F(TimeoutsTest, WhatADeclarationDoesNotSayIsAsBefore) {
  proto::Timeouts declared;
  // Lost tasks are not waited for.
  declared.set_recovery_seconds(0);
  Declare(declared);
  EXPECT_EQ(timeouts_.Start(), absl::Seconds(1));
  EXPECT_EQ(timeouts_.Step(), absl::Seconds(2));
  EXPECT_EQ(timeouts_.Recovery(), absl::ZeroDuration());
  EXPECT_EQ(timeouts_.Disk(), absl::Seconds(300));
}

TEST_F(TimeoutsTest, ACallIsParkedForAFractionOfTheDisksPatience) {
  EXPECT_EQ(timeouts_.DiskPark(), absl::Seconds(2));
  proto::Timeouts declared;
  declared.set_disk_seconds(2);
  Declare(declared);
  EXPECT_EQ(timeouts_.DiskPark(), absl::Seconds(0.5));
}

}  // namespace
}  // namespace holdfast

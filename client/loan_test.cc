// SPDX-License-Identifier: Apache-2.0
#include "client/loan.h"

#include <memory>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

TEST(LoanTest, IsReturnedWhenTheLastOwnerHasGone) {
  Loan loan;
  std::shared_ptr<const void> first = loan.owner();
  std::shared_ptr<const void> second = first;
  absl::Notification returned;
  std::thread caller([&] {
    loan.AwaitReturn();
    returned.Notify();
  });
  first.reset();
  EXPECT_FALSE(returned.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  second.reset();
  caller.join();
  EXPECT_TRUE(returned.HasBeenNotified());
}

TEST(LoanTest, IsReturnedAtOnceWhenNobodyTookIt) {
  Loan loan;
  loan.AwaitReturn();
  loan.AwaitReturn();
}

TEST(LoanTest, AnOwnerMayOutliveIt) {
  std::shared_ptr<const void> owner;
  {
    Loan loan;
    owner = loan.owner();
  }
  owner.reset();
}

}  // namespace
}  // namespace holdfast::client

// SPDX-License-Identifier: Apache-2.0

// Runs leaks.h with a few kills.

#include "tests/faults/leaks.h"

#include <iostream>

#include "gtest/gtest.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

TEST(LeaksTest, WhoLivesOnHoldsNoMore) {
  LeakOptions options;
  options.folder = FreshFolder();
  options.kills = 12;
  const LeakReport report = LookForLeaks(options);
  std::cout << report.table;
  EXPECT_EQ(report.failure, "");
}

TEST(LeaksTest, NorWithEmbeddingTables) {
  LeakOptions options;
  options.folder = FreshFolder();
  options.tables = true;
  const LeakReport report = LookForLeaks(options);
  std::cout << report.table;
  EXPECT_EQ(report.failure, "");
}

}  // namespace
}  // namespace holdfast

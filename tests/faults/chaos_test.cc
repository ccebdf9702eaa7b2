// SPDX-License-Identifier: Apache-2.0

// One lap of chaos.h: every target is hit in every way.

#include "tests/faults/chaos.h"

#include <cstdlib>
#include <iostream>

#include "gtest/gtest.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

TEST(ChaosTest, ALap) {
  ChaosOptions options;
  options.folder = FreshFolder();
  const ChaosReport report = RunChaos(options);
  std::cout << report.table;
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace holdfast

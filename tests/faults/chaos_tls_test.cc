// SPDX-License-Identifier: Apache-2.0

// Part of a lap of chaos.h, with jobs that use mutual TLS.

#include <iostream>

#include "gtest/gtest.h"
#include "tests/faults/chaos.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

TEST(ChaosTest, WithTls) {
  ChaosOptions options;
  options.folder = FreshFolder();
  options.tls = true;
  // ps 1, ps 0, and two tasks at a time, each in every way.
  options.first_round = 6;
  options.rounds = 9;
  const ChaosReport report = RunChaos(options);
  std::cout << report.table;
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace holdfast

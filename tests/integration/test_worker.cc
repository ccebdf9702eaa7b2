// SPDX-License-Identifier: Apache-2.0

// A worker whose gradients are whole numbers (tests/integration/training.h), as
// a process that a test may kill.
//
//   test_worker CLUSTER_SPEC_JSON REPLICA TOTAL_STEPS
//
// Prints "step N" as each step begins.

#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "client/cluster.h"
#include "common/job/cluster_spec.h"
#include "glog/logging.h"
#include "tests/integration/training.h"

int main(int argc, char** argv) {
  CHECK_EQ(argc, 4);
  const auto spec = holdfast::ClusterSpec::FromJson(argv[1]);
  CHECK(spec.ok()) << spec.status();
  holdfast::TrainOptions options;
  CHECK(absl::SimpleAtoi(argv[2], &options.replica));
  CHECK(absl::SimpleAtoi(argv[3], &options.total_steps));
  options.on_step = [](holdfast::GlobalStep step) {
    std::cout << "step " << step << std::endl;
  };

  const auto cluster = holdfast::ConnectWorker(*spec, options.replica);
  absl::Status status = cluster.status();
  if (status.ok()) status = holdfast::Train(cluster->get(), options);
  if (status.ok()) return 0;
  std::cout << status << std::endl;
  return 1;
}

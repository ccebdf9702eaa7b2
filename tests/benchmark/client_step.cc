// SPDX-License-Identifier: Apache-2.0

// A worker without a model, on client/cluster.h, which measures the minimum
// cost of a step. python_step.py compares the Python package with it.
//
//   client_step CLUSTER_SPEC DECLARATION
//
// Both arguments are text. Prints the CPU time of the process per step, in
// microseconds.

#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "proto/cluster.pb.h"

namespace holdfast {
namespace {

absl::Time Deadline() { return SteadyNow() + absl::Seconds(60); }

double CpuMicroseconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto microseconds = [](const timeval& time) {
    return time.tv_sec * 1e6 + time.tv_usec;
  };
  return microseconds(usage.ru_utime) + microseconds(usage.ru_stime);
}

void Run(const char* cluster_spec, const char* declaration_text) {
  const auto spec = ClusterSpec::FromJson(cluster_spec);
  CHECK(spec.ok()) << spec.status();
  proto::Declaration declaration;
  CHECK(google::protobuf::TextFormat::ParseFromString(declaration_text,
                                                      &declaration));
  Cluster::Options options{.cluster = *spec};
  options.task = {kWorkerJob, 0};
  const auto cluster = Cluster::Connect(std::move(options));
  CHECK(cluster.ok()) << cluster.status();
  const auto check = [](const absl::Status& status) {
    CHECK(status.ok()) << status;
  };
  check((*cluster)->Declare(declaration, Deadline()));
  check((*cluster)->AwaitVariables(Deadline()));
  Parameters now, next;
  check((*cluster)->StartPull(GlobalStep(0), &now)->Await(Deadline()));
  std::vector<std::vector<float>> gradients;
  for (const auto values : now.All()) {
    gradients.emplace_back(values.begin(), values.end());
  }

  const double before = CpuMicroseconds();
  for (uint64_t step = 0; step < declaration.total_steps(); ++step) {
    const auto push = (*cluster)->StartPush(now.version);
    for (size_t i = 0; i < gradients.size(); ++i) {
      check(push->Add(i, gradients[i]));
    }
    Contribution contribution;
    contribution.examples = 1;
    check(push->Contribute(contribution, &next));
    const auto outcome = push->Await(Deadline());
    CHECK(outcome.ok()) << outcome.status();
    std::swap(now, next);
  }
  const double after = CpuMicroseconds();
  check((*cluster)->AwaitDone(Deadline()));
  check((*cluster)->Leave("", Deadline()));
  std::printf("%f\n", (after - before) / declaration.total_steps());
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  CHECK_EQ(argc, 3) << "client_step CLUSTER_SPEC DECLARATION";
  holdfast::Run(argv[1], argv[2]);
}

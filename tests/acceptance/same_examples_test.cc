// SPDX-License-Identifier: Apache-2.0

// Two workers with batches of 100 and one with batches of 200 see the same
// examples in the same steps: they train the same model, up to rounding.
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "client/cluster.h"
#include "common/base/clock.h"
#include "common/data/dataset.h"
#include "common/job/job_file.h"
#include "gtest/gtest.h"
#include "tests/integration/loopback.h"
#include "tests/integration/test_cluster.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/input/batch_pipeline.h"
#include "worker/model/registry.h"
#include "worker/trainer/declaration.h"
#include "worker/trainer/trainer.h"

namespace holdfast {
namespace {

constexpr uint64_t kSteps = 100;

absl::Status TrainReplica(const ClusterSpec& spec, const proto::Job& job,
                          uint32_t replica, const Dataset& data) {
  const Replicas replicas = {spec.num_replicas(), spec.num_replicas()};
  auto backend = CpuBackend::Create({});
  if (!backend.ok()) return backend.status();
  auto model =
      CreateModel(job.model(), data.spec(), job.seed(), backend->get(), {});
  if (!model.ok()) return model.status();
  BatchPipeline::Options input;
  input.batch_size = job.batch_size();
  input.seed = job.seed();
  input.seats_per_step = replicas.seats();
  input.seats = {replica};
  auto batches = BatchPipeline::Start(&data, input);
  if (!batches.ok()) return batches.status();
  Cluster::Options connect{.cluster = spec};
  connect.task = {kWorkerJob, replica};
  auto cluster = Cluster::Connect(connect);
  if (!cluster.ok()) return cluster.status();

  const SteadyClock clock;
  Trainer::Parts parts;
  parts.cluster = cluster->get();
  parts.model = model->get();
  parts.batches = batches->get();
  PhaseMeter meter(&clock);
  parts.meter = &meter;
  parts.clock = &clock;
  Trainer::Options options;
  options.replica = replica;
  options.is_chief = replica == 0;
  auto declaration = MakeDeclaration(job, (*model)->Variables(), replicas,
                                     data.num_examples());
  if (!declaration.ok()) return declaration.status();
  options.declaration = *std::move(declaration);
  return Trainer(parts, options).Run();
}

// The variables after kSteps steps with this many workers.
Parameters TrainWith(uint32_t workers, proto::Job job, const Dataset& data) {
  job.set_batch_size(200 / workers);
  job.set_steps(kSteps);
  const ClusterSpec spec = MakeLoopbackCluster(2, workers);
  TestCluster ps(spec, kLongLease);
  // A reader, whose pull is parked until the last version is there.
  auto reader = Cluster::Connect({.cluster = spec});
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<std::thread> threads;
  for (uint32_t replica = 0; replica < workers; ++replica) {
    threads.emplace_back([&, replica] {
      const absl::Status status = TrainReplica(spec, job, replica, data);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  Parameters parameters;
  absl::Status status = (*reader)->AwaitVariables(Soon());
  EXPECT_TRUE(status.ok()) << status;
  status = (*reader)->StartPull(GlobalStep(kSteps), &parameters)->Await(Soon());
  EXPECT_TRUE(status.ok()) << status;
  for (std::thread& thread : threads) thread.join();
  return parameters;
}

TEST(SameExamplesTest, TwoWorkersAreOneWithTwiceTheBatch) {
  absl::StatusOr<proto::Job> job =
      LoadJobFile("examples/fashion_mnist_softmax.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  job->clear_consistency();
  auto data = Dataset::Open(job->data().train(), {});
  ASSERT_TRUE(data.ok()) << data.status();

  const Parameters two = TrainWith(2, *job, **data);
  const Parameters one = TrainWith(1, *job, **data);
  ASSERT_EQ(two.version.value(), kSteps);
  ASSERT_EQ(one.version.value(), kSteps);
  ASSERT_EQ(one.size(), two.size());
  for (size_t v = 0; v < one.size(); ++v) {
    ASSERT_EQ(one.Of(v).size(), two.Of(v).size());
    double difference = 0, norm = 0;
    for (size_t i = 0; i < one.Of(v).size(); ++i) {
      const double d = one.Of(v)[i] - two.Of(v)[i];
      difference += d * d;
      norm += double{one.Of(v)[i]} * one.Of(v)[i];
    }
    ASSERT_GT(norm, 0);  // it has learned something
    EXPECT_LE(std::sqrt(difference / norm), 1e-5) << "variable " << v;
    RecordProperty("relative_norm_of_the_difference",
                   std::to_string(std::sqrt(difference / norm)));
  }
}

}  // namespace
}  // namespace holdfast

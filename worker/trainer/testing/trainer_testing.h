// SPDX-License-Identifier: Apache-2.0

// For tests of what a trainer does in a job: everything around the trainer is a
// fake.
#ifndef HOLDFAST_WORKER_TRAINER_TESTING_TRAINER_TESTING_H_
#define HOLDFAST_WORKER_TRAINER_TESTING_TRAINER_TESTING_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/phase_meter.h"
#include "client/testing/fake_cluster.h"
#include "common/base/clock.h"
#include "common/process/host_memory.h"
#include "gtest/gtest.h"
#include "worker/input/batch_pipeline.h"
#include "worker/trainer/batch_rows.h"
#include "worker/trainer/testing/fake_model.h"
#include "worker/trainer/trainer.h"

namespace holdfast {

class StoppedClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = SteadyNow();
};

// Each call returns a time one second later.
class TickingClock final : public Clock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() + absl::Seconds(++seconds_);
  }

 private:
  mutable std::atomic<int64_t> seconds_{0};
};

class TrainerTestBase : public ::testing::Test {
 protected:
  // Gives the model a table. Must be called first.
  void SetUpTable() {
    model_.has_table = true;
    evaluation_model_.has_table = true;
    train_set_.GiveIds();
    test_set_.GiveIds();
    batch_options_.table_fields = FieldsOf(model_);
  }

  // Sets up a synchronous job with replicas_to_aggregate `n` and
  // total_num_replicas `m`, and the worker with index `replica` in it.
  void SetUpJob(uint32_t replica, uint32_t n, uint32_t m, uint64_t steps) {
    SetUpSteps(n, m, steps);
    Start(replica, std::max(n, m), m);
  }

  // Sets up the same, but with examples by ticket: the job has as many steps as
  // `tickets` tickets make.
  void SetUpTickets(uint32_t replica, uint32_t n, uint32_t m,
                    uint64_t tickets) {
    SetUpSteps(n, m, (tickets + n - 1) / n);
    options_.declaration.set_examples(proto::BY_TICKET);
    options_.declaration.set_total_tickets(tickets);
    Start(replica, std::max(n, m), m);
  }

  // Sets up an asynchronous job.
  void SetUpAsynchronous(uint32_t replica, uint32_t depth, uint64_t tickets) {
    proto::Declaration& declaration = options_.declaration;
    declaration.mutable_consistency()
        ->mutable_asynchronous()
        ->set_pipeline_depth(depth);
    declaration.set_examples(proto::BY_TICKET);
    declaration.set_total_steps(tickets);
    declaration.set_total_tickets(tickets);
    declaration.set_num_workers(2);
    Start(replica, 1, 1);
  }

  absl::Status Run() {
    Trainer::Parts parts;
    parts.cluster = cluster_.get();
    parts.model = &model_;
    parts.batches = batches_.get();
    parts.meter = &meter_;
    parts.clock = &clock_;
    parts.host_memory = host_memory_;
    if (has_test_set_) {
      parts.test_set = &test_set_;
      parts.evaluation_model = &evaluation_model_;
    }
    parts.read_test_set = read_test_set_;
    Trainer trainer(parts, options_);
    const absl::Status status = trainer.Run();
    counts_ = trainer.counts();
    return status;
  }

  // Returns the first input value of the batch of `seat` in `step`.
  float FirstInput(uint64_t step, int64_t seat, int64_t seats_per_step) {
    BatchPipeline::Options options = batch_options_;
    options.by_ticket = false;
    options.seats_per_step = seats_per_step;
    options.seats = {seat};
    auto pipeline = BatchPipeline::Start(&train_set_, options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    auto batch =
        (*pipeline)->Next(GlobalStep(step), seat, absl::InfiniteFuture());
    EXPECT_TRUE(batch.ok()) << batch.status();
    return batch->inputs[0];
  }

  // Returns the first input values of the batches of these tickets.
  std::vector<float> FirstInputs(const std::vector<uint64_t>& tickets) {
    BatchPipeline::Options options = batch_options_;
    options.by_ticket = true;
    auto pipeline = BatchPipeline::Start(&train_set_, options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    std::vector<float> inputs;
    for (const uint64_t ticket : tickets) {
      auto batch = (*pipeline)->NextTicket(ticket, absl::InfiniteFuture());
      EXPECT_TRUE(batch.ok()) << batch.status();
      inputs.push_back(batch->inputs[0]);
    }
    return inputs;
  }

  FakeExamples train_set_ = FakeExamples(1000, 10);
  // Has the labels 0 to 9, each four times, so that at versions below 10 a
  // tenth of the examples is correct.
  FakeExamples test_set_ = FakeExamples(40, 10);
  FakeModel model_;
  FakeModel evaluation_model_;
  StoppedClock clock_;
  TickingClock phase_clock_;
  PhaseMeter meter_{&phase_clock_};
  HostMemory* host_memory_ = nullptr;
  bool has_test_set_ = false;
  std::function<absl::StatusOr<const ExampleSource*>()> read_test_set_;
  Trainer::Options options_;
  // The options of the batches, except for those that follow from the job.
  BatchPipeline::Options batch_options_ = {.batch_size = 8};
  std::unique_ptr<FakeCluster> cluster_;
  std::unique_ptr<BatchPipeline> batches_;
  Trainer::Counts counts_;

 private:
  void SetUpSteps(uint32_t n, uint32_t m, uint64_t steps) {
    auto* synchronous =
        options_.declaration.mutable_consistency()->mutable_synchronous();
    synchronous->set_replicas_to_aggregate(n);
    synchronous->set_total_num_replicas(m);
    options_.declaration.set_total_steps(steps);
  }

  // Makes the rest of the declaration, and then the cluster and the batches for
  // the declared job.
  void Start(uint32_t replica, uint32_t seats_per_step, uint32_t workers) {
    options_.declaration.clear_variables();
    for (const proto::Variable& variable : model_.Variables()) {
      *options_.declaration.add_variables() = variable;
    }
    for (const ModelTable& table : model_.Tables()) {
      *options_.declaration.add_tables() = table.declared;
    }
    cluster_ = std::make_unique<FakeCluster>(options_.declaration);

    options_.replica = replica;
    options_.is_chief = replica == 0;
    BatchPipeline::Options batches = batch_options_;
    batches.by_ticket = options_.declaration.examples() == proto::BY_TICKET;
    batches.seats_per_step = seats_per_step;
    batches.seats.clear();
    for (uint32_t seat = replica; seat < seats_per_step; seat += workers) {
      batches.seats.push_back(seat);
    }
    auto pipeline = BatchPipeline::Start(&train_set_, batches);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    batches_ = *std::move(pipeline);
  }
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_TESTING_TRAINER_TESTING_H_

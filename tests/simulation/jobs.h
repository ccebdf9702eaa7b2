// SPDX-License-Identifier: Apache-2.0

// The jobs that are simulated.
#ifndef HOLDFAST_TESTS_SIMULATION_JOBS_H_
#define HOLDFAST_TESTS_SIMULATION_JOBS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/cluster.pb.h"
#include "tests/simulation/random_scheduler.h"
#include "tests/world/job.h"

namespace holdfast {

struct SynchronousJob {
  uint32_t n = 1;
  uint32_t m = 1;
  uint32_t num_ps = 1;
  uint64_t steps = 4;
  Faults faults;
  // Some contributions have weight 0.
  bool empty_handed = false;
  // The number of tickets; 0 deals examples by step.
  uint64_t tickets = 0;
  // With policy CONTINUE: the minimum number of replicas. 0 means policy WAIT.
  uint32_t min_replicas = 0;
  // The number of workers in the ClusterSpec if that is less than m; 0 means m.
  uint32_t cluster_workers = 0;
  // If absent, there is no checkpoint directory.
  std::optional<proto::Checkpoints> checkpoints = {};
  proto::Consistency::Aggregation aggregation = proto::Consistency::MEAN;
  // Workers offer pushes that not all shards hold, which must be refused [P1].
  bool faulty = false;
  // Workers use the production client, and lend (docs/protocol/same_host.md).
  bool lends = false;
  // Workers use the production client, and begin to compute while values are
  // arriving (sim::Job::computes_early).
  bool early = false;
  // Workers use the production client, and start pushes again
  // (sim::Job::starts_again).
  bool starts_again = false;
  // An evaluator ends the job at a fixed step, and the best checkpoints are
  // kept.
  bool judged = false;
  // An operator changes the learning rate.
  bool changes_rate = false;
  // With an embedding table.
  bool rows = false;
  // With an embedding table and no variables.
  bool tables_alone = false;
};

std::string Name(const SynchronousJob& job);
sim::Job MakeJob(const SynchronousJob& job);

struct AsynchronousJob {
  // The number of ps when the job is declared; each variable has as many rows.
  uint32_t num_ps = 1;
  uint32_t workers = 1;
  uint32_t depth = 1;
  std::optional<uint32_t> bound;
  bool momentum = false;
  // At most 20.
  uint64_t tickets = 12;
  // If absent, there is no checkpoint directory.
  std::optional<proto::Checkpoints> checkpoints = {};
  // Workers request that pushes be applied with scalars other than their
  // ticket's, or without the receipts of other shards, which must be refused
  // [P2]; and they tell ps 0 that they know all verdicts [P3].
  bool faulty = false;
  // Workers use the production client, and lend (docs/protocol/same_host.md).
  bool lends = false;
  // Workers use the production client, and start pushes again
  // (sim::Job::starts_again).
  bool starts_again = false;
  // With an embedding table.
  bool rows = false;
  // With an embedding table and no variables; not with momentum.
  bool tables_alone = false;
};

std::string Name(const AsynchronousJob& job);
sim::Job MakeJob(const AsynchronousJob& job);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_JOBS_H_

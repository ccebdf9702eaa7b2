// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_FIGURES_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_FIGURES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// What a shard holds, and what it has done since its process began, for
// monitoring. No decision of the shard depends on it.
struct ShardFigures {
  // Bytes of tensors, as encoded, by proto::Encoding.
  using Bytes = std::array<uint64_t, proto::Encoding_ARRAYSIZE>;

  // Held now, in bytes (memory_plan.h).
  uint64_t values = 0;
  uint64_t slots = 0;
  // In addition to the newest values and slots: the next version or spare
  // chunks for it, earlier versions that are still read, and what a checkpoint
  // being written holds.
  uint64_t versions = 0;
  uint64_t pushes = 0;
  // Rows of embedding tables, with candidates and indexes.
  uint64_t tables = 0;
  // 0: unlimited.
  uint64_t limit = 0;

  // Rows of all embedding tables.
  uint64_t table_rows = 0;
  // Indexed by table, in the order declared. Empty if the job has none, and
  // before the shard has its state.
  std::vector<proto::TableReport> by_table;

  // Commits, or applied pushes.
  uint64_t updates = 0;
  absl::Duration update_time;
  // Tensors of pushes and given values, including those that were refused or
  // came twice.
  Bytes received = {};
  // Values in answers to pulls.
  Bytes sent = {};

  // Shares of checkpoints.
  uint64_t saves = 0;
  uint64_t failed_saves = 0;
  // Time and size of the last share that was written.
  absl::Duration save_time;
  uint64_t save_bytes = 0;
};

// The report for the coordinator, without the process's resident memory, which
// the shard does not know.
inline proto::PsReport ToReport(const ShardFigures& figures) {
  proto::PsReport report;
  proto::MemoryUse& memory = *report.mutable_memory();
  memory.set_values(figures.values);
  memory.set_slots(figures.slots);
  memory.set_versions(figures.versions);
  memory.set_pushes(figures.pushes);
  memory.set_tables(figures.tables);
  memory.set_limit(figures.limit);
  report.set_table_rows(figures.table_rows);
  report.mutable_tables()->Add(figures.by_table.begin(),
                               figures.by_table.end());
  report.set_updates(figures.updates);
  report.set_update_seconds(absl::ToDoubleSeconds(figures.update_time));
  uint64_t received = 0;
  for (const uint64_t bytes : figures.received) received += bytes;
  uint64_t sent = 0;
  for (const uint64_t bytes : figures.sent) sent += bytes;
  report.set_received_bytes(received);
  report.set_sent_bytes(sent);
  report.set_held_bytes(figures.values);
  report.set_save_seconds(absl::ToDoubleSeconds(figures.save_time));
  report.set_save_bytes(figures.save_bytes);
  return report;
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_FIGURES_H_

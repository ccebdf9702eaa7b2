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
  // Bytes of encoded tensors, indexed by proto::Encoding.
  using Bytes = std::array<uint64_t, proto::Encoding_ARRAYSIZE>;

  // The fields from here to `tables` are the bytes held now, as memory_plan.h
  // counts them.
  uint64_t values = 0;
  uint64_t slots = 0;
  // In addition to the newest values and slots: the next version or spare
  // chunks for it, earlier versions that are still read, and what a checkpoint
  // being written holds.
  uint64_t versions = 0;
  uint64_t pushes = 0;
  // Rows of embedding tables, with candidates and indexes.
  uint64_t tables = 0;
  // The memory limit, in bytes; 0 means no limit.
  uint64_t limit = 0;

  // Number of rows in all embedding tables.
  uint64_t table_rows = 0;
  // Indexed by table, in the order declared. Empty if the job has none, and
  // before the shard has its state.
  std::vector<proto::TableReport> by_table;

  // Number of commits, or of applied pushes, and the time that they took.
  uint64_t updates = 0;
  absl::Duration update_time;
  // Bytes of tensors in pushes and in given values, including those that were
  // refused or came twice.
  Bytes received = {};
  // Bytes of values in answers to pulls.
  Bytes sent = {};

  // Number of shares of checkpoints that were written, and that could not be
  // written.
  uint64_t saves = 0;
  uint64_t failed_saves = 0;
  // Duration, and size in bytes, of the last share that was written.
  absl::Duration save_time;
  uint64_t save_bytes = 0;
};

// Returns the report for the coordinator, without the process's resident
// memory, which the shard does not know.
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

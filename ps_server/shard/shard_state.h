// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_STATE_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_STATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "ps_server/store/dense_store.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/table_snapshot.h"

namespace holdfast {

// What a shard holds of a job's variables and tables.
struct ShardState {
  std::unique_ptr<DenseStore> store;
  // In the order of Declaration.tables.
  std::vector<std::unique_ptr<EmbeddingTable>> tables;
};

// A ShardState at one version, held for a checkpoint.
struct ShardSnapshot {
  StoreSnapshot dense;
  std::vector<TableSnapshot> tables;
};

// Makes the declared tables, without rows, with the buckets of ps `ps` of
// `num_ps`. `max_bytes` has EmbeddingTable::Options::max_bytes for each table;
// empty if there are no limits.
// Errors: those of EmbeddingTable::Create; INVALID_ARGUMENT also when a table
// refers to an optimizer that is not declared.
absl::StatusOr<std::vector<std::unique_ptr<EmbeddingTable>>> CreateTables(
    const proto::Declaration& declaration, uint32_t ps, uint32_t num_ps,
    const std::vector<int64_t>& max_bytes);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_STATE_H_

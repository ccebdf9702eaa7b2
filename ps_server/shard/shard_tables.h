// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_SHARD_TABLES_H_
#define HOLDFAST_PS_SERVER_SHARD_SHARD_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/ids.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/tensor_piece.h"
#include "google/protobuf/repeated_field.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/received_rows.h"
#include "ps_server/table/table_snapshot.h"

namespace holdfast {

// The gradients that a part of a push brings for rows of one table.
struct StagedRows {
  // Index into the declaration's tables.
  size_t table = 0;
  std::shared_ptr<const ReceivedRows> rows;
  // The maximum number of `rows` that do not exist: all, until they are
  // counted.
  int64_t absent = 0;
  bool counted = false;

  // Memory that `rows` take, as PlanMemory calculates it.
  int64_t bytes = 0;
};

// What one shard holds of the job's embedding tables, in the order declared,
// all at the version of the shard's store.
//
// Thread-compatible.
class ShardTables {
 public:
  // A shard without tables.
  ShardTables() = default;

  // `tables`: as made by CreateTables or ShardDisk::Load, all at one version.
  explicit ShardTables(std::vector<std::unique_ptr<EmbeddingTable>> tables);

  // For CreateTables: the memory that each table may take. Those without
  // max_rows may take `unbounded_bytes` together, which CheckRoom enforces.
  static std::vector<int64_t> MaxBytes(const proto::Declaration& declaration,
                                       int64_t unbounded_bytes);

  bool empty() const { return tables_.empty(); }
  size_t size() const { return tables_.size(); }
  const EmbeddingTable& table(size_t i) const { return *tables_[i]; }
  // Sums over all tables: rows; memory of rows; memory of copies for held
  // versions.
  int64_t rows() const;
  int64_t bytes() const;
  int64_t held_bytes() const;
  // For each table, what it has, and what has become of its rows since this
  // object was made.
  std::vector<proto::TableReport> Reports() const;

  // Returns a part's rows, if they fit the declaration. Errors:
  // INVALID_ARGUMENT, naming the table.
  absl::StatusOr<StagedRows> Fit(const TensorPiece& piece) const;

  // Counts those of `rows` that do not exist, unless they are counted already.
  // Looks up each of them, which costs as much as a pull.
  void CountAbsent(StagedRows* rows) const;
  // Checks that there is room for more rows of one table if the pushes that are
  // here make up to `staged_absent` rows of each table.
  // Errors: FAILED_PRECONDITION, as EmbeddingTable::CheckRoom.
  absl::Status CheckRoom(size_t table, int64_t more_rows,
                         const std::vector<int64_t>& staged_absent) const;

  // Makes the next version of each table. `sums`: indexed by table; empty if no
  // push counts. `scalars`: indexed by the declaration's optimizers.
  void ApplyStep(
      const std::vector<RowSum>& sums,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars,
      const ApplyRowsOptions& options);
  // From now on records the ids that are touched or removed, for checkpoints
  // with changes.
  void KeepChanges();
  // Holds the newest version for a checkpoint. `durable`: the version of the
  // newest durable checkpoint, if any, which must come from this method or have
  // been restored; changes up to it are forgotten. `changes`: as for
  // EmbeddingTable::Snapshot, since `durable`.
  std::vector<TableSnapshot> Snapshot(std::optional<GlobalStep> durable,
                                      bool changes);

  // The bytes of kMaxPullBytes that the values of a range of rows take, at most
  // `most`.
  // Errors: NOT_FOUND for a table that is not declared; INVALID_ARGUMENT for an
  // encoding that values cannot have, and for more rows than the ids have
  // bytes.
  absl::StatusOr<uint64_t> ValueBytes(const proto::ReadRange& range,
                                      uint64_t most) const;
  // The rows of a range that ValueBytes accepted, at the newest version or a
  // held one. Errors: INVALID_ARGUMENT, naming the table, for ids that do not
  // parse or do not belong to this ps. `threads`: as EmbeddingTable::Read.
  absl::StatusOr<TensorPiece> Read(const proto::ReadRange& range,
                                   GlobalStep version, ThreadPool* threads);

  // Holds the newest version of all tables until the result is destroyed, which
  // must not outlive this object.
  std::shared_ptr<const void> Hold();

 private:
  // Errors: NOT_FOUND, naming the tables that there are.
  absl::StatusOr<size_t> Find(absl::string_view name) const;

  // Rows of a table that were asked for, and how many of them existed.
  struct Reads {
    int64_t rows = 0;
    int64_t found = 0;
  };

  std::vector<std::unique_ptr<EmbeddingTable>> tables_;
  // Indexed by table.
  std::vector<Reads> reads_;
  BucketRange buckets_;
  GlobalStep version_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_TABLES_H_

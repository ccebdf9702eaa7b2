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
#include "ps_server/shard/row_memory.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/received_rows.h"
#include "ps_server/table/table_snapshot.h"

namespace holdfast {

// The gradients that a part of a push brings for rows of one table.
struct StagedRows {
  // Index into the declaration's tables.
  size_t table = 0;
  std::shared_ptr<const ReceivedRows> rows;
  // How many of `rows` do not exist in the table yet: an upper bound, which is
  // the number of `rows` until CountAbsent has counted them.
  int64_t absent = 0;
  bool counted = false;

  // Memory that `rows` take, in bytes, as PlanMemory calculates it.
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

  // `tables` were made by CreateTables or ShardDisk::Load, and are all at one
  // version.
  explicit ShardTables(std::vector<std::unique_ptr<EmbeddingTable>> tables);

  // Returns the memory that each table may take, in bytes, for CreateTables.
  // Tables without max_rows may together take `unbounded_bytes`, which
  // CheckRoom enforces.
  static std::vector<int64_t> MaxBytes(const proto::Declaration& declaration,
                                       int64_t unbounded_bytes);

  bool empty() const { return tables_.empty(); }
  size_t size() const { return tables_.size(); }
  const EmbeddingTable& table(size_t i) const { return *tables_[i]; }
  // Sums over all tables: the number of rows; the bytes that rows take; the
  // bytes of the copies of changed rows that are kept for held versions.
  int64_t rows() const;
  int64_t bytes() const;
  int64_t held_bytes() const;
  // Reports, for each table, what it has, and how its rows were read, created
  // and removed since this object was made.
  std::vector<proto::TableReport> Reports() const;

  // Returns the rows that `piece` brings. Errors: INVALID_ARGUMENT, naming the
  // table, if they do not fit the declaration.
  absl::StatusOr<StagedRows> Fit(const TensorPiece& piece) const;

  // Sets `rows->absent` to the number of rows that do not exist, unless they
  // are counted already. Looks up each row, which costs as much as a pull.
  void CountAbsent(StagedRows* rows) const;
  // Checks that there is room for `more_rows` rows of one table, if the pushes
  // that are staged create up to `staged_absent` rows of each table, indexed by
  // table.
  // Errors: FAILED_PRECONDITION, as EmbeddingTable::CheckRoom.
  absl::Status CheckRoom(size_t table, int64_t more_rows,
                         const std::vector<int64_t>& staged_absent) const;

  // Makes the next version of each table. `sums` is indexed by table; empty if
  // no push counts. `scalars` is indexed by the declaration's optimizers.
  void ApplyStep(
      const std::vector<RowSum>& sums,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars,
      const ApplyRowsOptions& options);
  // From now on records the ids whose rows are touched or removed, so that a
  // checkpoint may hold only these changes.
  void KeepChanges();
  // Holds the newest version for a checkpoint. `durable` is the version of the
  // newest durable checkpoint, if there is one; it must have been returned by
  // this method or restored. Changes up to `durable` are forgotten. If
  // `changes`, the snapshots are for a checkpoint that holds only the changes
  // since `durable` (EmbeddingTable::Snapshot).
  std::vector<TableSnapshot> Snapshot(std::optional<GlobalStep> durable,
                                      bool changes);

  // Returns how many of the kMaxPullBytes of an answer the values of a range of
  // rows take up, but at most `most`.
  // Errors: NOT_FOUND for a table that is not declared; INVALID_ARGUMENT for an
  // encoding that values cannot have, and for a number of rows that is larger
  // than the number of bytes of the ids.
  absl::StatusOr<uint64_t> ValueBytes(const proto::ReadRange& range,
                                      uint64_t most) const;
  // Reads the rows of a range, which ValueBytes must have accepted, at
  // `version`, which must be the newest or a held one. `threads` is as in
  // EmbeddingTable::Read. The values are in memory taken from `memory`: in
  // shared memory, if there is any, if the range offers a loan under which they
  // may be lent. Errors: INVALID_ARGUMENT, naming the table, for ids that do
  // not parse or do not belong to this ps.
  absl::StatusOr<TensorPiece> Read(const proto::ReadRange& range,
                                   GlobalStep version, ThreadPool* threads,
                                   RowMemory* memory);

  // Holds the newest version of all tables until the result is destroyed, which
  // must not outlive this object.
  std::shared_ptr<const void> Hold();

 private:
  // Returns the index of the table. Errors: NOT_FOUND, naming the tables that
  // there are.
  absl::StatusOr<size_t> Find(absl::string_view name) const;

  // Number of rows of a table that pulls asked for, and how many of them
  // existed.
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

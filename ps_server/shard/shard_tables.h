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
  // Of them, those that do not exist, at most: all, until they are counted.
  int64_t absent = 0;
  bool counted = false;

  // Memory that they keep, as PlanMemory reckons.
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

  // `tables`: as CreateTables or ShardDisk::Load has made them, all at one
  // version.
  explicit ShardTables(std::vector<std::unique_ptr<EmbeddingTable>> tables);

  // For CreateTables: of each table what it may take, where those without
  // max_rows may take `unbounded_bytes` together, as CheckRoom sees to.
  static std::vector<int64_t> MaxBytes(const proto::Declaration& declaration,
                                       int64_t unbounded_bytes);

  bool empty() const { return tables_.empty(); }
  size_t size() const { return tables_.size(); }
  const EmbeddingTable& table(size_t i) const { return *tables_[i]; }
  // Of all tables: their rows; memory of rows, and of copies for versions that
  // are held.
  int64_t rows() const;
  int64_t bytes() const;
  int64_t held_bytes() const;
  // Of each table what it has, and what has become of its rows since this was
  // made.
  std::vector<proto::TableReport> Reports() const;

  // A part's rows, when they fit what is declared. Errors: INVALID_ARGUMENT,
  // naming the table.
  absl::StatusOr<StagedRows> Fit(const TensorPiece& piece) const;

  // Counts those of `rows` that do not exist, once. That looks each of them up,
  // which costs as much as a pull.
  void CountAbsent(StagedRows* rows) const;
  // Whether there is room for more rows of one table, where pushes that are
  // here may make `staged_absent` of each.
  // Errors: FAILED_PRECONDITION, as EmbeddingTable::CheckRoom.
  absl::Status CheckRoom(size_t table, int64_t more_rows,
                         const std::vector<int64_t>& staged_absent) const;

  // Makes the next version of each table. `sums`: by table; empty: no push
  // counts. `scalars`: by the declaration's optimizers.
  void ApplyStep(
      const std::vector<RowSum>& sums,
      const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars,
      const ApplyRowsOptions& options);
  // From now on keeps the ids that are removed, for checkpoints with changes.
  void KeepChanges();
  // The newest version, held for a checkpoint. `durable`: the version of the
  // newest durable one, if any, which must have been made by this or have been
  // restored; what was removed up to then is forgotten. `changes`: as of
  // EmbeddingTable::Snapshot, since `durable`.
  std::vector<TableSnapshot> Snapshot(std::optional<GlobalStep> durable,
                                      bool changes);

  // What the values of a range of rows take of kMaxPullBytes, at most `most`.
  // Errors: NOT_FOUND for a table that is not declared; INVALID_ARGUMENT for an
  // encoding in which values do not come, and for more rows than ids have
  // bytes.
  absl::StatusOr<uint64_t> ValueBytes(const proto::ReadRange& range,
                                      uint64_t most) const;
  // The rows of a range that ValueBytes took, as of the newest version or of
  // one that is held. Errors: INVALID_ARGUMENT, naming the table, for ids that
  // do not parse or are not of this ps. `threads`: as EmbeddingTable::Read.
  absl::StatusOr<TensorPiece> Read(const proto::ReadRange& range,
                                   GlobalStep version, ThreadPool* threads);

  // Holds the newest version of all tables, until it goes. Must not outlive
  // this object.
  std::shared_ptr<const void> Hold();

 private:
  // Errors: NOT_FOUND, naming those that there are.
  absl::StatusOr<size_t> Find(absl::string_view name) const;

  // Rows of a table that were asked for, and those of them that were there.
  struct Reads {
    int64_t rows = 0;
    int64_t found = 0;
  };

  std::vector<std::unique_ptr<EmbeddingTable>> tables_;
  // By table.
  std::vector<Reads> reads_;
  BucketRange buckets_;
  GlobalStep version_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_SHARD_TABLES_H_

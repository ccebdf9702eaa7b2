// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/shard_tables.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/buffer.h"
#include "common/tensor/encoding.h"
#include "common/tensor/row_ids.h"

namespace holdfast {
namespace {

template <typename... What>
absl::Status Error(absl::string_view table, const What&... what) {
  return absl::InvalidArgumentError(
      absl::StrCat("table \"", table, "\": ", what...));
}

}  // namespace

ShardTables::ShardTables(std::vector<std::unique_ptr<EmbeddingTable>> tables)
    : tables_(std::move(tables)), reads_(tables_.size()) {
  if (tables_.empty()) return;
  buckets_ = tables_.front()->buckets();
  version_ = tables_.front()->version();
}

std::vector<int64_t> ShardTables::MaxBytes(
    const proto::Declaration& declaration, int64_t unbounded_bytes) {
  std::vector<int64_t> max_bytes;
  for (const proto::EmbeddingTable& table : declaration.tables()) {
    // PlanMemory has made sure that there is room for bounded tables.
    max_bytes.push_back(table.has_max_rows()
                            ? std::numeric_limits<int64_t>::max()
                            : unbounded_bytes);
  }
  return max_bytes;
}

int64_t ShardTables::rows() const {
  int64_t rows = 0;
  for (const auto& table : tables_) rows += table->rows();
  return rows;
}

int64_t ShardTables::bytes() const {
  int64_t bytes = 0;
  for (const auto& table : tables_) bytes += table->bytes();
  return bytes;
}

int64_t ShardTables::held_bytes() const {
  int64_t bytes = 0;
  for (const auto& table : tables_) bytes += table->held_bytes();
  return bytes;
}

std::vector<proto::TableReport> ShardTables::Reports() const {
  std::vector<proto::TableReport> reports;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const EmbeddingTable& table = *tables_[i];
    proto::TableReport& report = reports.emplace_back();
    report.set_name(table.declared().name());
    report.set_rows(table.rows());
    report.set_candidates(table.candidates());
    report.set_reads(reads_[i].rows);
    report.set_hits(reads_[i].found);
    report.set_admissions(table.totals().admissions);
    report.set_expirations(table.totals().expirations);
    report.set_evictions(table.totals().evictions);
  }
  return reports;
}

absl::StatusOr<size_t> ShardTables::Find(absl::string_view name) const {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i]->declared().name() == name) return i;
    names.push_back(tables_[i]->declared().name());
  }
  return absl::NotFoundError(absl::StrCat(
      "table \"", name, "\" is not declared; ",
      names.empty() ? std::string("the job has no tables")
                    : absl::StrCat("tables: ", absl::StrJoin(names, ", "))));
}

absl::StatusOr<StagedRows> ShardTables::Fit(const TensorPiece& piece) const {
  const absl::StatusOr<size_t> table = Find(piece.variable);
  if (!table.ok()) {
    return absl::InvalidArgumentError(table.status().message());
  }
  if (piece.dtype != proto::FLOAT32) {
    return Error(piece.variable, "gradients of rows must be FLOAT32");
  }
  if (!piece.shape.empty() || piece.begin != 0 || piece.size != 0) {
    return Error(piece.variable,
                 "rows must have ids, and no shape, begin or size");
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto rows, ReceivedRows::Parse(tables_[*table]->declared(), buckets_,
                                     piece.rows->num_rows(), piece.rows->ids(),
                                     piece.data, piece.encoding));
  StagedRows staged;
  staged.table = *table;
  staged.rows = std::make_shared<const ReceivedRows>(std::move(rows));
  staged.absent = static_cast<int64_t>(staged.rows->ids().size());
  const size_t row_bytes =
      tables_[*table]->declared().row_length() * sizeof(float);
  staged.bytes = static_cast<int64_t>(staged.rows->ids().size() *
                                      (row_bytes + kReceivedRowBytes));
  return staged;
}

void ShardTables::CountAbsent(StagedRows* rows) const {
  if (rows->counted) return;
  rows->absent = tables_[rows->table]->CountAbsent(rows->rows->ids());
  rows->counted = true;
}

absl::Status ShardTables::CheckRoom(
    size_t table, int64_t more_rows,
    const std::vector<int64_t>& staged_absent) const {
  int64_t others = 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const EmbeddingTable& other = *tables_[i];
    if (i == table || other.declared().has_max_rows()) continue;
    others += other.bytes() + staged_absent[i] * other.BytesPerRow();
  }
  return tables_[table]->CheckRoom(staged_absent[table] + more_rows, others);
}

void ShardTables::ApplyStep(
    const std::vector<RowSum>& sums,
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars,
    const ApplyRowsOptions& options) {
  static const RowSum& kNone = *new RowSum;
  for (size_t i = 0; i < tables_.size(); ++i) {
    tables_[i]->ApplyStep(sums.empty() ? kNone : sums[i],
                          scalars[tables_[i]->declared().optimizer()], options);
  }
  version_ = version_.next();
}

void ShardTables::KeepChanges() {
  for (const auto& table : tables_) table->KeepChanges();
}

std::vector<TableSnapshot> ShardTables::Snapshot(
    std::optional<GlobalStep> durable, bool changes) {
  std::vector<TableSnapshot> snapshots;
  for (const auto& table : tables_) {
    if (durable.has_value()) table->ForgetChanges(*durable);
    snapshots.push_back(table->Snapshot(durable, changes));
    if (!durable.has_value()) table->ForgetChanges(version_);
  }
  return snapshots;
}

absl::StatusOr<uint64_t> ShardTables::ValueBytes(const proto::ReadRange& range,
                                                 uint64_t most) const {
  HOLDFAST_ASSIGN_OR_RETURN(const auto table, Find(range.variable()));
  if (range.encoding() != proto::EXACT && range.encoding() != proto::FLOAT16 &&
      range.encoding() != proto::BFLOAT16) {
    return Error(
        range.variable(),
        "values can be pulled as EXACT, FLOAT16 or BFLOAT16, not as encoding ",
        static_cast<int>(range.encoding()));
  }
  const uint64_t rows = range.rows().num_rows();
  // An id takes at least one byte.
  if (rows > range.rows().ids().size()) {
    return Error(range.variable(), rows, " rows, but only ",
                 range.rows().ids().size(), " bytes of ids");
  }
  const uint64_t row_bytes =
      tables_[table]->declared().row_length() *
      (range.encoding() == proto::EXACT ? sizeof(float) : sizeof(uint16_t));
  return rows > most / row_bytes ? most : rows * row_bytes;
}

absl::StatusOr<TensorPiece> ShardTables::Read(const proto::ReadRange& range,
                                              GlobalStep version,
                                              ThreadPool* threads,
                                              RowMemory* memory) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto found, Find(range.variable()));
  const EmbeddingTable& table = *tables_[found];
  const absl::StatusOr<std::vector<uint64_t>> ids =
      DecodeRowIds(range.rows().ids(), range.rows().num_rows());
  if (!ids.ok()) return Error(range.variable(), ids.status().message());
  for (const uint64_t id : *ids) {
    if (!buckets_.Contains(BucketOfRow(id))) {
      return Error(range.variable(), "row ", id, " is in bucket ",
                   BucketOfRow(id), ", which is not on this ps");
    }
  }
  const size_t floats = ids->size() * table.declared().row_length();
  const bool may_be_lent = range.has_loan() &&
                           range.encoding() == proto::EXACT &&
                           floats * sizeof(float) >= kMinLentBytes;
  const std::shared_ptr<float> values = memory->Take(floats, may_be_lent);
  Reads& reads = reads_[found];
  reads.rows += static_cast<int64_t>(ids->size());
  reads.found += version == version_
                     ? table.Read(*ids, values.get(), threads)
                     : table.ReadHeld(version, *ids, values.get());
  Buffer data;
  data.Append({reinterpret_cast<const char*>(values.get()),
               floats * sizeof(float), values});
  TensorPiece piece;
  piece.variable = range.variable();
  piece.rows.emplace();
  EncodedElements elements = Encode(range.encoding(), data);
  piece.encoding = elements.encoding;
  piece.data = std::move(elements.data);
  return piece;
}

std::shared_ptr<const void> ShardTables::Hold() {
  if (tables_.empty()) return nullptr;
  for (const auto& table : tables_) table->Hold();
  return std::shared_ptr<const void>(this,
                                     [this, version = version_](const void*) {
                                       for (const auto& table : tables_)
                                         table->Release(version);
                                     });
}

}  // namespace holdfast

#ifndef HOLDFAST_PS_SERVER_TABLE_EMBEDDING_TABLE_H_
#define HOLDFAST_PS_SERVER_TABLE_EMBEDDING_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/initializer.h"
#include "common/row_bucket.h"
#include "common/simd.h"
#include "common/thread_pool.h"
#include "proto/cluster.pb.h"
#include "proto/table.pb.h"
#include "proto/training.pb.h"
#include "ps_server/table/bucket_store.h"
#include "ps_server/table/received_rows.h"
#include "ps_server/table/row_rule.h"

namespace holdfast {

// A push that counts.
struct RowTerm {
  // Must outlive the step.
  const ReceivedRows* rows;
  // 0 or above.
  float weight;
};

// The pushes that make a step, in the order of S.
struct RowSum {
  std::vector<RowTerm> terms;
  // Above 0, finite.
  float divisor = 1;
};

struct ApplyRowsOptions {
  // As ApplyOptions::clip_value (ps_server/shard/apply_step.h).
  std::optional<float> clip_value;
  // Threads for large steps. Null: the caller's does all.
  ThreadPool* threads = nullptr;
  Simd simd = BestSimd();
};

// The rows of an embedding table in a range of buckets
// (docs/protocol/tables.md).
//
// All that it becomes follows from its declaration, its seed and the steps, row
// by row or bucket by bucket: not from the range of buckets, from threads, or
// from what else was read.
//
// Thread-compatible.
class EmbeddingTable {
 public:
  struct Options {
    uint64_t seed = 0;
    BucketRange buckets;
    // For rows, candidates and their indexes. What pushes may still bring is
    // refused beyond it (CheckRoom).
    int64_t max_bytes = std::numeric_limits<int64_t>::max();
  };

  enum class Kind {
    kRow,
    // An id that was not touched often enough to have a row.
    kCandidate,
  };

  // `optimizer`: that of the declaration which `declared` names.
  // Errors: INVALID_ARGUMENT for a declaration that breaks rules, or an
  // optimizer or initializer that a table cannot have; RESOURCE_EXHAUSTED when
  // as many rows as declared do not fit in max_bytes. All name the table.
  static absl::StatusOr<std::unique_ptr<EmbeddingTable>> Create(
      const proto::EmbeddingTable& declared, const proto::Optimizer& optimizer,
      const Options& options);

  const proto::EmbeddingTable& declared() const { return declared_; }
  const BucketRange& buckets() const { return rows_.buckets(); }
  GlobalStep version() const { return version_; }
  int64_t rows() const { return rows_.rows(); }
  int64_t candidates() const { return candidates_.rows(); }
  // Memory of rows, candidates and indexes; of the copies for held versions.
  int64_t bytes() const { return rows_.bytes() + candidates_.bytes(); }
  int64_t held_bytes() const {
    return rows_.held_bytes() + candidates_.held_bytes();
  }

  // Writes the values of rows, all of buckets(), one after the other. A row
  // that is not there has its first values, and is not made.
  void Read(absl::Span<const uint64_t> ids, float* values) const;
  // The same, as they were at a version that is held.
  void ReadHeld(GlobalStep version, absl::Span<const uint64_t> ids,
                float* values) const;

  // How many of `ids` have no row.
  int64_t CountAbsent(absl::Span<const uint64_t> ids) const;
  // Whether so many rows more have room for certain. To be asked before a push
  // is acknowledged, for all rows that acknowledged ones may still make.
  // Errors: RESOURCE_EXHAUSTED, naming table, rows and bytes.
  absl::Status CheckRoom(int64_t more_rows) const;

  // Makes the next version, as docs/protocol/tables.md says under "A step".
  // Cannot fail.
  void ApplyStep(const RowSum& sum, const proto::StepScalars& scalars,
                 const ApplyRowsOptions& options);

  // Holds the newest version until it has been released as often.
  GlobalStep Hold();
  void Release(GlobalStep version);

  // The rows or candidates of a bucket in the order of their ids; as they are,
  // or as they were at a version that is held. Good until the next change.
  std::vector<const RowHeader*> Sorted(
      Kind kind, uint32_t bucket,
      std::optional<GlobalStep> held = std::nullopt) const;
  // Floats of what Sorted gives: values and slots; of a candidate none.
  size_t floats(Kind kind) const {
    return kind == Kind::kRow ? rule_->floats() : 0;
  }

  // For restoring, into a table without rows: makes one as Sorted has given it,
  // and sets the version.
  // Errors: DATA_LOSS, naming the table and what does not fit: another bucket's
  // row, one that is there, wrong floats, a step or count out of range.
  absl::Status Load(Kind kind, uint64_t id, uint64_t step, uint32_t count,
                    absl::Span<const float> floats);
  void SetVersion(GlobalStep version) { version_ = version; }

  // The digest of a bucket's rows at the newest version: the SHA-256, as 64
  // hexadecimal digits, of id (8 bytes) and values of each row in the order of
  // ids, little-endian.
  std::string BucketDigest(uint32_t bucket) const;

 private:
  // A row by how long ago it was touched: (step, id).
  using Age = std::pair<uint64_t, uint64_t>;

  // A gradient for a row.
  struct Item {
    uint64_t id;
    const void* gradient;
    float weight;
  };

  // The rows of one stripe as a step works on them.
  class StripeUpdate;

  EmbeddingTable(const proto::EmbeddingTable& declared,
                 RowInitializer initializer, std::unique_ptr<RowRule> rule,
                 const Options& options);

  // Rows that a bucket may have, and candidates likewise.
  uint32_t cap() const;
  // A bucket is looked at for expired rows once in so many steps.
  uint32_t sweep_period() const;
  // The first bucket, from `begin` on, that is looked at by the step that makes
  // `version`.
  uint32_t FirstSwept(uint64_t version, uint32_t begin) const;
  int64_t BytesPerRow() const;

  const proto::EmbeddingTable declared_;
  const RowInitializer initializer_;
  const std::unique_ptr<RowRule> rule_;
  const int64_t max_bytes_;
  BucketStore rows_;
  BucketStore candidates_;
  GlobalStep version_;
  // How often each version is held.
  std::map<GlobalStep, int> holds_;
  // By stripe, by bucket: of the rows that were in a full bucket some time ago
  // those that were touched least recently then, the oldest last. So a full
  // bucket is not searched for each row that it gets. Those that have been
  // touched since, or removed, are passed over.
  using Oldest =
      std::array<absl::flat_hash_map<uint32_t, std::vector<Age>>, kStripes>;
  Oldest oldest_rows_;
  Oldest oldest_candidates_;
};

// The digest of a table, from those of all its buckets in order, whichever ps
// they are on: the SHA-256, as 64 hexadecimal digits, of
//
//   table  = name 0x00 "[" "*" "," row_length "]" 0x00 bucket*
//   bucket = 64 hexadecimal digits
std::string DigestOfTable(const proto::EmbeddingTable& declared,
                          absl::Span<const std::string> bucket_digests);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_EMBEDDING_TABLE_H_

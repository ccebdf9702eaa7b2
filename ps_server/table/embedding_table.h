// SPDX-License-Identifier: Apache-2.0
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
#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "common/job/ids.h"
#include "common/tensor/initializer.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/table_digest.h"
#include "proto/cluster.pb.h"
#include "proto/table.pb.h"
#include "proto/training.pb.h"
#include "ps_server/table/bucket_store.h"
#include "ps_server/table/change_log.h"
#include "ps_server/table/received_rows.h"
#include "ps_server/table/row_rule.h"
#include "ps_server/table/shared_rows.h"
#include "ps_server/table/table_snapshot.h"

namespace holdfast {

// A push that counts in a step: its gradients for the rows of one table.
struct RowTerm {
  // The rows of the push, in the parts in which they came. The parts share no
  // rows and are in the order of ids. They must outlive the step.
  std::vector<const ReceivedRows*> parts;
  // The weight of the push in the step: 0 or above.
  float weight = 0;
};

// The pushes that make up a step, in the order of S, the step's list of
// contributions (docs/protocol/life_of_a_step.md).
struct RowSum {
  std::vector<RowTerm> terms;
  // The number by which the weighted sum is divided: above 0 and finite.
  float divisor = 1;
};

struct ApplyRowsOptions {
  // Like ApplyOptions::clip_value (ps_server/shard/apply_step.h).
  std::optional<float> clip_value;
  // Threads that help with large steps. If null, the caller's thread does all
  // the work.
  ThreadPool* threads = nullptr;
  Simd simd = BestSimd();
};

// What the steps of a table have done to its rows since it was made, for
// monitoring.
struct RowTotals {
  // The numbers of rows that were made; that were removed because no step had
  // touched them for expire_after_steps; and that were removed because their
  // bucket was full. Candidates are not counted.
  int64_t admissions = 0;
  int64_t expirations = 0;
  int64_t evictions = 0;
};

// The rows of an embedding table in a range of buckets
// (docs/protocol/tables.md).
//
// The state, which does not include totals(), follows from the declaration, the
// seed and the steps alone. A step treats each row and bucket by itself, so the
// state of a row does not depend on the range of buckets, on threads, or on
// what was read.
//
// Thread-compatible. A TableSnapshot may be used by other threads at the same
// time.
class EmbeddingTable {
 public:
  struct Options {
    uint64_t seed = 0;
    BucketRange buckets;
    // Limit for rows, candidates and their indexes, in bytes; CheckRoom refuses
    // rows that might exceed it. By default there is no limit.
    int64_t max_bytes = std::numeric_limits<int64_t>::max();
  };

  enum class Kind {
    kRow,
    // An id that has not been touched often enough to have a row.
    kCandidate,
  };

  // Makes an empty table. `optimizer` is the one that `declared` refers to.
  // Errors: INVALID_ARGUMENT for a declaration that breaks rules, or an
  // optimizer or initializer that a table cannot have; RESOURCE_EXHAUSTED when
  // the declared number of rows does not fit in max_bytes. All name the table.
  static absl::StatusOr<std::unique_ptr<EmbeddingTable>> Create(
      const proto::EmbeddingTable& declared, const proto::Optimizer& optimizer,
      const Options& options);

  const proto::EmbeddingTable& declared() const { return declared_; }
  const BucketRange& buckets() const { return rows_.store.buckets(); }
  GlobalStep version() const { return version_; }
  int64_t rows() const { return rows_.store.rows(); }
  int64_t candidates() const { return candidates_.store.rows(); }
  const RowTotals& totals() const { return totals_; }
  // The number of bytes of rows, candidates, indexes and changed ids; and the
  // number of bytes of copies for held versions.
  int64_t bytes() const {
    return rows_.store.bytes() + candidates_.store.bytes() +
           changes_.num_ids() * ChangeLog::kBytesPerId;
  }
  int64_t held_bytes() const {
    return rows_.store.held_bytes() + candidates_.store.held_bytes();
  }

  // Writes the values of the rows `ids`, which must belong to buckets(), one
  // row after the other. For a row that does not exist, writes the first values
  // that it would have, and does not make it. Returns how many of the rows
  // exist. `threads` help if there are many rows; if it is null, the caller's
  // thread does all the work.
  int64_t Read(absl::Span<const uint64_t> ids, float* values,
               ThreadPool* threads = nullptr) const;
  // Like Read, but writes the values of `version`, which must be held.
  int64_t ReadHeld(GlobalStep version, absl::Span<const uint64_t> ids,
                   float* values) const;

  // The number of `ids` without a row.
  int64_t CountAbsent(absl::Span<const uint64_t> ids) const;
  // Checks that `more_rows` further rows are certain to fit in max_bytes, of
  // which other tables use `others_bytes` bytes. Call it before a push is
  // acknowledged, with all rows that acknowledged pushes may still make.
  // Errors: FAILED_PRECONDITION, naming table, rows and bytes.
  absl::Status CheckRoom(int64_t more_rows, int64_t others_bytes = 0) const;
  // The maximum number of bytes that a further row takes.
  int64_t BytesPerRow() const;
  // The maximum number of bytes that max_rows rows take; 0 if the table has no
  // max_rows.
  int64_t MaxBytes() const;

  // Makes the next version, as described in docs/protocol/tables.md, "A step".
  // Cannot fail.
  void ApplyStep(const RowSum& sum, const proto::StepScalars& scalars,
                 const ApplyRowsOptions& options);

  // Holds the newest version, and returns it. It is held until Release has been
  // called for it as often as Hold.
  GlobalStep Hold();
  void Release(GlobalStep version);
  // Holds the newest version for other threads. The version is released at the
  // first step or snapshot after the last copy of the TableSnapshot is gone.
  //
  // `since` is a version of which a snapshot was taken, or at which KeepChanges
  // was called. The snapshot lists the ids that were removed after `since` and,
  // if `changes`, has only the rows and candidates that were touched after it.
  // If these ids were not all recorded, the snapshot has all rows and no such
  // list.
  TableSnapshot Snapshot(std::optional<GlobalStep> since = std::nullopt,
                         bool changes = false);
  // Records the ids that are touched or removed, from the next step on. The
  // recording stops if there are so many ids that saving all rows is better,
  // and begins again at the next snapshot.
  void KeepChanges() { changes_.Begin(version_); }
  // Forgets what steps up to `version` have changed.
  void ForgetChanges(GlobalStep version) { changes_.Forget(version); }

  // The rows or candidates of a bucket, in the order of ids, at the newest
  // version or, if `held` is set, at that held version. The pointers are valid
  // until the next change.
  std::vector<const RowHeader*> Sorted(
      Kind kind, uint32_t bucket,
      std::optional<GlobalStep> held = std::nullopt) const;
  // The number of floats of each RowHeader that Sorted returns: a row's values
  // and slots, or 0 for candidates.
  size_t floats(Kind kind) const {
    return kind == Kind::kRow ? rule_->floats() : 0;
  }

  // Load and SetVersion restore an empty table. Load adds a row or candidate
  // that Sorted returned when it was saved; all rows must be loaded before the
  // first candidate. Errors: DATA_LOSS, naming the table and the row, for a row
  // that belongs to another ps or exists already, another number of floats than
  // floats(kind), or a step or count out of range.
  absl::Status Load(Kind kind, uint64_t id, uint64_t step, uint32_t count,
                    absl::Span<const float> floats);
  // Like Load, for a row of which only the values are known: it gets first
  // slots, step 0 and count 0.
  absl::Status LoadValues(uint64_t id, absl::Span<const float> values);
  void SetVersion(GlobalStep version) { version_ = version; }

  // The digest of a bucket's rows at the newest version
  // (common/tensor/table_digest.h).
  std::string BucketDigest(uint32_t bucket) const;

 private:
  // (step, id), indexed by stripe and bucket.
  using Dated = std::pair<uint64_t, uint64_t>;
  using ByBucket =
      std::array<absl::flat_hash_map<uint32_t, std::vector<Dated>>, kStripes>;

  // The rows, or the candidates.
  struct Part {
    // Refers to a member of shared_.
    BucketStore& store;
    // For each full bucket, the rows that were the least recently touched when
    // the bucket was last searched for them; the oldest is last. This saves
    // searching the bucket for each row that it gains. Entries whose rows have
    // been touched or removed since then are skipped.
    ByBucket oldest;
  };

  // A gradient for a row.
  struct Item {
    uint64_t id;
    const void* gradient;
    float weight;
  };

  class SortedItems;
  class StripeUpdate;

  EmbeddingTable(const proto::EmbeddingTable& declared,
                 RowInitializer initializer, std::unique_ptr<RowRule> rule,
                 const Options& options);

  // The maximum number of rows, and of candidates, of a bucket.
  uint32_t cap() const;
  // The maximum number of rows of all buckets; 0 if the table has no max_rows.
  int64_t MaxRows() const;
  // The number of steps in which each bucket is swept once for expired rows.
  uint32_t sweep_period() const;
  // The first bucket from `begin` on that is swept by the step that makes
  // `version`.
  uint32_t FirstSwept(uint64_t version, uint32_t begin) const;
  // Releases the versions that snapshots no longer need.
  void ReleaseUnneeded();
  const Part& part(Kind kind) const {
    return kind == Kind::kRow ? rows_ : candidates_;
  }

  const std::unique_ptr<RowRule> rule_;
  const std::shared_ptr<SharedRows> shared_;
  const proto::EmbeddingTable& declared_;
  const RowInitializer initializer_;
  const int64_t max_bytes_;
  Part rows_;
  Part candidates_;
  GlobalStep version_;
  RowTotals totals_;
  // How often each version is held.
  std::map<GlobalStep, int> holds_;
  ChangeLog changes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_EMBEDDING_TABLE_H_

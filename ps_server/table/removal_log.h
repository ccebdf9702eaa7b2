#ifndef HOLDFAST_PS_SERVER_TABLE_REMOVAL_LOG_H_
#define HOLDFAST_PS_SERVER_TABLE_REMOVAL_LOG_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "common/row_bucket.h"
#include "ps_server/table/bucket_store.h"

namespace holdfast {

// The ids that steps have removed from a table, for checkpoints that have only
// what changed (docs/protocol/tables.md).
//
// They are kept by periods between versions at which somebody asked. A period
// that has ended never changes, so another thread may read it, also when it has
// been forgotten here.
//
// Thread-compatible; besides, several threads may call Add at the same time for
// buckets of different stripes.
class RemovalLog {
 public:
  // In the order in which they were removed; an id may be there several times.
  struct Ids {
    std::vector<uint64_t> rows;
    std::vector<uint64_t> candidates;
  };

  // What was removed between two versions.
  class Period {
   public:
    // Null if nothing was.
    const Ids* Find(uint32_t bucket) const;

   private:
    friend class RemovalLog;

    struct Stripe {
      absl::flat_hash_map<uint32_t, Ids> by_bucket;
      int64_t num_ids = 0;
    };

    GlobalStep end;
    std::array<Stripe, kStripes> stripes;
  };
  using Periods = std::vector<std::shared_ptr<const Period>>;

  // Keeps what is removed after `version`, which is the newest. Forgets what
  // was kept before.
  void Begin(GlobalStep version);
  bool keeps() const { return open_ != nullptr; }

  void AddRow(uint32_t bucket, uint64_t id) {
    if (keeps()) Add(bucket, &Ids::rows, id);
  }
  void AddCandidate(uint32_t bucket, uint64_t id) {
    if (keeps()) Add(bucket, &Ids::candidates, id);
  }

  // What was removed between `since` and `version`, which is the newest; absent
  // where that is not known. `since` must be a version that Begin or this was
  // called with.
  std::optional<Periods> Since(GlobalStep since, GlobalStep version);
  // Forgets what was removed up to `version`.
  void Forget(GlobalStep version);

  // That are kept.
  int64_t num_ids() const;
  // Memory for one id, about.
  static constexpr int64_t kBytesPerId = 16;

 private:
  void Add(uint32_t bucket, std::vector<uint64_t> Ids::*kind, uint64_t id);

  // Removals after it are kept.
  GlobalStep begin_;
  Periods ended_;
  // Null: nothing is kept.
  std::shared_ptr<Period> open_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_REMOVAL_LOG_H_

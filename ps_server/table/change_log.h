#ifndef HOLDFAST_PS_SERVER_TABLE_CHANGE_LOG_H_
#define HOLDFAST_PS_SERVER_TABLE_CHANGE_LOG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/job/ids.h"
#include "ps_server/table/bucket_store.h"

namespace holdfast {

// The ids that steps have touched in a table, and removed from it, for
// checkpoints that have only what changed (docs/protocol/tables.md).
//
// They are kept by periods between versions at which somebody asked. A period
// that has ended never changes, so another thread may read it, also when it has
// been forgotten here.
//
// Thread-compatible; besides, several threads may call Add at the same time for
// different stripes.
class ChangeLog {
 public:
  enum Kind { kRow, kCandidate, kRemovedRow, kRemovedCandidate };
  static constexpr size_t kKinds = 4;

  // What happened between two versions.
  class Period {
   public:
    // In no particular order; an id may be there several times.
    const std::vector<uint64_t>& ids(uint32_t stripe, Kind kind) const {
      return ids_[stripe][kind];
    }

   private:
    friend class ChangeLog;

    GlobalStep end_;
    std::array<std::array<std::vector<uint64_t>, kKinds>, kStripes> ids_;
  };
  using Periods = std::vector<std::shared_ptr<const Period>>;

  // Keeps what happens after `version`, which is the newest. Forgets what was
  // kept before.
  void Begin(GlobalStep version);
  // Forgets what was kept, and keeps nothing until Since is called.
  void Pause();

  // Whether a row or candidate of that step is to be added when it is touched.
  bool IsFirstTouch(uint64_t step) const {
    return open_ != nullptr && step <= open_since_.value();
  }
  void Add(Kind kind, uint32_t stripe, uint64_t id) {
    if (open_ != nullptr) open_->ids_[stripe][kind].push_back(id);
  }

  // What happened between `since` and `version`, which is the newest; absent
  // where that is not known. `since` must be a version that Begin or this was
  // called with.
  std::optional<Periods> Since(GlobalStep since, GlobalStep version);
  // Forgets what happened up to `version`.
  void Forget(GlobalStep version);

  // That are kept.
  int64_t num_ids() const;
  // Memory for one id, at most.
  static constexpr int64_t kBytesPerId = 2 * sizeof(uint64_t);

 private:
  bool begun_ = false;
  // What happened after it is kept.
  GlobalStep since_;
  Periods ended_;
  // Null: nothing is kept.
  std::shared_ptr<Period> open_;
  GlobalStep open_since_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_CHANGE_LOG_H_

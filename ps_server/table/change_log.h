// SPDX-License-Identifier: Apache-2.0
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
// checkpoints that contain only what changed (docs/protocol/tables.md).
//
// The ids are kept in periods, which begin and end at the versions for which
// Since was called. A period that has ended never changes, so another thread
// may read it, even after the ChangeLog has forgotten it.
//
// Thread-compatible. In addition, several threads may call Add at the same time
// for different stripes.
class ChangeLog {
 public:
  enum Kind { kRow, kCandidate, kRemovedRow, kRemovedCandidate };
  static constexpr size_t kKinds = 4;

  // The ids that were touched or removed between two versions.
  class Period {
   public:
    // The ids of one kind in a stripe, in no particular order; an id may occur
    // several times.
    const std::vector<uint64_t>& ids(uint32_t stripe, Kind kind) const {
      return ids_[stripe][kind];
    }

   private:
    friend class ChangeLog;

    GlobalStep end_;
    std::array<std::array<std::vector<uint64_t>, kKinds>, kStripes> ids_;
  };
  using Periods = std::vector<std::shared_ptr<const Period>>;

  // Begins to record the ids that are touched or removed after `version`, the
  // newest version. Forgets what was recorded before.
  void Begin(GlobalStep version);
  // Forgets what was recorded, and records nothing until Since is called.
  void Pause();

  // Whether a row or candidate whose last step is `step` must be added when it
  // is touched, because it has not been touched in the current period.
  bool IsFirstTouch(uint64_t step) const {
    return open_ != nullptr && step <= open_since_.value();
  }
  void Add(Kind kind, uint32_t stripe, uint64_t id) {
    if (open_ != nullptr) open_->ids_[stripe][kind].push_back(id);
  }

  // Returns what happened between the versions `since` and `version`, the
  // newest one; nullopt if not all of it was recorded. `since` must be a
  // version with which Begin or this method was called.
  std::optional<Periods> Since(GlobalStep since, GlobalStep version);
  // Forgets what happened up to `version`.
  void Forget(GlobalStep version);

  // The number of ids that are kept.
  int64_t num_ids() const;
  // The maximum memory for one id.
  static constexpr int64_t kBytesPerId = 2 * sizeof(uint64_t);

 private:
  bool begun_ = false;
  // The version after which all that happened is kept.
  GlobalStep since_;
  Periods ended_;
  // The period that is being recorded, which began at open_since_. Null if
  // nothing is being recorded.
  std::shared_ptr<Period> open_;
  GlobalStep open_since_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_CHANGE_LOG_H_

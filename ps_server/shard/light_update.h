// SPDX-License-Identifier: Apache-2.0

// Decides which messages to a shard take no longer than handing them to another
// thread and the answer back, so that the thread that received them may process
// them itself (Strand::RunOrPost).
#ifndef HOLDFAST_PS_SERVER_SHARD_LIGHT_UPDATE_H_
#define HOLDFAST_PS_SERVER_SHARD_LIGHT_UPDATE_H_

#include <cstdint>

#include "proto/shard.pb.h"

namespace holdfast {

// The most bytes of gradients that are applied in about the time that it takes
// to wake another thread, twice: some 100 us. A larger update would occupy a
// thread that serves calls.
inline constexpr int64_t kLightUpdateBytes = 1 << 20;

// The same for a commit, which must not hold up the commits that the
// coordinator sends to other shards next.
inline constexpr uint64_t kLightCommitBytes = 128 << 10;

// Whether the thread that received `request`, which brings `gradient_bytes` of
// tensors, may process it.
inline bool IsLightUpdate(const proto::PushPullRequest& request,
                          int64_t gradient_bytes) {
  // A contribution is only stored; an asynchronous push is applied at once.
  return request.has_contribution() || gradient_bytes <= kLightUpdateBytes;
}

// Decides the same for the coordinator's messages to the shard of `ps`. All
// messages must be passed, in the order in which they are sent.
class LightUpdates {
 public:
  explicit LightUpdates(uint32_t ps) : ps_(ps) {}

  bool IsLight(const proto::RestoreRequest& restore) {
    has_tables_ = restore.declaration().tables_size() > 0;
    value_bytes_ = 0;
    for (const proto::Slice& slice : restore.slices()) {
      if (slice.ps() == ps_) value_bytes_ += slice.size() * sizeof(float);
    }
    return false;
  }
  bool IsLight(const proto::CommitRequest& commit) const {
    return !has_tables_ &&
           value_bytes_ * commit.contributions_size() <= kLightCommitBytes;
  }
  template <typename Request>
  bool IsLight(const Request&) const {
    return false;
  }

 private:
  const uint32_t ps_;
  // Size of the values that the shard holds.
  uint64_t value_bytes_ = 0;
  // Whether the job has tables. If so, a step may have any number of rows.
  bool has_tables_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_LIGHT_UPDATE_H_

// Which messages to a shard are done sooner than another thread is woken, so
// that whoever brings them may do them (Strand::RunOrPost).
#ifndef HOLDFAST_PS_SERVER_SHARD_LIGHT_UPDATE_H_
#define HOLDFAST_PS_SERVER_SHARD_LIGHT_UPDATE_H_

#include <cstdint>

#include "proto/shard.pb.h"

namespace holdfast {

// Bytes of gradients that are applied sooner than another thread is woken. A
// larger update would keep a thread that serves calls.
inline constexpr int64_t kLightUpdateBytes = 128 << 10;

// `gradient_bytes`: those of the tensors that came with `request`.
inline bool IsLightUpdate(const proto::PushPullRequest& request,
                          int64_t gradient_bytes) {
  // A contribution is only kept; an application does its work at once.
  return request.has_contribution() || gradient_bytes <= kLightUpdateBytes;
}

// The same of the coordinator's messages to the shard of `ps`, which are told
// in the order in which they are sent.
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
    return !has_tables_ && value_bytes_ * commit.contributions_size() <=
                               static_cast<uint64_t>(kLightUpdateBytes);
  }
  template <typename Request>
  bool IsLight(const Request&) const {
    return false;
  }

 private:
  const uint32_t ps_;
  // Of what the shard holds.
  uint64_t value_bytes_ = 0;
  // Whose steps may have any number of rows.
  bool has_tables_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_LIGHT_UPDATE_H_

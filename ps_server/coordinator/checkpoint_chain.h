// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

#include <optional>

#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Decides when a checkpoint may be a delta, with only the changed rows of
// tables (docs/protocol/tables.md, "Checkpoints").
//
// Thread-compatible.
class CheckpointChain {
 public:
  // There is no durable checkpoint.
  void Clear() { last_.reset(); }
  // The newest durable checkpoint.
  void OnDurable(const proto::Manifest& manifest);

  // Fills in what `next` states about earlier checkpoints; its name,
  // declaration and `finished` must be set. Returns whether it may be a delta.
  //
  // If `next` has the same name as the last checkpoint, it gets the last one's
  // bytes, because its files replace those one by one.
  bool AddTo(proto::Manifest* next) const;

 private:
  // Only its name, files, `previous` and `chain` are kept.
  std::optional<proto::Manifest> last_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

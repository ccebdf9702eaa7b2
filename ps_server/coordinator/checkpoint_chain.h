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
  // Forgets the last checkpoint: none is durable.
  void Clear() { last_.reset(); }
  // Called when the checkpoint of `manifest` has become durable.
  void OnDurable(const proto::Manifest& manifest);

  // Fills in `previous` and `chain` of `next`, whose name, declaration and
  // `finished` must be set. Returns whether its checkpoint may be a delta.
  //
  // If `next` has the same name as the last checkpoint, its files replace the
  // last one's files one by one, so each must have the same bytes. It then gets
  // the same `previous` and `chain`.
  bool AddTo(proto::Manifest* next) const;

 private:
  // The manifest of the newest durable checkpoint: only its name, files,
  // `previous` and `chain`. Absent if there is none.
  std::optional<proto::Manifest> last_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

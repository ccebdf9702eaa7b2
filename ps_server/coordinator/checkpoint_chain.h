#ifndef HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

#include <optional>

#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Says when a checkpoint may have only what has changed in tables
// (docs/protocol/tables.md, "Checkpoints").
//
// Thread-compatible.
class CheckpointChain {
 public:
  // There is no durable checkpoint.
  void Clear() { last_.reset(); }
  // The newest durable checkpoint.
  void OnDurable(const proto::Manifest& manifest);

  // Fills in what `next` has to say of those before it, whose name,
  // declaration and `finished` are there. Returns whether it may have changes
  // alone.
  //
  // One of the same name gets the bytes of the last, as its files replace them
  // one after the other.
  bool AddTo(proto::Manifest* next) const;

 private:
  // Its name, files, `previous` and `chain`.
  std::optional<proto::Manifest> last_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

#ifndef HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

#include <cstdint>
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
  bool AddTo(proto::Manifest* next) const;

 private:
  struct Last {
    proto::CheckpointName name;
    // All that it needs, and itself.
    google::protobuf::RepeatedPtrField<proto::ChainLink> links;
  };
  std::optional<Last> last_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_CHECKPOINT_CHAIN_H_

#ifndef HOLDFAST_PS_SERVER_COORDINATOR_RATE_CHANGES_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_RATE_CHANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "google/protobuf/repeated_field.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// By what operators have had the learning rates multiplied, and from which step
// on; in asynchronous jobs, from the ticket with which index on. Scalars are
// computed by the number of their step alone, so a step that is made again
// after a recovery, by however many shards, has the same.
//
// Thread-compatible.
class RateChanges {
 public:
  using Message = google::protobuf::RepeatedPtrField<proto::LearningRateChange>;

  // Changes that are kept.
  static constexpr size_t kMost = 1000;

  void TakeUp(const proto::Journal& journal);

  // 1 before the first change.
  float FactorAt(uint64_t step) const;
  // From `step` on, until the next change. Replaces one at the same step.
  // Errors: RESOURCE_EXHAUSTED when there are kMost.
  absl::Status Add(uint64_t step, float factor);

  // By step, rising.
  void AddTo(Message* changes) const;

 private:
  std::map<uint64_t, float> changes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_RATE_CHANGES_H_

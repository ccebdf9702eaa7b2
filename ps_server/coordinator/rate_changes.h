// SPDX-License-Identifier: Apache-2.0
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

// The factors by which operators have learning rates multiplied. Each applies
// from a step on; in asynchronous jobs, from the ticket of an index on. Scalars
// are a function of the step number alone, so a step that is repeated after a
// recovery, on any number of shards, has the same scalars.
//
// Thread-compatible.
class RateChanges {
 public:
  using Message = google::protobuf::RepeatedPtrField<proto::LearningRateChange>;

  // The maximum number of changes kept.
  static constexpr size_t kMost = 1000;

  void TakeUp(const proto::Journal& journal);

  // The factor at `step`; 1 before the first change.
  float FactorAt(uint64_t step) const;
  // Sets the factor from `step` on, until the next change. Replaces a change at
  // the same step.
  // Errors: RESOURCE_EXHAUSTED when there are kMost changes.
  absl::Status Add(uint64_t step, float factor);

  // Appends the changes, ordered by step.
  void AddTo(Message* changes) const;

 private:
  std::map<uint64_t, float> changes_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_RATE_CHANGES_H_

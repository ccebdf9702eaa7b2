// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_WARM_SLOTS_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_WARM_SLOTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/training.pb.h"

namespace holdfast {

// The optimizer slots that a new job takes over from the checkpoint of its warm
// start (docs/protocol/recovery.md, "With another job file").
struct WarmSlots {
  // The names of the variables and tables whose slots are taken over. `anew`:
  // the names of those whose slots start with their initial values. Each lists
  // variables first, then tables, in declaration order; those whose optimizer
  // has no slots are in neither.
  std::vector<std::string> taken;
  std::vector<std::string> anew;
  // As in proto::Position: for each optimizer with bias corrections, the number
  // of updates that the slots taken over have seen; 0 for the others.
  std::vector<uint64_t> updates_before;
};

// Whether two variables have the same type and shape.
bool SameTensor(const proto::Variable& a, const proto::Variable& b);

// Decides which slots a job with `declaration` takes over from the checkpoint
// with manifest `from`. A variable's slots are taken over if the checkpoint has
// a variable of the same name, type and shape, whose update rule gave its slots
// the same meaning. A table's slots are taken over if the checkpoint has a
// table of the same name, row length and `row_wise`, whose update rule gave its
// slots the same meaning. The coordinator and the shards come to the same
// result, because they read the same manifest.
// Errors: FAILED_PRECONDITION when the variables and tables of one optimizer
// with bias corrections would begin with different numbers of updates.
absl::StatusOr<WarmSlots> PlanWarmSlots(const proto::Declaration& declaration,
                                        const proto::Manifest& from);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_WARM_SLOTS_H_

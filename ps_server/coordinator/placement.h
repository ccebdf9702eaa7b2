// SPDX-License-Identifier: Apache-2.0

// Decides which ps task holds which slices of each variable: once per job, by
// the coordinator, which hands the result to every client.
//
// Pure functions, safe from any thread; the result is the same on every
// machine.
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_PLACEMENT_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// The slices of the variables of `declaration`, which are float32, each with
// its ps: in the order of the variables and, within a variable, of its rows.
// Adjacent slices of a variable may be on the same ps.
//
// A variable is cut along its first dimension by its own partitioner, or else
// by the declaration's, or else not at all. With R rows of b bytes each, and P
// ps:
//
//   FixedShards  min(shards, R) slices.
//   MinSize      ceil(R b / min_slice_bytes), at most max_shards (P when it is
//                absent) and R.
//   MaxSize      ceil(R / floor(max_slice_bytes / b)), at most max_shards; R
//                when a row is larger.
//
// Of k slices, the first R mod k have one row more than the others. Scalars and
// variables without elements are one slice. (TensorFlow's
// distribute/sharded_variable.py and ops/partitioned_variables.py, and
// _iter_slices in ops/variable_scope.py.)
//
//   ROUND_ROBIN      the i-th slice goes to ps i mod P.
//   GREEDY_BY_BYTES  each in turn goes to the ps with the fewest bytes so far;
//                    ties go to the lowest index.
//
// Errors: INVALID_ARGUMENT when there is no ps, when the strategy is unknown,
// when a shape is refused by NumElements (the error names the variable), when
// the variables have more bytes than fit in an int64, or when the declaration
// and the slices would not fit in the one message that carries them to a
// client.
absl::StatusOr<std::vector<proto::Slice>> PlaceVariables(
    const proto::Declaration& declaration, uint32_t num_ps);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_PLACEMENT_H_

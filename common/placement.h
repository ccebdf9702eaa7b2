// Which ps task holds which variable. Decided once per job, by the coordinator,
// and handed to every client.
//
// Pure functions, safe from any thread; the same answer on every machine.
#ifndef HOLDFAST_COMMON_PLACEMENT_H_
#define HOLDFAST_COMMON_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/training.pb.h"

namespace holdfast {

// A float32 variable, as far as its place is concerned.
struct VariableShape {
  std::string name;
  std::vector<int64_t> shape;
};

// The index of the ps task that holds each of `variables`, which are in the
// order of their declaration.
//
//   ROUND_ROBIN      the i-th variable goes to ps i mod num_ps.
//   GREEDY_BY_BYTES  each in turn goes to the ps with the fewest bytes so far;
//   of
//                    equals, to the lowest index.
//
// Errors: INVALID_ARGUMENT when there is no ps, when a shape is refused by
// NumElements (the error names the variable), when the variables have more
// bytes than an int64 counts, or for an unknown strategy.
absl::StatusOr<std::vector<uint32_t>> PlaceVariables(
    absl::Span<const VariableShape> variables, uint32_t num_ps,
    proto::PlacementStrategy strategy);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PLACEMENT_H_

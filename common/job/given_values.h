// SPDX-License-Identifier: Apache-2.0

// First values that the declaring worker provides (proto::Initializer.Given).
//
// A variable's values have a digest for each range of kGivenRange elements
// (the last may be shorter), so a ps that receives a range can check that its
// values are the declared ones, however the variable is sliced. Pure functions,
// safe from any thread.
#ifndef HOLDFAST_COMMON_JOB_GIVEN_VALUES_H_
#define HOLDFAST_COMMON_JOB_GIVEN_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "proto/training.pb.h"

namespace holdfast {

// The number of elements in a range: 1 MiB of float32. With longer ranges, more
// ps receive values outside their slices if slices are small; shorter ranges
// make declarations longer.
inline constexpr uint64_t kGivenRange = uint64_t{1} << 18;

// The number of ranges of a variable with this many elements.
constexpr uint64_t NumGivenRanges(uint64_t elements) {
  return elements / kGivenRange + (elements % kGivenRange != 0);
}

// Checks the digests that `given` has for a variable with `elements`
// elements.
// Errors: INVALID_ARGUMENT when their number is wrong, or one of them is not a
// digest.
absl::Status CheckGiven(const proto::Initializer::Given& given,
                        uint64_t elements);

// The digest of `values`, which must be one range.
std::string GivenDigest(const Buffer& values);
std::string GivenDigest(absl::Span<const float> values);

// The digests of all ranges of a variable with these values.
proto::Initializer::Given GivenDigests(absl::Span<const float> values);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_GIVEN_VALUES_H_

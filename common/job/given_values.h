// First values that whoever declares a variable has (proto::Initializer.Given).
//
// A variable's values have a digest for each range of kGivenRange elements
// (the last may be shorter), so whoever holds one range can tell whether it
// is the declared one, however the variable is cut. Pure functions, safe from
// any thread.
#ifndef HOLDFAST_COMMON_JOB_GIVEN_VALUES_H_
#define HOLDFAST_COMMON_JOB_GIVEN_VALUES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tensor/buffer.h"
#include "proto/training.pb.h"

namespace holdfast {

// Elements: 1 MiB of float32. A longer one is sent in vain to more ps, where a
// variable is cut small; a shorter one makes declarations longer.
inline constexpr uint64_t kGivenRange = uint64_t{1} << 18;

// Of a variable with so many elements.
constexpr uint64_t NumGivenRanges(uint64_t elements) {
  return elements / kGivenRange + (elements % kGivenRange != 0);
}

// Errors: INVALID_ARGUMENT when a variable of so many elements has another
// number of digests, or one is none.
absl::Status CheckGiven(const proto::Initializer::Given& given,
                        uint64_t elements);

// The digest of one range, or of `values` that are one.
std::string GivenDigest(const Buffer& values);
std::string GivenDigest(absl::Span<const float> values);

// Those of all ranges.
proto::Initializer::Given GivenDigests(absl::Span<const float> values);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_GIVEN_VALUES_H_

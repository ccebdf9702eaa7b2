// SPDX-License-Identifier: Apache-2.0
#include "common/job/batch_ranges.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

// Sums and products that saturate at kMax.
uint64_t Sum(uint64_t a, uint64_t b) { return a > kMax - b ? kMax : a + b; }
uint64_t Product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMax : product;
}

// The batch of `seat` in `step`, if steps have `seats` seats; nothing if its
// end overflows. A ticket's batch is the batch of a step with one seat.
std::optional<PositionRange> Find(const BatchRanges::Options& options,
                                  uint64_t seats, uint64_t step,
                                  uint64_t seat) {
  uint64_t epoch_begin = 0;
  uint64_t epoch_size = kMax;
  if (options.short_last_batch) {
    epoch_size = options.num_examples;
    const uint64_t per_step = Product(seats, options.batch_size);
    const uint64_t steps = (epoch_size - 1) / per_step + 1;
    epoch_begin = Product(step / steps, epoch_size);
    step %= steps;
  }
  const uint64_t begin = std::min(
      Product(Sum(Product(step, seats), seat), options.batch_size), epoch_size);
  const uint64_t end = std::min(Sum(begin, options.batch_size), epoch_size);
  if (Sum(epoch_begin, end) > std::numeric_limits<int64_t>::max()) return {};
  return PositionRange{static_cast<int64_t>(epoch_begin + begin),
                       static_cast<int64_t>(end - begin)};
}

}  // namespace

absl::StatusOr<PositionRange> BatchRanges::OfSeat(uint64_t step,
                                                  int64_t seat) const {
  const auto range = Find(options_, options_.seats_per_step, step, seat);
  if (range.has_value()) return *range;
  return absl::OutOfRangeError(absl::StrCat(
      "the examples of seat ", seat, " in step ", step, " (",
      options_.seats_per_step, " seats x ", options_.batch_size,
      " examples a step) are beyond 2^63 - 1 in the training stream"));
}

absl::StatusOr<PositionRange> BatchRanges::OfTicket(uint64_t index) const {
  const auto range = Find(options_, /*seats=*/1, index, /*seat=*/0);
  if (range.has_value()) return *range;
  return absl::OutOfRangeError(absl::StrCat(
      "the examples of ticket ", index, " (", options_.batch_size,
      " examples each) are beyond 2^63 - 1 in the training stream"));
}

}  // namespace holdfast

#ifndef HOLDFAST_COMMON_RPC_RPC_LIMITS_H_
#define HOLDFAST_COMMON_RPC_RPC_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace holdfast {

// Of the contracts in proto/. Tasks of other versions are refused. What changes
// with it is told in docs/operating/compatibility.md.
inline constexpr uint32_t kProtocolVersion = 8;

// Bytes of tensors in one message, at most. Larger ones make a call's latency
// that of its slowest copy; smaller ones pay more round trips.
inline constexpr int64_t kPartBytes = int64_t{4} << 20;

// What a gRPC message may measure: a part, and room for what surrounds it.
inline constexpr int kMaxMessageBytes = 16 << 20;

// What the ranges of one pull may measure: their values as they are encoded,
// and what surrounds each of them.
inline constexpr uint64_t kMaxPullBytes = uint64_t{12} << 20;

// Bytes of a range that is lent to a neighbour, at least
// (docs/protocol/same_host.md): smaller ones are sent, which costs less
// (docs/performance.md, "On one host").
inline constexpr uint64_t kMinLentBytes = 64 << 10;

// How long a server parks a call at most, whatever the caller asks for.
inline constexpr absl::Duration kMaxPark = absl::Seconds(30);

// The same for Register: a parked one tells nothing about whether its process
// still lives.
inline constexpr absl::Duration kMaxRegisterPark = absl::Seconds(2);

// Pushes that a worker may have in the cluster without having acknowledged the
// verdicts of those before.
inline constexpr uint64_t kMaxUnacknowledgedPushes = 4096;

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_RPC_LIMITS_H_

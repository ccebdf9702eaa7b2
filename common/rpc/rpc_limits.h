// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_RPC_LIMITS_H_
#define HOLDFAST_COMMON_RPC_RPC_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace holdfast {

// The version of the protocol in proto/. Tasks with another version are
// refused. docs/operating/compatibility.md lists what each version changed.
inline constexpr uint32_t kProtocolVersion = 8;

// Maximum size of the tensors in one message, in bytes. A larger message takes
// longer to copy before any of it can be used; smaller ones cost more round
// trips.
inline constexpr int64_t kPartBytes = int64_t{4} << 20;

// Maximum size of a gRPC message, in bytes: a part, and room for its envelope.
inline constexpr int kMaxMessageBytes = 16 << 20;

// Maximum size of what one pull asks for, in bytes: the encoded values of its
// ranges, and the envelope of each range.
inline constexpr uint64_t kMaxPullBytes = uint64_t{12} << 20;

// Minimum size of a range that is lent to a neighbor
// (docs/protocol/same_host.md), in bytes. Sending a smaller range costs less
// than lending it (docs/reports/wire.md, "Small tensors on one host").
inline constexpr uint64_t kMinLentBytes = 64 << 10;

// The longest time that a server parks a call, whatever the caller asks for.
inline constexpr absl::Duration kMaxPark = absl::Seconds(30);

// The longest time that a server parks a Register. It is shorter, because a
// parked registration does not show whether its process is still alive.
inline constexpr absl::Duration kMaxRegisterPark = absl::Seconds(2);

// Maximum number of pushes that a worker may have in the cluster without having
// acknowledged their verdicts.
inline constexpr uint64_t kMaxUnacknowledgedPushes = 4096;

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_RPC_LIMITS_H_

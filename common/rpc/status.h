// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_STATUS_H_
#define HOLDFAST_COMMON_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace holdfast {

// Convert between the statuses of Abseil and of gRPC, whose codes are the same
// numbers. No other code does. Pure functions, safe from any thread.

// Both make messages printable, but keep their lines: a peer may send any
// bytes, and the text may become part of another message, which must be UTF-8.
//
// A message of more than kMaxStatusMessage bytes is truncated, because gRPC
// sends it as a header, and a header that is too long fails the whole call.
inline constexpr size_t kMaxStatusMessage = 4096;
grpc::Status ToGrpcStatus(const absl::Status& status);

// A code that Abseil does not know becomes UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_STATUS_H_

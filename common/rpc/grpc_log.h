// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_GRPC_LOG_H_
#define HOLDFAST_COMMON_RPC_GRPC_LOG_H_

namespace holdfast {

// Redirects gRPC's log to ours, at level INFO, with at most one line in ten
// seconds from the same source line: gRPC logs each failed attempt to connect,
// but not to which peer (Diagnosis does, common/rpc/diagnosis.h). Must be
// called before gRPC is used.
void LimitGrpcLog();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_GRPC_LOG_H_

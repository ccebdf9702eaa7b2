#ifndef HOLDFAST_COMMON_RPC_GRPC_LOG_H_
#define HOLDFAST_COMMON_RPC_GRPC_LOG_H_

namespace holdfast {

// Has gRPC write to our log, as INFO, and no more than one line each ten
// seconds from the same place: it tells of each attempt to connect that fails,
// though not with whom, which Diagnosis does (common/rpc/diagnosis.h). To be
// called before gRPC is used.
void LimitGrpcLog();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_GRPC_LOG_H_

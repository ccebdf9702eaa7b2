// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/rpc/rpc_limits.h"

namespace holdfast {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           uint32_t ps, ChannelKind kind,
                                           const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);

  if (kind == ChannelKind::kControl) {
    // By default, all channels to one address share a connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  }

  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepaliveTime));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Milliseconds(kKeepaliveTimeout));
  // A parked call sends no data while it is parked.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);

  // Tasks start in any order, so the first attempt often fails. gRPC raises
  // anything below 100 ms to 100 ms. "Min" is the time that one attempt to
  // connect may take.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);

  // A name may have another address after a restart (a replaced pod); by
  // default gRPC resolves it again only after 30 s.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);

  // Callers retry by themselves (common/rpc/backoff.h); gRPC would keep a copy
  // of each request that it may have to retry.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // No DNS look-ups of service configs, and no HTTP proxy.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);

  // Otherwise the ps logs that it has no certificate for the requested name.
  if (credentials.secure()) {
    arguments.SetSslTargetNameOverride(credentials.HostName(ps));
  }
  return grpc::CreateCustomChannel(address, credentials.ForChannel(ps),
                                   arguments);
}

}  // namespace holdfast

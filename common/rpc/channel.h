// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_RPC_CHANNEL_H_
#define HOLDFAST_COMMON_RPC_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/rpc/credentials.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace holdfast {

// What a channel carries. A small call that is queued behind tensors waits for
// them: beside 16 parts of 4 MiB, a small call took 13.9 ms on the same
// connection, and 0.27 ms on a connection of its own.
enum class ChannelKind {
  // Push, Pull and the like. Channels of one process to one ps may share a
  // connection.
  kTensors,
  // Leases, Contribute, Commit. Each channel has a connection of its own.
  kControl,
};

// How often a connection with calls in flight is tested, and how long the peer
// may take to answer. A server must permit pings at this rate
// (GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, half of
// kKeepaliveTime).
inline constexpr absl::Duration kKeepaliveTime = absl::Seconds(20);
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(10);

// Makes a channel to ps task `ps` at `address`, "host:port". The channel
// connects on first use, and reconnects after 0.1 s to 1 s whenever the
// connection is lost; calls made while it is not connected fail with
// UNAVAILABLE, and gRPC does not retry them. Thread-safe, as are channels.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           uint32_t ps, ChannelKind kind,
                                           const Credentials& credentials);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_RPC_CHANNEL_H_

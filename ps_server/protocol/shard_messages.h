// SPDX-License-Identifier: Apache-2.0

// The coordinator's messages to shards, as data. To add a message, change this
// file, proto/shard.proto, the operation that sends it, and the shard.
#ifndef HOLDFAST_PS_SERVER_PROTOCOL_SHARD_MESSAGES_H_
#define HOLDFAST_PS_SERVER_PROTOCOL_SHARD_MESSAGES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/rpc_limits.h"
#include "proto/shard.pb.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// For each type of request: the type of its answer, the name of its method in
// proto/shard.proto, and a text that says, for users, what the job waits for
// until all shards have answered.
template <typename Request>
struct ShardMethod;

template <>
struct ShardMethod<proto::RestoreRequest> {
  using Response = proto::RestoreResponse;
  static constexpr char kName[] = "Restore";
  static std::string Purpose(const proto::RestoreRequest& request);
};
template <>
struct ShardMethod<proto::CommitRequest> {
  using Response = proto::CommitResponse;
  static constexpr char kName[] = "Commit";
  static std::string Purpose(const proto::CommitRequest& request);
};
template <>
struct ShardMethod<proto::FenceRequest> {
  using Response = proto::FenceResponse;
  static constexpr char kName[] = "Fence";
  static std::string Purpose(const proto::FenceRequest& request);
};
template <>
struct ShardMethod<proto::ResolveRequest> {
  using Response = proto::ResolveResponse;
  static constexpr char kName[] = "Resolve";
  static std::string Purpose(const proto::ResolveRequest& request);
};
template <>
struct ShardMethod<proto::HoldRequest> {
  using Response = proto::HoldResponse;
  static constexpr char kName[] = "Hold";
  static std::string Purpose(const proto::HoldRequest& request);
};
template <>
struct ShardMethod<proto::SaveRequest> {
  using Response = proto::SaveResponse;
  static constexpr char kName[] = "Save";
  static std::string Purpose(const proto::SaveRequest& request);
};
template <>
struct ShardMethod<proto::AwaitSavedRequest> {
  using Response = proto::AwaitSavedResponse;
  static constexpr char kName[] = "AwaitSaved";
  static std::string Purpose(const proto::AwaitSavedRequest& request);
};
template <>
struct ShardMethod<proto::EndRequest> {
  using Response = proto::EndResponse;
  static constexpr char kName[] = "End";
  static std::string Purpose(const proto::EndRequest& request);
};

template <typename... Requests>
struct ShardMessages {
  using Request = std::variant<Requests...>;
  using Response = std::variant<typename ShardMethod<Requests>::Response...>;

  // Calls `visitor` with a null pointer to each type of request.
  template <typename Visitor>
  static void ForEach(Visitor visitor) {
    (visitor(static_cast<Requests*>(nullptr)), ...);
  }
};

using AllShardMessages =
    ShardMessages<proto::RestoreRequest, proto::CommitRequest,
                  proto::FenceRequest, proto::ResolveRequest,
                  proto::HoldRequest, proto::SaveRequest,
                  proto::AwaitSavedRequest, proto::EndRequest>;
using ShardRequest = AllShardMessages::Request;
// The alternative at each index is the answer to the ShardRequest alternative
// at the same index.
using ShardResponse = AllShardMessages::Response;

// Returns a reply that takes the answer to a `Request`, and passes it on to
// `reply`.
template <typename Request>
Reply<typename ShardMethod<Request>::Response> OfMethod(
    Reply<ShardResponse> reply) {
  using Response = typename ShardMethod<Request>::Response;
  return [reply = std::move(reply)](absl::StatusOr<Response> answer) mutable {
    if (!answer.ok()) return reply(std::move(answer).status());
    reply(ShardResponse(*std::move(answer)));
  };
}

// The reverse: returns a reply that takes any answer, which must be the answer
// to a `Request`, and passes it on to `reply`.
template <typename Request>
Reply<ShardResponse> ToMethod(
    Reply<typename ShardMethod<Request>::Response> reply) {
  using Response = typename ShardMethod<Request>::Response;
  return [reply = std::move(reply)](absl::StatusOr<ShardResponse> any) mutable {
    if (!any.ok()) return reply(std::move(any).status());
    reply(std::get<Response>(*std::move(any)));
  };
}

namespace internal {
template <typename Request, typename = void>
struct IsParked : std::false_type {};
template <typename Request>
struct IsParked<Request, std::void_t<decltype(&Request::wait_ms)>>
    : std::true_type {};
}  // namespace internal

// The maximum time for which a shard may park the call before it answers.
template <typename Request>
absl::Duration LongestPark(const Request& request) {
  if constexpr (internal::IsParked<Request>::value) {
    return std::min(absl::Milliseconds(request.wait_ms()), kMaxPark);
  } else {
    return absl::ZeroDuration();
  }
}

// The connections from the coordinator to the shards. Calls do not block. A
// reply may come at any time. If the message or its answer was lost, the reply
// is an error.
class ShardLinks {
 public:
  virtual ~ShardLinks() = default;
  // Sets the address of a ps. Called each time that a ps other than the
  // coordinator's own joins.
  virtual void SetAddress(uint32_t ps, const std::string& address) = 0;
  virtual void Send(uint32_t ps, const ShardRequest& request,
                    Reply<ShardResponse> reply) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PROTOCOL_SHARD_MESSAGES_H_

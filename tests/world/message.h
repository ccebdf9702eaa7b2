// SPDX-License-Identifier: Apache-2.0

// The messages in flight in a simulated world, as data.
#ifndef HOLDFAST_TESTS_WORLD_MESSAGE_H_
#define HOLDFAST_TESTS_WORLD_MESSAGE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/tensor/tensor_piece.h"
#include "google/protobuf/message.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/tensor_messages.h"
#include "ps_server/reply/reply.h"
#include "ps_server/shard/shard.h"

namespace holdfast::sim {

class World;

// A party that receives messages and reacts to them deterministically. A worker
// is the node of its process.
using Node = int;
inline constexpr uint32_t kMaxPs = 3;
inline constexpr Node kCoordinator = 0;
inline constexpr Node ShardNode(uint32_t ps) { return 1 + ps; }
inline constexpr Node kDisk = 1 + kMaxPs;
inline constexpr Node kOperator = kDisk + 1;
// The part of ps 0 that runs PushPull calls.
inline constexpr Node kExchanges = kOperator + 1;
inline constexpr Node kFirstWorker = kExchanges + 1;

class Exchanges;

// PushPullRequest with its tensors as buffers.
struct PushPull {
  proto::PushPullRequest request;
  std::vector<TensorPiece> tensors;
};

// ---- The messages ----

// Maps the type of a request to the type of its answer, the machine that takes
// it, and the method to call. One line for each type.
template <typename Request>
struct Rpc;

namespace internal {
template <auto method>
struct Method;
template <typename S, typename Request, typename R,
          void (S::*method)(const Request&, Reply<R>)>
struct Method<method> {
  using Server = S;
  using Response = R;
  static void Serve(Server* server, const Request& request, Reply<R> reply) {
    (server->*method)(request, std::move(reply));
  }
};
}  // namespace internal

template <>
struct Rpc<proto::RegisterRequest> : internal::Method<&Coordinator::Register> {
};
template <>
struct Rpc<proto::RenewLeaseRequest>
    : internal::Method<&Coordinator::RenewLease> {};
template <>
struct Rpc<proto::DeclareRequest> : internal::Method<&Coordinator::Declare> {};
template <>
struct Rpc<proto::GetPlacementRequest>
    : internal::Method<&Coordinator::GetPlacement> {};
template <>
struct Rpc<proto::ContributeRequest>
    : internal::Method<&Coordinator::Contribute> {};
template <>
struct Rpc<proto::TakeTicketRequest>
    : internal::Method<&Coordinator::TakeTicket> {};
template <>
struct Rpc<proto::ReportEvaluationRequest>
    : internal::Method<&Coordinator::ReportEvaluation> {};
template <>
struct Rpc<proto::LeaveRequest> : internal::Method<&Coordinator::Leave> {};
template <>
struct Rpc<proto::GetStatusRequest>
    : internal::Method<&Coordinator::GetStatus> {};
template <>
struct Rpc<proto::GetEventsRequest>
    : internal::Method<&Coordinator::GetEvents> {};
template <>
struct Rpc<proto::GetHistoryRequest>
    : internal::Method<&Coordinator::GetHistory> {};
template <>
struct Rpc<proto::CheckpointRequest>
    : internal::Method<&Coordinator::Checkpoint> {};
template <>
struct Rpc<proto::TraceRequest> : internal::Method<&Coordinator::Trace> {};
template <>
struct Rpc<proto::ReportTraceRequest>
    : internal::Method<&Coordinator::ReportTrace> {};
template <>
struct Rpc<proto::StopRequest> : internal::Method<&Coordinator::Stop> {};
template <>
struct Rpc<proto::NextEvaluationRequest>
    : internal::Method<&Coordinator::NextEvaluation> {};
template <>
struct Rpc<proto::SetLearningRateRequest>
    : internal::Method<&Coordinator::SetLearningRate> {};
template <>
struct Rpc<proto::ApplyRequest> : internal::Method<&Shard::Apply> {};
template <>
struct Rpc<proto::PullRequest> : internal::Method<&Shard::Pull> {};
template <>
struct Rpc<proto::PinRequest> : internal::Method<&Shard::Pin> {};
template <>
struct Rpc<proto::UnpinRequest> : internal::Method<&Shard::Unpin> {};
template <>
struct Rpc<proto::RestoreRequest> : internal::Method<&Shard::Restore> {};
template <>
struct Rpc<proto::CommitRequest> : internal::Method<&Shard::Commit> {};
template <>
struct Rpc<proto::FenceRequest> : internal::Method<&Shard::Fence> {};
template <>
struct Rpc<proto::ResolveRequest> : internal::Method<&Shard::Resolve> {};
template <>
struct Rpc<proto::HoldRequest> : internal::Method<&Shard::Hold> {};
template <>
struct Rpc<proto::SaveRequest> : internal::Method<&Shard::Save> {};
template <>
struct Rpc<proto::AwaitSavedRequest> : internal::Method<&Shard::AwaitSaved> {};
template <>
struct Rpc<proto::EndRequest> : internal::Method<&Shard::End> {};
template <>
struct Rpc<PushPart> {
  using Server = Shard;
  using Response = proto::PushResponse;
  static constexpr char kName[] = "Push";
  static void Serve(Shard* shard, const PushPart& part, Reply<Response> reply) {
    shard->Push(part, std::move(reply));
  }
};
template <>
struct Rpc<PushPull> {
  using Server = Exchanges;
  using Response = PushPullReply;
  static constexpr char kName[] = "PushPull";
  static void Serve(Exchanges* exchanges, const PushPull& call,
                    Reply<Response> reply);
};

template <>
struct Rpc<GivenPart> {
  using Server = Shard;
  using Response = proto::GiveResponse;
  static constexpr char kName[] = "Give";
  static void Serve(Shard* shard, const GivenPart& part,
                    Reply<Response> reply) {
    shard->Give(part, std::move(reply));
  }
};

template <typename T>
inline constexpr bool kIsProto =
    std::is_base_of_v<google::protobuf::Message, T>;

// The name of the method that takes a request.
template <typename Request>
const std::string& NameOf() {
  static const auto* const kName = [] {
    if constexpr (kIsProto<Request>) {
      std::string name = Request::descriptor()->name();
      return new std::string(name.substr(0, name.size() - 7));  // "Request"
    } else {
      return new std::string(Rpc<Request>::kName);
    }
  }();
  return *kName;
}

// The message as a protobuf; null if its type is not in proto/.
template <typename T>
const google::protobuf::Message* BodyOf(const T& message) {
  if constexpr (kIsProto<T>) {
    return &message;
  } else {
    return nullptr;
  }
}

// `message` as a `T`; null if it is of another type.
template <typename T>
const T* As(const google::protobuf::Message& message) {
  return message.GetDescriptor() == T::descriptor()
             ? static_cast<const T*>(&message)
             : nullptr;
}

// The bytes of tensors that a message carries or asks for.
template <typename T>
uint64_t TensorBytes(const T& message) {
  return 0;
}
inline uint64_t TensorBytes(const std::vector<TensorPiece>& tensors) {
  uint64_t bytes = 0;
  for (const TensorPiece& piece : tensors) {
    // Rows are never lent, and are cut into parts as small as possible.
    if (!piece.rows.has_value()) bytes += piece.data.size();
  }
  return bytes;
}
inline uint64_t TensorBytes(
    const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges) {
  uint64_t bytes = 0;
  for (const proto::ReadRange& range : ranges) {
    bytes += range.size() * sizeof(float);
  }
  return bytes;
}
inline uint64_t TensorBytes(const PushPart& part) {
  return TensorBytes(part.tensors);
}
inline uint64_t TensorBytes(const proto::PullRequest& request) {
  return TensorBytes(request.ranges());
}
inline uint64_t TensorBytes(const PullReply& reply) {
  return TensorBytes(reply.tensors);
}
inline uint64_t TensorBytes(const PushPull& call) {
  return std::max(TensorBytes(call.tensors),
                  TensorBytes(call.request.ranges()));
}
inline uint64_t TensorBytes(const PushPullReply& reply) {
  return TensorBytes(reply.tensors);
}

// ---- In flight ----

// A request, or the answer to one.
class Message {
 public:
  virtual ~Message() = default;

  // Delivers the message to its node. An answer to a node that has died is
  // dropped.
  virtual void Deliver(World* world) = 0;
  // The caller gets `status` instead of the answer. For a request, this puts an
  // answer in flight.
  virtual void Fail(World* world, const absl::Status& status) = 0;
  // For a request: a copy whose answer is dropped.
  virtual std::unique_ptr<Message> Repeat() const = 0;
  // For printing. body() is null for errors and if the type is not in proto/.
  virtual const google::protobuf::Message* body() const = 0;
  virtual std::string Text() const = 0;
  // See TensorBytes.
  virtual uint64_t tensor_bytes() const = 0;

  // Unique within the world.
  uint64_t serial = 0;
  // A hash of the content and of everything that led to it.
  uint64_t id = 0;
  Node from = kCoordinator;
  Node to = kCoordinator;
  const std::string* rpc = nullptr;
  bool is_request = true;
  // The length of the chain of messages that led to this one, and its position
  // among the messages of its sender.
  uint64_t depth = 0;
  uint64_t order = 0;
  // Whether the message was repeated, or given up by its caller. Such a message
  // outlives connections.
  bool stray = false;
  // Set by the scheduler: the number of quiet moments that must pass before the
  // message arrives.
  int hold = 0;
};

// A call whose caller has not been answered.
class OpenCall {
 public:
  virtual ~OpenCall() = default;
  virtual void Fail(World* world, const absl::Status& status) = 0;

  Node from = kCoordinator;
  Node to = kCoordinator;
  const std::string* rpc = nullptr;
  int from_life = 0;
  // The life of `to` that has taken the call; 0 if none has.
  int taken_by = 0;
  // Whether an answer is in flight or has arrived.
  bool answered = false;
  // What the scheduler has decided about the answer.
  bool answer_is_lost = false;
  bool answer_is_held = false;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_MESSAGE_H_

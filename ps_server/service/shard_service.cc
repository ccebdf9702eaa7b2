// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/shard_service.h"

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/validate.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/tensor_codec.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/shard_messages.h"
#include "ps_server/protocol/tensor_messages.h"
#include "ps_server/service/machine_method.h"

namespace holdfast {
namespace {

PushPart ToPushPart(proto::PushRequest request,
                    std::vector<TensorPiece> tensors) {
  PushPart part;
  part.sender = std::move(*request.mutable_sender());
  part.sequence = PushSequence(request.sequence());
  part.step = GlobalStep(request.step());
  part.part = request.part();
  part.num_parts = request.num_parts();
  part.acked_through = PushSequence(request.acked_through());
  part.tensors = std::move(tensors);
  return part;
}

// The ranges of a call whose values may be lent, and the task to which they may
// be lent.
struct Loans {
  proto::Sender sender;
  google::protobuf::RepeatedPtrField<proto::ReadRange> ranges;
};

// Returns the loans that `request` offers; null if nothing may be lent.
template <typename Request>
std::unique_ptr<const Loans> LoansOf(const Request& request) {
  for (const proto::ReadRange& range : request.ranges()) {
    if (!range.has_loan()) continue;
    return std::make_unique<const Loans>(
        Loans{request.sender(), request.ranges()});
  }
  return nullptr;
}

// Encodes an answer with tensors, which are sent from where they are unless
// they are lent.
template <typename Response>
absl::StatusOr<grpc::ByteBuffer> Encode(const Machines& machines,
                                        const Loans* loans,
                                        const Response& response,
                                        std::vector<TensorPiece> tensors) {
  if (loans != nullptr && machines.neighbors != nullptr) {
    machines.neighbors->Lend(loans->sender,
                             {response.generation(), response.version()},
                             loans->ranges, &tensors);
  }
  // Only here is it known what a variable's name and shape add to each of its
  // ranges.
  const int64_t bytes = EncodedBytes(tensors);
  if (bytes <= kMaxMessageBytes) return EncodeWithTensors(response, tensors);
  const std::string text = absl::StrCat(
      "ranges: ", bytes, " bytes in the answer, at most ", kMaxMessageBytes,
      " in one call; ask for fewer ranges at once");
  if (loans == nullptr) return absl::InvalidArgumentError(text);
  return absl::OutOfRangeError(absl::StrCat(
      "not all of what was asked for can be lent at the moment: ", text));
}

absl::StatusOr<grpc::ByteBuffer> Encode(const Machines& machines,
                                        const Loans* loans,
                                        absl::StatusOr<PullReply> reply) {
  if (!reply.ok()) return std::move(reply).status();
  proto::PullResponse response;
  response.set_generation(reply->generation.value());
  *response.mutable_state() = std::move(reply->state);
  response.set_version(reply->version.value());
  response.set_loss_scale(reply->loss_scale);
  return Encode(machines, loans, response, std::move(reply->tensors));
}

absl::StatusOr<grpc::ByteBuffer> Encode(const Machines& machines,
                                        const Loans* loans,
                                        absl::StatusOr<PushPullReply> reply) {
  if (!reply.ok()) return std::move(reply).status();
  auto bytes =
      Encode(machines, loans, reply->response, std::move(reply->tensors));
  // The push is decided, so the answer goes without the values, which must be
  // pulled.
  if (!absl::IsOutOfRange(bytes.status())) return bytes;
  return EncodeWithTensors(reply->response, {});
}

template <typename Response>
absl::StatusOr<grpc::ByteBuffer> Encode(
    const absl::StatusOr<Response>& response) {
  if (!response.ok()) return response.status();
  grpc::ByteBuffer bytes;
  HOLDFAST_RETURN_IF_ERROR(ToBytes(*response, &bytes));
  return bytes;
}

// Refuses a pull whose values alone exceed the limit, before any memory is
// taken for it. The shard also counts what surrounds the values.
absl::Status CheckFitsInAnswer(
    const google::protobuf::RepeatedPtrField<proto::ReadRange>& ranges) {
  uint64_t bytes = 0;
  for (int i = 0; i < ranges.size(); ++i) {
    const proto::ReadRange& range = ranges[i];
    bytes += ValueBytes(range, kMaxPullBytes + 1) + range.variable().size();
    if (bytes <= kMaxPullBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "ranges[", i, "]: with the ", range.size(), " elements of variable \"",
        range.variable(), "\" from ", range.begin(), " the answer exceeds ",
        kMaxPullBytes, " bytes, the maximum of one call"));
  }
  return absl::OkStatus();
}

// Parses a request from the bytes in which it came.
// Errors: INVALID_ARGUMENT for bytes that do not parse as the message, or break
// the rules of its proto; PERMISSION_DENIED for a request in another's name.
template <typename Request>
absl::Status Decode(const Caller& caller, const grpc::ByteBuffer& bytes,
                    Request* request, std::vector<TensorPiece>* tensors) {
  if (!DecodeWithTensors(bytes, request, tensors)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the request does not parse as ", Request::descriptor()->full_name()));
  }
  absl::Status valid = CheckSender(caller, request->sender());
  return valid.ok() ? ValidateMessage(*request) : valid;
}

// Replaces the locations in shared memory that tensors name by the bytes there.
// Errors: those of Neighbors::Borrow; INVALID_ARGUMENT for a tensor that has
// both bytes and a location.
absl::Status Borrow(const Machines& machines, const proto::Sender& sender,
                    std::vector<TensorPiece>* tensors) {
  bool any = false;
  for (const TensorPiece& piece : *tensors) {
    if (!piece.shared.has_value()) continue;
    any = true;
    if (piece.data.size() > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", piece.variable, "\": both data and shared are set"));
    }
    if (machines.neighbors == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("variable \"", piece.variable,
                       "\": this ps has no link for its shared bytes"));
    }
  }
  return any ? machines.neighbors->Borrow(sender, tensors) : absl::OkStatus();
}

// Checks that the data was sent: a digest needs bytes that no other process can
// still change.
absl::Status CheckIsSent(const std::vector<TensorPiece>& tensors) {
  for (const TensorPiece& piece : tensors) {
    if (!piece.shared.has_value()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", piece.variable,
                     "\": given values must be sent, not shared"));
  }
  return absl::OkStatus();
}

void Link(const Machines& machines, const std::string& no_links,
          const Caller& caller, grpc::ByteBuffer bytes,
          Reply<grpc::ByteBuffer> reply) {
  proto::LinkRequest request;
  absl::Status valid = FromBytes(&bytes, &request);
  if (valid.ok()) valid = CheckSender(caller, request.sender());
  if (valid.ok()) valid = ValidateMessage(request);
  if (!valid.ok()) return reply(std::move(valid));
  absl::StatusOr<proto::LinkResponse> response = proto::LinkResponse();
  if (machines.neighbors == nullptr) {
    response->set_refusal(no_links);
  } else {
    response = machines.neighbors->Link(request);
  }
  machines.shard_strand->RunOrPost([shard = machines.shard,
                                    response = std::move(response),
                                    reply = std::move(reply)]() mutable {
    response->set_generation(shard->generation().value());
    reply(Encode(response));
  });
}

void Give(const Machines& machines, const Caller& caller,
          grpc::ByteBuffer bytes, Reply<grpc::ByteBuffer> reply) {
  proto::GiveRequest request;
  GivenPart part;
  absl::Status valid = Decode(caller, bytes, &request, &part.tensors);
  bytes.Clear();  // the tensors keep what they need of them
  if (valid.ok()) valid = CheckIsSent(part.tensors);
  if (!valid.ok()) return reply(std::move(valid));
  part.sender = std::move(*request.mutable_sender());
  machines.shard_strand->Post([shard = machines.shard, part = std::move(part),
                               reply = std::move(reply)]() mutable {
    shard->Give(
        part, [reply = std::move(reply)](
                  const absl::StatusOr<proto::GiveResponse>& response) mutable {
          reply(Encode(response));
        });
  });
}

void Push(const Machines& machines, const Caller& caller,
          grpc::ByteBuffer bytes, Reply<grpc::ByteBuffer> reply) {
  proto::PushRequest request;
  std::vector<TensorPiece> tensors;
  absl::Status valid = Decode(caller, bytes, &request, &tensors);
  bytes.Clear();  // the tensors keep what they need of them
  if (valid.ok()) valid = Borrow(machines, request.sender(), &tensors);
  if (!valid.ok()) return reply(std::move(valid));
  Reply<proto::PushResponse> answer =
      [reply = std::move(reply)](
          const absl::StatusOr<proto::PushResponse>& response) mutable {
        reply(Encode(response));
      };
  answer = Recorded(machines.recorder, request, std::move(answer));
  machines.shard_strand->RunOrPost(
      [shard = machines.shard,
       part = ToPushPart(std::move(request), std::move(tensors)),
       answer = std::move(answer)]() mutable {
        shard->Push(std::move(part), std::move(answer));
      });
}

void Pull(const Machines& machines, const Caller& caller,
          grpc::ByteBuffer bytes, Reply<grpc::ByteBuffer> reply) {
  proto::PullRequest request;
  absl::Status valid = FromBytes(&bytes, &request);
  if (valid.ok()) valid = CheckSender(caller, request.sender());
  if (valid.ok()) valid = ValidateMessage(request);
  if (valid.ok()) valid = CheckFitsInAnswer(request.ranges());
  if (!valid.ok()) return reply(std::move(valid));
  Reply<PullReply> answer =
      [machines, loans = LoansOf(request),
       reply = std::move(reply)](absl::StatusOr<PullReply> values) mutable {
        reply(Encode(machines, loans.get(), std::move(values)));
      };
  answer = Recorded(machines.recorder, request, std::move(answer));
  machines.shard_strand->RunOrPost([shard = machines.shard,
                                    request = std::move(request),
                                    answer = std::move(answer)]() mutable {
    shard->Pull(request, std::move(answer));
  });
}

void PushAndPull(const Machines& machines, const Caller& caller,
                 grpc::ByteBuffer bytes, Reply<grpc::ByteBuffer> reply) {
  proto::PushPullRequest request;
  std::vector<TensorPiece> tensors;
  absl::Status valid = Decode(caller, bytes, &request, &tensors);
  bytes.Clear();
  if (valid.ok()) valid = CheckFitsInAnswer(request.ranges());
  if (valid.ok() && machines.coordinator == nullptr) {
    valid = absl::FailedPreconditionError(
        "the job has several ps: call Push, Contribute or Apply, and Pull");
  }
  if (valid.ok()) valid = Borrow(machines, request.sender(), &tensors);
  if (!valid.ok()) return reply(std::move(valid));
  Reply<PushPullReply> answer =
      [machines, loans = LoansOf(request),
       reply = std::move(reply)](absl::StatusOr<PushPullReply> values) mutable {
        reply(Encode(machines, loans.get(), std::move(values)));
      };
  answer = Recorded(machines.recorder, request, std::move(answer));
  PushPull(machines, std::move(request), std::move(tensors), std::move(answer));
}

std::string FullName(const std::string& method) {
  return absl::StrCat("/holdfast.proto.Shard/", method);
}

}  // namespace

RpcMethods ShardMethods(const Machines& machines, const std::string& no_links) {
  RpcMethods methods;
  // The tensors of these methods stay in the memory in which they came, and are
  // sent from where they are.
  const auto add_with_tensors = [&](const char* name, auto handle) {
    methods[FullName(name)] = [machines, handle](
                                  const Caller& caller, grpc::ByteBuffer bytes,
                                  Reply<grpc::ByteBuffer> reply) {
      handle(machines, caller, std::move(bytes), std::move(reply));
    };
  };
  add_with_tensors("Give", &Give);
  add_with_tensors("Push", &Push);
  add_with_tensors("Pull", &Pull);
  add_with_tensors("PushPull", &PushAndPull);

  methods[FullName("Link")] = [machines, no_links](
                                  const Caller& caller, grpc::ByteBuffer bytes,
                                  Reply<grpc::ByteBuffer> reply) {
    Link(machines, no_links, caller, std::move(bytes), std::move(reply));
  };

  const auto add = [&](const char* name, auto method) {
    methods[FullName(name)] =
        MachineMethod(machines.shard_strand, &Strand::Post, machines.shard,
                      method, machines.recorder);
  };
  add("Apply", &Shard::Apply);
  add("Pin", &Shard::Pin);
  add("Unpin", &Shard::Unpin);
  AllShardMessages::ForEach([&](auto* type) {
    using Request = std::remove_pointer_t<decltype(type)>;
    add(ShardMethod<Request>::kName, kShardHandler<Request>);
  });
  return methods;
}

}  // namespace holdfast

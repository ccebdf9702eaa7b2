// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/raw_client.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace holdfast {
namespace {

using google::protobuf::TextFormat;

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

void SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(GrpcDeadline(SteadyNow() + timeout));
}

}  // namespace

RawClient::RawClient(const std::string& address, uint32_t ps,
                     const Credentials& credentials)
    : RawClient(MakeChannel(address, ps, ChannelKind::kControl, credentials)) {}

RawClient::RawClient(std::shared_ptr<grpc::Channel> channel)
    : channel_(std::move(channel)),
      coordinator_(proto::Coordinator::NewStub(channel_)),
      shard_(proto::Shard::NewStub(channel_)) {
  using C = proto::Coordinator::Stub;
  Add("Coordinator.Register", coordinator_.get(), &C::Register);
  Add("Coordinator.RenewLease", coordinator_.get(), &C::RenewLease);
  Add("Coordinator.Declare", coordinator_.get(), &C::Declare);
  Add("Coordinator.GetPlacement", coordinator_.get(), &C::GetPlacement);
  Add("Coordinator.Contribute", coordinator_.get(), &C::Contribute);
  Add("Coordinator.TakeTicket", coordinator_.get(), &C::TakeTicket);
  Add("Coordinator.ReportEvaluation", coordinator_.get(), &C::ReportEvaluation);
  Add("Coordinator.Leave", coordinator_.get(), &C::Leave);
  Add("Coordinator.GetStatus", coordinator_.get(), &C::GetStatus);
  Add("Coordinator.GetEvents", coordinator_.get(), &C::GetEvents);
  Add("Coordinator.GetHistory", coordinator_.get(), &C::GetHistory);
  Add("Coordinator.Checkpoint", coordinator_.get(), &C::Checkpoint);
  Add("Coordinator.Trace", coordinator_.get(), &C::Trace);
  Add("Coordinator.ReportTrace", coordinator_.get(), &C::ReportTrace);
  Add("Coordinator.Stop", coordinator_.get(), &C::Stop);
  using S = proto::Shard::Stub;
  Add("Shard.Give", shard_.get(), &S::Give);
  Add("Shard.Push", shard_.get(), &S::Push);
  Add("Shard.Apply", shard_.get(), &S::Apply);
  Add("Shard.Fence", shard_.get(), &S::Fence);
  Add("Shard.Resolve", shard_.get(), &S::Resolve);
  Add("Shard.Pull", shard_.get(), &S::Pull);
  Add("Shard.PushPull", shard_.get(), &S::PushPull);
  Add("Shard.Pin", shard_.get(), &S::Pin);
  Add("Shard.Unpin", shard_.get(), &S::Unpin);
  Add("Shard.Link", shard_.get(), &S::Link);
  Add("Shard.Restore", shard_.get(), &S::Restore);
  Add("Shard.Commit", shard_.get(), &S::Commit);
  Add("Shard.Hold", shard_.get(), &S::Hold);
  Add("Shard.Save", shard_.get(), &S::Save);
  Add("Shard.AwaitSaved", shard_.get(), &S::AwaitSaved);
  Add("Shard.End", shard_.get(), &S::End);
}

template <typename Stub, typename Request, typename Response>
void RawClient::Add(const std::string& name, Stub* stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                 const Request&, Response*)) {
  methods_[name] = [stub, method](
                       const std::string& text,
                       absl::Duration timeout) -> absl::StatusOr<std::string> {
    Request request;
    CHECK(TextFormat::ParseFromString(text, &request)) << text;
    grpc::ClientContext context;
    SetTimeout(&context, timeout);
    Response response;
    const grpc::Status status = (stub->*method)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.ShortDebugString();
  };
}

absl::StatusOr<std::string> RawClient::Call(absl::string_view method,
                                            const std::string& request,
                                            absl::Duration timeout) const {
  const auto found = methods_.find(method);
  CHECK(found != methods_.end()) << method;
  return found->second(request, timeout);
}

absl::StatusOr<std::string> RawClient::CallBytes(const std::string& path,
                                                 const std::string& request,
                                                 absl::Duration timeout) const {
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  grpc::GenericStub stub(channel_);
  const grpc::ByteBuffer sent = ToBuffer(request);
  grpc::ByteBuffer answer;
  absl::Notification done;
  grpc::Status result;
  stub.UnaryCall(&context, path, {}, &sent, &answer,
                 [&](const grpc::Status& status) {
                   result = status;
                   done.Notify();
                 });
  done.WaitForNotification();
  if (!result.ok()) return FromGrpcStatus(result);
  return ToString(answer);
}

}  // namespace holdfast

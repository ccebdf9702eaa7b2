// SPDX-License-Identifier: Apache-2.0
#include "tests/world/client_transport.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/rpc.h"
#include "common/tensor/buffer.h"
#include "tests/world/world.h"

namespace holdfast::sim {
namespace {

namespace rpc = client::rpc;

// Copies, because messages in flight must not refer to memory of the user.
std::vector<TensorPiece> CopyOf(absl::Span<const TensorPiece> pieces) {
  std::vector<TensorPiece> copies(pieces.begin(), pieces.end());
  for (TensorPiece& copy : copies) {
    std::string bytes(copy.data.size(), '\0');
    copy.data.CopyTo(bytes.data());
    copy.data = Buffer::FromString(std::move(bytes));
  }
  return copies;
}

// ---- Answers, in the form that the client gets ----

struct Response {
  google::protobuf::Message* message;
  std::vector<TensorPiece>* tensors;
};

absl::Status NotLent() {
  return absl::OutOfRangeError("not all of its tensors can be lent");
}

// `fits`: whether the tensors of the answer can be lent or sent. If not, a ps
// returns that as an error [H6].
absl::Status Put(const google::protobuf::Message& answer, bool fits,
                 const Response& response) {
  response.message->CopyFrom(answer);
  return absl::OkStatus();
}
absl::Status Put(const PullReply& answer, bool fits, const Response& response) {
  if (!fits) return NotLent();
  auto& message = static_cast<proto::PullResponse&>(*response.message);
  message.set_generation(answer.generation.value());
  *message.mutable_state() = answer.state;
  message.set_version(answer.version.value());
  message.set_loss_scale(answer.loss_scale);
  *response.tensors = answer.tensors;
  return absl::OkStatus();
}
absl::Status Put(const PushPullReply& answer, bool fits,
                 const Response& response) {
  response.message->CopyFrom(answer.response);
  if (fits) *response.tensors = answer.tensors;
  return absl::OkStatus();
}

}  // namespace

class ClientTransport::Pause : public Operation,
                               public std::enable_shared_from_this<Pause> {
 public:
  Pause(ClientTransport* transport, absl::AnyInvocable<void()> over)
      : transport_(*transport), over_(std::move(over)) {}

  void EndAfter(absl::Duration delay) {
    transport_.world_->After(transport_.node_, delay,
                             [self = shared_from_this()] { self->End(); });
  }
  void Cancel() override { over_ = nullptr; }

 private:
  void End() {
    if (over_ == nullptr) return;
    std::exchange(over_, nullptr)();
    transport_.on_event_();
  }

  ClientTransport& transport_;
  absl::AnyInvocable<void()> over_;
};

class ClientTransport::Sending : public AttemptOperation,
                                 public std::enable_shared_from_this<Sending> {
 public:
  Sending(ClientTransport* transport, client::Attempt attempt)
      : transport_(*transport), attempt_(std::move(attempt)) {}

  void Start() override {
    if (attempt_.done == nullptr) return;
    const Node shard = ShardNode(attempt_.ps);
    const bool sent = SendIf(rpc::kDeclare, kCoordinator) ||
                      SendIf(rpc::kGetPlacement, kCoordinator) ||
                      SendIf(rpc::kContribute, kCoordinator) ||
                      SendIf(rpc::kTakeTicket, kCoordinator) ||
                      SendIf(rpc::kReportEvaluation, kCoordinator) ||
                      SendIf(rpc::kLeave, kCoordinator) ||
                      SendIf(rpc::kApply, shard) || SendIf(rpc::kPin, shard) ||
                      SendIf(rpc::kUnpin, shard) || SendPull(shard) ||
                      SendPush(shard) || SendPushPull() || SendGive(shard);
    if (!sent) {
      transport_.world_->Violate(
          absl::StrCat("the world has no ", attempt_.rpc->path));
    }
  }
  // The attempt is not touched after this.
  void Cancel() override { attempt_.done = nullptr; }

 private:
  template <typename Request, typename Answer>
  bool SendIf(const client::RpcOf<Request, Answer>& method, Node to) {
    if (attempt_.rpc != &method) return false;
    Send(to, static_cast<const Request&>(*attempt_.request));
    return true;
  }
  bool SendPull(Node to) {
    if (attempt_.rpc != &rpc::kPull) return false;
    Send(to, static_cast<const proto::PullRequest&>(*attempt_.request));
    return true;
  }
  bool SendPush(Node to) {
    if (attempt_.rpc != &rpc::kPush) return false;
    const auto& request =
        static_cast<const proto::PushRequest&>(*attempt_.request);
    PushPart part;
    part.sender = request.sender();
    part.sequence = PushSequence(request.sequence());
    part.step = GlobalStep(request.step());
    part.part = request.part();
    part.num_parts = request.num_parts();
    part.acked_through = PushSequence(request.acked_through());
    part.tensors = CopyOf(attempt_.request_tensors);
    Send(to, part);
    return true;
  }
  bool SendGive(Node to) {
    if (attempt_.rpc != &rpc::kGive) return false;
    Send(to,
         GivenPart{
             static_cast<const proto::GiveRequest&>(*attempt_.request).sender(),
             CopyOf(attempt_.request_tensors)});
    return true;
  }
  bool SendPushPull() {
    if (attempt_.rpc != &rpc::kPushPull) return false;
    PushPull call;
    call.request =
        static_cast<const proto::PushPullRequest&>(*attempt_.request);
    call.tensors = CopyOf(attempt_.request_tensors);
    Send(kExchanges, call);
    return true;
  }

  template <typename Request>
  void Send(Node to, const Request& request) {
    using Answer = typename Rpc<Request>::Response;
    // Within Start, as in Wire.
    if (!transport_.Fits(TensorBytes(request))) {
      return std::exchange(attempt_.done, nullptr)(NotLent());
    }
    transport_.world_->Call<Request>(
        transport_.node_, to, request,
        [self = shared_from_this()](absl::StatusOr<Answer> answer) {
          self->OnAnswer(answer);
        });
  }
  template <typename Answer>
  void OnAnswer(const absl::StatusOr<Answer>& answer) {
    if (attempt_.done == nullptr) return;
    absl::Status status = answer.status();
    if (status.ok()) {
      status = Put(*answer, transport_.Fits(TensorBytes(*answer)),
                   {attempt_.response, attempt_.response_tensors});
    }
    std::exchange(attempt_.done, nullptr)(status);
    transport_.on_event_();
  }

  ClientTransport& transport_;
  client::Attempt attempt_;
};

ClientTransport::ClientTransport(World* world, Node node, uint64_t seed,
                                 std::function<void()> on_event)
    : world_(world),
      node_(node),
      random_(seed),
      on_event_(std::move(on_event)) {}

absl::Time ClientTransport::Now() const { return world_->Now(); }

std::vector<bool> ClientTransport::linked() {
  return std::vector<bool>(world_->job().lends ? world_->num_ps() : 0, true);
}

bool ClientTransport::Fits(uint64_t tensor_bytes) {
  if (!world_->MustBeLent(tensor_bytes) || world_->scheduler()->Lends(node_)) {
    return true;
  }
  world_->MixIntoHistory(node_, 8);
  return false;
}

std::shared_ptr<client::Transport::AttemptOperation> ClientTransport::Prepare(
    client::Attempt attempt) {
  return std::make_shared<Sending>(this, std::move(attempt));
}

std::shared_ptr<client::Transport::Operation> ClientTransport::After(
    absl::Duration delay, absl::AnyInvocable<void()> over) {
  auto pause = std::make_shared<Pause>(this, std::move(over));
  pause->EndAfter(delay);
  return pause;
}

void ClientTransport::Wait(absl::FunctionRef<bool()>, absl::Time) {
  world_->Violate("a client waits for a handle that is not done");
}

}  // namespace holdfast::sim

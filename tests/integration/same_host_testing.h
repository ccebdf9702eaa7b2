// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_INTEGRATION_SAME_HOST_TESTING_H_
#define HOLDFAST_TESTS_INTEGRATION_SAME_HOST_TESTING_H_

#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/link_socket.h"
#include "common/shared_memory/sealed_file.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/shard.grpc.pb.h"
#include "tests/integration/loopback.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {

inline constexpr uint64_t kLong = 30000;
// 32 MiB, twice the size of a message.
inline constexpr uint64_t kElements = uint64_t{8} << 20;
inline constexpr uint64_t kBytes = kElements * sizeof(float);
// The smallest number of elements that is lent.
inline constexpr uint64_t kLeast = kMinLentBytes / sizeof(float);

template <typename Stub, typename Request, typename Response>
absl::Status Call(Stub* stub,
                  grpc::Status (Stub::*method)(grpc::ClientContext*,
                                               const Request&, Response*),
                  const Request& request, Response* response) {
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(Soon()));
  context.set_wait_for_ready(true);
  return FromGrpcStatus((stub->*method)(&context, request, response));
}

// The only worker of a job with the variable "w", whose initial values are all
// 10, and a learning rate of 1; and the worker's link.
class SameHostTest : public testing::Test {
 protected:
  using Coordinator = proto::Coordinator::Stub;
  using Shard = proto::Shard::Stub;

  void SetUpJob(bool same_host) {
    cluster_ = std::make_unique<TestCluster>(
        MakeLoopbackCluster(1, 1), kLongLease,
        std::function<Credentials(const TaskId&)>(),
        [&](Server::Options* options) { options->same_host = same_host; });
    const auto channel = [&](ChannelKind kind) {
      return MakeChannel(cluster_->address(0), /*ps=*/0, kind, Credentials());
    };
    coordinator_ = proto::Coordinator::NewStub(channel(ChannelKind::kControl));
    shard_ = proto::Shard::NewStub(channel(ChannelKind::kTensors));

    sender_.mutable_task()->set_job("worker");
    proto::RegisterRequest request;
    *request.mutable_sender() = sender_;
    request.set_nonce(1);
    request.set_protocol_version(kProtocolVersion);
    request.set_process("test");
    request.set_job_digest("job");
    request.set_data_digest("data");
    request.set_num_ps(1);
    request.set_num_workers(1);
    proto::RegisterResponse registered;
    ASSERT_EQ(
        Call(coordinator_.get(), &Coordinator::Register, request, &registered),
        absl::OkStatus());
    sender_.set_incarnation(registered.incarnation());
    sender_.set_generation(registered.generation());

    proto::DeclareRequest declare;
    *declare.mutable_sender() = sender_;
    proto::Declaration& declaration = *declare.mutable_declaration();
    proto::Variable& w = *declaration.add_variables();
    w.set_name("w");
    w.add_shape(kElements);
    w.set_dtype(proto::FLOAT32);
    w.mutable_initializer()->mutable_constant()->set_value(10);
    declaration.add_optimizers()->set_learning_rate(1);
    declaration.mutable_optimizers(0)->mutable_sgd();
    declaration.mutable_consistency()->mutable_synchronous();
    declaration.set_total_steps(10);
    proto::DeclareResponse declared;
    ASSERT_EQ(
        Call(coordinator_.get(), &Coordinator::Declare, declare, &declared),
        absl::OkStatus());
    proto::GetPlacementRequest place;
    *place.mutable_sender() = sender_;
    place.set_wait_ms(kLong);
    proto::GetPlacementResponse placement;
    do {
      ASSERT_EQ(Call(coordinator_.get(), &Coordinator::GetPlacement, place,
                     &placement),
                absl::OkStatus());
    } while (!placement.ready());
  }

  proto::LinkResponse AskForLink() {
    proto::LinkRequest request;
    *request.mutable_sender() = sender_;
    request.set_boot_id(BootId());
    proto::LinkResponse response;
    EXPECT_EQ(Call(shard_.get(), &Shard::Link, request, &response),
              absl::OkStatus());
    EXPECT_EQ(response.generation(), sender_.generation());
    return response;
  }

  void MakeLink() {
    const proto::LinkResponse response = AskForLink();
    ASSERT_EQ(response.refusal(), "");
    link_ = response.link();
    socket_ = *LinkSocket::Connect(response.path());
    board_ = *LoanMaker::Create();
    LinkMessage hello;
    hello.kind = LinkMessage::Kind::kHello;
    hello.link = response.link();
    hello.secret = response.secret();
    hello.fd = UniqueFd(fcntl(board_->file().fd(), F_DUPFD_CLOEXEC, 0));
    ASSERT_EQ(socket_->Send(hello), absl::OkStatus());
    const auto welcome = socket_->Receive(kPatience);
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    ASSERT_EQ(welcome->kind, LinkMessage::Kind::kWelcome);
  }

  void FillLoan(LoanId loan, proto::Loan* message) const {
    message->set_link(link_);
    message->set_slot(loan.slot);
    message->set_serial(loan.serial);
  }
  proto::ReadRange Range(uint64_t size, LoanId loan) const {
    proto::ReadRange range;
    range.set_variable("w");
    range.set_size(size);
    FillLoan(loan, range.mutable_loan());
    return range;
  }
  absl::StatusOr<proto::PullResponse> Pull(const proto::ReadRange& range) {
    proto::PullRequest request;
    *request.mutable_sender() = sender_;
    request.set_min_version(0);
    *request.add_ranges() = range;
    proto::PullResponse response;
    HOLDFAST_RETURN_IF_ERROR(
        Call(shard_.get(), &Shard::Pull, request, &response));
    return response;
  }

  // Creates file 1, for gradients of "w", and announces it to the ps.
  std::unique_ptr<SealedFile> MakeRegion() {
    auto region =
        SealedFile::Create("region", kBytes, SealedFile::Writers::kOwner);
    EXPECT_TRUE(region.ok()) << region.status();
    LinkMessage file;
    file.kind = LinkMessage::Kind::kFile;
    file.file = 1;
    file.size = (*region)->size();
    file.fd = UniqueFd(fcntl((*region)->fd(), F_DUPFD_CLOEXEC, 0));
    EXPECT_EQ(socket_->Send(file), absl::OkStatus());
    return *std::move(region);
  }

  // The first and the last of the values that `part` refers to.
  std::pair<float, float> Ends(const proto::TensorPart& part) {
    const proto::SharedBytes& place = part.shared();
    while (files_.count(place.file()) == 0) {
      const auto message = socket_->Receive(kPatience);
      if (!message.ok()) {
        ADD_FAILURE() << message.status();
        return {};
      }
      files_[message->file] =
          *PeerFile::Map(message->fd, message->size, PeerFile::Access::kRead);
    }
    const char* const data = files_[place.file()]->data() + place.offset();
    std::pair<float, float> ends;
    std::memcpy(&ends.first, data, sizeof(float));
    std::memcpy(&ends.second, data + place.size() - sizeof(float),
                sizeof(float));
    return ends;
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Shard> shard_;
  proto::Sender sender_;
  uint64_t link_ = 0;
  std::unique_ptr<LinkSocket> socket_;
  std::unique_ptr<LoanMaker> board_;
  std::map<uint32_t, std::unique_ptr<PeerFile>> files_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_SAME_HOST_TESTING_H_

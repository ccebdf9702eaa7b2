#include "ps_server/membership.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kLease = absl::Milliseconds(300);

// A coordinator that says what the test tells it to. The port is free again
// when it is destroyed.
class PuppetCoordinator final : public proto::Coordinator::Service {
 public:
  PuppetCoordinator() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  // Answers what was asked before.
  ~PuppetCoordinator() override { server_->Shutdown(); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // To be set before a Membership is made.
  grpc::Status registration;
  proto::JobState state;

  // A lease was renewed.
  absl::Notification renewed;
  // What it was told; to be read once a lease was renewed.
  proto::RegisterRequest registered;
  // What the last Leave said.
  std::string left_with;

 private:
  grpc::Status Register(grpc::ServerContext*,
                        const proto::RegisterRequest* request,
                        proto::RegisterResponse* response) override {
    registered = *request;
    response->set_incarnation(1);
    response->set_generation(1);
    response->set_lease_ms(absl::ToInt64Milliseconds(kLease));
    return registration;
  }
  grpc::Status RenewLease(grpc::ServerContext*, const proto::RenewLeaseRequest*,
                          proto::RenewLeaseResponse* response) override {
    response->set_generation(1);
    *response->mutable_state() = state;
    if (!renewed.HasBeenNotified()) renewed.Notify();
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const proto::LeaveRequest* request,
                     proto::LeaveResponse* response) override {
    left_with = request->error();
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// A Membership, and what it says of its end.
class Member {
 public:
  explicit Member(const std::string& coordinator,
                  absl::Duration start_timeout = kPatience)
      : membership_(OptionsFor(coordinator, start_timeout),
                    [this](const absl::Status& status) {
                      status_ = status;
                      ended_.Notify();
                    }) {}

  absl::Status AwaitEnd() {
    if (!ended_.WaitForNotificationWithTimeout(kPatience)) {
      return absl::DeadlineExceededError("no end");
    }
    return status_;
  }
  bool ended() const { return ended_.HasBeenNotified(); }
  Membership& operator*() { return membership_; }

 private:
  static Membership::Options OptionsFor(const std::string& coordinator,
                                        absl::Duration start_timeout) {
    Membership::Options options;
    options.session.task = {kPsJob, 1};
    options.session.coordinator = coordinator;
    options.session.address = "127.0.0.1:1";
    options.session.memory_limit_bytes = int64_t{5} << 30;
    options.start_timeout = start_timeout;
    options.silence_after_done = absl::Milliseconds(300);
    return options;
  }

  absl::Status status_;
  absl::Notification ended_;
  Membership membership_;
};

TEST(MembershipTest, ACoordinatorThatDoesNotAppear) {
  const std::string address = PuppetCoordinator().address();
  Member member(address, absl::Milliseconds(100));
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/job:ps/task:0"), HasSubstr(address)));
}

TEST(MembershipTest, ARefusal) {
  PuppetCoordinator coordinator;
  coordinator.registration =
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another cluster");
  Member member(coordinator.address());
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another cluster"));
}

TEST(MembershipTest, TellsWhereItListensAndWhatItMayTake) {
  PuppetCoordinator coordinator;
  coordinator.state.set_phase(proto::TRAINING);
  Member member(coordinator.address());
  coordinator.renewed.WaitForNotification();
  EXPECT_EQ(coordinator.registered.address(), "127.0.0.1:1");
  EXPECT_EQ(coordinator.registered.memory_limit_bytes(), uint64_t{5} << 30);
}

TEST(MembershipTest, TheJobHasFailed) {
  PuppetCoordinator coordinator;
  coordinator.state.set_phase(proto::FAILED);
  coordinator.state.set_reason("worker 3 is lost");
  Member member(coordinator.address());
  EXPECT_EQ(member.AwaitEnd(), absl::AbortedError("worker 3 is lost"));
}

TEST(MembershipTest, ACoordinatorThatFallsSilent) {
  auto coordinator = std::make_unique<PuppetCoordinator>();
  coordinator->state.set_phase(proto::TRAINING);
  Member member(coordinator->address());
  coordinator->renewed.WaitForNotification();
  coordinator.reset();
  const absl::Status status = member.AwaitEnd();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps/task:0"));
}

// The shard would have been told to end, but the message was lost.
TEST(MembershipTest, ACoordinatorThatGoesOnceTheJobIsDone) {
  auto coordinator = std::make_unique<PuppetCoordinator>();
  coordinator->state.set_phase(proto::DONE);
  Member member(coordinator->address());
  coordinator->renewed.WaitForNotification();
  coordinator.reset();
  EXPECT_EQ(member.AwaitEnd(), absl::OkStatus());
}

TEST(MembershipTest, Leaves) {
  PuppetCoordinator coordinator;
  coordinator.state.set_phase(proto::TRAINING);
  Member member(coordinator.address());
  coordinator.renewed.WaitForNotification();
  (*member).Leave("told to stop", absl::Now() + kPatience);
  EXPECT_EQ(coordinator.left_with, "told to stop");
  EXPECT_FALSE(member.ended());
}

TEST(MembershipTest, LeavesWhatItHasNotJoined) {
  const std::string address = PuppetCoordinator().address();
  Member member(address);
  (*member).Leave("told to stop", absl::Now() + kPatience);
  EXPECT_FALSE(member.ended());
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/call_queue.h"

#include <grpcpp/channel.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/rpc/call_threads.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/testing/fake_ps.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

constexpr char kGetStatus[] = "/holdfast.proto.Coordinator/GetStatus";
constexpr absl::Duration kPatience = absl::Seconds(20);

class CallQueueTest : public testing::Test {
 protected:
  // One call of GetStatus.
  struct Call {
    grpc::ClientContext context;
    absl::Notification done;
    grpc::Status status;
    proto::GetStatusResponse response;
  };

  void Start(Call* call) {
    call->context.set_wait_for_ready(true);
    call->context.set_deadline(GrpcDeadline(SteadyNow() + kPatience));
    grpc::ByteBuffer request;
    ASSERT_TRUE(ToBytes(proto::GetStatusRequest(), &request).ok());
    queue_.Start(&stub_, kGetStatus, &call->context, request,
                 [call](const grpc::Status& status, grpc::ByteBuffer* bytes) {
                   call->status = status;
                   if (status.ok()) {
                     EXPECT_TRUE(FromBytes(bytes, &call->response).ok());
                   }
                   call->done.Notify();
                 });
  }

  FakePs ps_;
  CallQueue queue_;
  grpc::GenericStub stub_{MakeChannel(ps_.address(), /*ps=*/0,
                                      ChannelKind::kControl, Credentials())};
};

TEST_F(CallQueueTest, WhoPollsIsToldTheAnswer) {
  ps_.get_status.Do([](int, const auto&, auto* response) {
    response->set_waiting_for("rain");
    return absl::OkStatus();
  });
  Call call;
  Start(&call);
  EXPECT_FALSE(call.done.HasBeenNotified());
  EXPECT_TRUE(queue_.Poll(SteadyNow() + kPatience));
  ASSERT_TRUE(call.done.HasBeenNotified());
  EXPECT_TRUE(call.status.ok()) << call.status.error_message();
  EXPECT_EQ(call.response.waiting_for(), "rain");
}

TEST_F(CallQueueTest, AnError) {
  ps_.get_status.Do(
      [](int, const auto&, auto*) { return absl::NotFoundError("no rain"); });
  Call call;
  Start(&call);
  EXPECT_TRUE(queue_.Poll(SteadyNow() + kPatience));
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call.status.error_message(), "no rain");
}

TEST_F(CallQueueTest, PollEndsAtItsDeadline) {
  EXPECT_FALSE(queue_.Poll(SteadyNow()));
  EXPECT_FALSE(queue_.Poll(SteadyNow() + absl::Milliseconds(1)));
}

TEST_F(CallQueueTest, WakeEndsAPoll) {
  std::thread waker([this] { queue_.Wake(); });
  EXPECT_TRUE(queue_.Poll(SteadyNow() + kPatience));
  waker.join();
}

TEST_F(CallQueueTest, ThreadsServeUntilTheyAreDestroyed) {
  Call calls[20];
  {
    const auto threads = *CallThreads::Start(&queue_, 3, "test");
    for (Call& call : calls) Start(&call);
    for (Call& call : calls) {
      EXPECT_TRUE(call.done.WaitForNotificationWithTimeout(kPatience));
    }
  }
  for (Call& call : calls) EXPECT_TRUE(call.status.ok());
  EXPECT_FALSE(queue_.Poll(absl::InfiniteFuture())) << "it is closed";
}

}  // namespace
}  // namespace holdfast

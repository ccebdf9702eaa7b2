#include "ps_server/service/rpc_server.h"

#include <grpcpp/generic/generic_stub.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(20);

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  EXPECT_TRUE(bytes.DumpToSingleSlice(&slice).ok());
  return std::string(slice.begin(), slice.end());
}

// A server of "/Echo", which answers with the request, "/Keep", whose answers
// the test gives, and "/Refuse"; and calls to it, by its own queue.
class RpcServerTest : public testing::TestWithParam<int> {
 protected:
  struct Call {
    grpc::ClientContext context;
    absl::Notification done;
    absl::Status status;
    std::string response;

    bool Await() { return done.WaitForNotificationWithTimeout(kPatience); }
  };

  void SetUp() override {
    RpcMethods methods;
    methods["/Echo"] = [](grpc::ByteBuffer request,
                          Reply<grpc::ByteBuffer> reply) {
      reply(std::move(request));
    };
    methods["/Keep"] = [this](grpc::ByteBuffer, Reply<grpc::ByteBuffer> reply) {
      absl::MutexLock lock(&mutex_);
      kept_.push_back(std::move(reply));
    };
    methods["/Refuse"] = [](grpc::ByteBuffer, Reply<grpc::ByteBuffer> reply) {
      reply(absl::ResourceExhaustedError("no more"));
    };
    int port;
    ASSERT_EQ(
        server_.Start("127.0.0.1:0", std::move(methods), GetParam(), &port),
        absl::OkStatus());
    address_ = absl::StrCat("127.0.0.1:", port);
    stub_ = std::make_unique<grpc::GenericStub>(
        MakeChannel(address_, ChannelKind::kControl));
  }

  void Start(const std::string& method, const std::string& request,
             Call* call) {
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    server_.queue()->Start(
        stub_.get(), method, &call->context, Bytes(request),
        [call](const grpc::Status& status, grpc::ByteBuffer* bytes) {
          call->status = FromGrpcStatus(status);
          if (status.ok()) call->response = Text(*bytes);
          call->done.Notify();
        });
  }

  // Waits until so many calls of "/Keep" have come.
  std::vector<Reply<grpc::ByteBuffer>> TakeKept(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return kept_.size() == count;
    };
    mutex_.Await(absl::Condition(&here));
    return std::move(kept_);
  }

  std::string address_;
  std::unique_ptr<grpc::GenericStub> stub_;
  absl::Mutex mutex_;
  std::vector<Reply<grpc::ByteBuffer>> kept_ ABSL_GUARDED_BY(mutex_);
  RpcServer server_;
};
INSTANTIATE_TEST_SUITE_P(Threads, RpcServerTest, testing::Values(1, 3));

TEST_P(RpcServerTest, Answers) {
  constexpr int kCalls = 200;
  std::vector<Call> calls(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    Start("/Echo", absl::StrCat(std::string(i * 100, '.'), i), &calls[i]);
  }
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(calls[i].Await());
    EXPECT_EQ(calls[i].status, absl::OkStatus());
    EXPECT_EQ(calls[i].response, absl::StrCat(std::string(i * 100, '.'), i));
  }
}

TEST_P(RpcServerTest, Errors) {
  Call refused, unknown, large;
  Start("/Refuse", "", &refused);
  Start("/Other", "", &unknown);
  Start("/Echo", std::string(kMaxMessageBytes + 1, '.'), &large);
  ASSERT_TRUE(refused.Await() && unknown.Await() && large.Await());
  EXPECT_EQ(refused.status, absl::ResourceExhaustedError("no more"));
  EXPECT_TRUE(absl::IsUnimplemented(unknown.status)) << unknown.status;
  EXPECT_THAT(std::string(unknown.status.message()), HasSubstr("/Other"));
  EXPECT_TRUE(absl::IsResourceExhausted(large.status)) << large.status;
}

TEST_P(RpcServerTest, AnswersMayComeLateAndInAnyOrder) {
  Call calls[3];
  for (Call& call : calls) Start("/Keep", "", &call);
  std::vector<Reply<grpc::ByteBuffer>> kept = TakeKept(3);
  for (int i = 2; i >= 0; --i) kept[i](Bytes("late"));
  for (Call& call : calls) {
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.response, "late");
  }
}

TEST_P(RpcServerTest, AnAnswerThatIsDroppedIsUnavailable) {
  Call call;
  Start("/Keep", "", &call);
  TakeKept(1).clear();
  ASSERT_TRUE(call.Await());
  EXPECT_TRUE(absl::IsUnavailable(call.status)) << call.status;
}

TEST_P(RpcServerTest, AnAnswerToWhoHasGivenUp) {
  Call call;
  Start("/Keep", "", &call);
  std::vector<Reply<grpc::ByteBuffer>> kept = TakeKept(1);
  call.context.TryCancel();
  ASSERT_TRUE(call.Await());
  EXPECT_TRUE(absl::IsCancelled(call.status)) << call.status;
  kept[0](Bytes("late"));
  Call other;
  Start("/Echo", "x", &other);
  ASSERT_TRUE(other.Await());
  EXPECT_EQ(other.response, "x");
}

TEST_P(RpcServerTest, ShutdownLeavesPatienceForAnswers) {
  Call call;
  Start("/Keep", "", &call);
  std::vector<Reply<grpc::ByteBuffer>> kept = TakeKept(1);
  std::thread stopper([this] { server_.Shutdown(kPatience); });
  kept[0](Bytes("just so"));
  stopper.join();
  ASSERT_TRUE(call.Await());
  EXPECT_EQ(call.response, "just so");
}

TEST_P(RpcServerTest, ShutdownEndsWhatIsNotAnswered) {
  Call call;
  Start("/Keep", "", &call);
  std::vector<Reply<grpc::ByteBuffer>> kept = TakeKept(1);
  server_.Shutdown(absl::Milliseconds(10));
  ASSERT_TRUE(call.Await());
  EXPECT_TRUE(absl::IsUnavailable(call.status)) << call.status;
  kept[0](Bytes("too late"));
  Call later;
  Start("/Echo", "", &later);
  ASSERT_TRUE(later.Await());
  EXPECT_TRUE(absl::IsUnavailable(later.status)) << later.status;
}

// Parked replies of a machine go after its server.
TEST_P(RpcServerTest, AnAnswerAfterTheServerIsGone) {
  Reply<grpc::ByteBuffer> kept;
  {
    RpcServer server;
    absl::Notification came;
    RpcMethods methods;
    methods["/Keep"] = [&](grpc::ByteBuffer, Reply<grpc::ByteBuffer> reply) {
      kept = std::move(reply);
      came.Notify();
    };
    int port;
    ASSERT_EQ(
        server.Start("127.0.0.1:0", std::move(methods), GetParam(), &port),
        absl::OkStatus());
    stub_ = std::make_unique<grpc::GenericStub>(
        MakeChannel(absl::StrCat("127.0.0.1:", port), ChannelKind::kControl));
    Call call;
    Start("/Keep", "", &call);
    came.WaitForNotification();
    server.Shutdown(absl::ZeroDuration());
    ASSERT_TRUE(call.Await());
    EXPECT_TRUE(absl::IsUnavailable(call.status)) << call.status;
  }
  kept(Bytes("too late"));
}

TEST_P(RpcServerTest, AnAddressInUse) {
  RpcServer second;
  int port;
  const absl::Status status = second.Start(address_, {}, 1, &port);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address_));
}

}  // namespace
}  // namespace holdfast

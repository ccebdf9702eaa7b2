// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/rpc_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
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

RpcServer::Options OptionsOf(const std::string& address, int threads) {
  RpcServer::Options options;
  options.address = address;
  options.threads = threads;
  return options;
}

// A server with "/Echo", which answers with the request, "/Keep", whose answers
// the test gives, "/Block", which does what the test says, and "/Refuse"; and
// calls to it through its own queue.
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
    methods["/Echo"] = [](const Caller&, grpc::ByteBuffer request,
                          Reply<grpc::ByteBuffer> reply) {
      reply(std::move(request));
    };
    methods["/Keep"] = [this](const Caller&, grpc::ByteBuffer,
                              Reply<grpc::ByteBuffer> reply) {
      absl::MutexLock lock(&mutex_);
      kept_.push_back(std::move(reply));
    };
    methods["/Refuse"] = [](const Caller&, grpc::ByteBuffer,
                            Reply<grpc::ByteBuffer> reply) {
      reply(absl::ResourceExhaustedError("no more"));
    };
    methods["/Block"] = [this](const Caller& caller, grpc::ByteBuffer,
                               Reply<grpc::ByteBuffer> reply) {
      blocking_(caller, std::move(reply));
    };
    int port;
    ASSERT_EQ(server_.Start(OptionsOf("127.0.0.1:0", GetParam()),
                            std::move(methods), &port),
              absl::OkStatus());
    address_ = absl::StrCat("127.0.0.1:", port);
    stub_ = std::make_unique<grpc::GenericStub>(
        MakeChannel(address_, /*ps=*/0, ChannelKind::kControl, Credentials()));
  }

  void Start(const std::string& method, const std::string& request,
             Call* call) {
    call->context.set_deadline(GrpcDeadline(SteadyNow() + kPatience));
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
  // Set before the first call.
  std::function<void(const Caller&, Reply<grpc::ByteBuffer>)> blocking_;
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

// The time of a call that is kept goes on after its handler has returned.
TEST_P(RpcServerTest, CountsCallsAndTheirTime) {
  std::vector<Call> calls(3);
  Start("/Echo", "", &calls[0]);
  ASSERT_TRUE(calls[0].Await());
  Start("/Refuse", "", &calls[1]);
  ASSERT_TRUE(calls[1].Await());
  Start("/Keep", "", &calls[2]);
  std::vector<Reply<grpc::ByteBuffer>> kept = TakeKept(1);
  RpcFigures figures = server_.figures();
  EXPECT_EQ(figures.size(), 4u);
  EXPECT_EQ(figures["/Echo"].calls, 1u);
  EXPECT_EQ(figures["/Echo"].failed, 0u);
  EXPECT_GT(figures["/Echo"].total_time, absl::ZeroDuration());
  EXPECT_EQ(figures["/Refuse"].calls, 1u);
  EXPECT_EQ(figures["/Refuse"].failed, 1u);
  EXPECT_EQ(figures["/Keep"].calls, 0u);
  const absl::Time answered = SteadyNow() + absl::Milliseconds(2);
  while (SteadyNow() < answered) std::this_thread::yield();
  kept[0](Bytes(""));
  ASSERT_TRUE(calls[2].Await());
  figures = server_.figures();
  EXPECT_EQ(figures["/Keep"].calls, 1u);
  EXPECT_GE(figures["/Keep"].total_time, absl::Milliseconds(2));
  EXPECT_EQ(figures["/Block"].calls, 0u);
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

// A handler's arguments remain valid until it returns, and Shutdown does not
// return before.
TEST_P(RpcServerTest, ShutdownWhileAHandlerRuns) {
  absl::Notification entered, leave, stopped;
  blocking_ = [&](const Caller& caller, Reply<grpc::ByteBuffer> reply) {
    entered.Notify();
    EXPECT_TRUE(leave.WaitForNotificationWithTimeout(kPatience));
    EXPECT_FALSE(
        stopped.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
    reply = nullptr;
    EXPECT_FALSE(caller.has_value());
  };
  Call call;
  Start("/Block", "", &call);
  entered.WaitForNotification();
  std::thread stopper([&] {
    server_.Shutdown(absl::ZeroDuration());
    stopped.Notify();
  });
  // Any thread may find that gRPC has sent the answer.
  while (!call.done.HasBeenNotified()) {
    server_.queue()->Poll(SteadyNow() + absl::Milliseconds(10));
  }
  EXPECT_TRUE(absl::IsUnavailable(call.status)) << call.status;
  while (server_.queue()->Poll(SteadyNow() + absl::Milliseconds(10))) {
  }
  leave.Notify();
  stopper.join();
}

// There are as many slow handlers as threads.
TEST_P(RpcServerTest, SlowHandlersDoNotHoldUpOtherCalls) {
  absl::Notification leave;
  blocking_ = [&](const Caller&, Reply<grpc::ByteBuffer> reply) {
    EXPECT_TRUE(leave.WaitForNotificationWithTimeout(kPatience));
    reply(Bytes("y"));
  };
  std::vector<Call> slow(GetParam());
  for (Call& call : slow) Start("/Block", "", &call);
  for (int i = 0; i < 100; ++i) {
    Call call;
    Start("/Echo", "x", &call);
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.response, "x");
  }
  for (Call& call : slow) EXPECT_FALSE(call.done.HasBeenNotified());
  leave.Notify();
  for (Call& call : slow) {
    ASSERT_TRUE(call.Await());
    EXPECT_EQ(call.status, absl::OkStatus());
  }
}

// Parked replies of a machine may outlive its server.
TEST_P(RpcServerTest, AnAnswerAfterTheServerIsGone) {
  Reply<grpc::ByteBuffer> kept;
  {
    RpcServer server;
    absl::Notification came;
    RpcMethods methods;
    methods["/Keep"] = [&](const Caller&, grpc::ByteBuffer,
                           Reply<grpc::ByteBuffer> reply) {
      kept = std::move(reply);
      came.Notify();
    };
    int port;
    ASSERT_EQ(server.Start(OptionsOf("127.0.0.1:0", GetParam()),
                           std::move(methods), &port),
              absl::OkStatus());
    stub_ = std::make_unique<grpc::GenericStub>(
        MakeChannel(absl::StrCat("127.0.0.1:", port), /*ps=*/0,
                    ChannelKind::kControl, Credentials()));
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
  const absl::Status status = second.Start(OptionsOf(address_, 1), {}, &port);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address_));
}

// A call that has begun and does not send its message.
class SilentCall final : public CallQueue::Event {
 public:
  SilentCall(grpc::GenericStub* stub, CallQueue* queue)
      : stream_(stub->PrepareCall(&context_, "/Keep", queue->get())) {
    stream_->StartCall(static_cast<Event*>(this));
  }
  void Happen(bool) override {
    if (std::exchange(begun_, true)) return over_.Notify();
    stream_->Finish(&status_, static_cast<Event*>(this));
  }
  void Cancel() { context_.TryCancel(); }
  bool IsOver() {
    return over_.WaitForNotificationWithTimeout(absl::Milliseconds(10));
  }
  absl::Status Await() {
    if (!over_.WaitForNotificationWithTimeout(kPatience)) {
      return absl::InternalError("it does not end");
    }
    return FromGrpcStatus(status_);
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::Status status_;
  bool begun_ = false;
  absl::Notification over_;
};

// A server with "/Keep" and narrow limits.
class LimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    RpcServer::Options options = OptionsOf("127.0.0.1:0", 1);
    options.limits.calls = 5;
    options.limits.unread = 2;
    options.limits.read_timeout = read_timeout_;
    RpcMethods methods;
    methods["/Keep"] = [this](const Caller&, grpc::ByteBuffer,
                              Reply<grpc::ByteBuffer> reply) {
      absl::MutexLock lock(&mutex_);
      kept_.push_back(std::move(reply));
    };
    int port;
    ASSERT_EQ(server_.Start(options, std::move(methods), &port),
              absl::OkStatus());
    for (auto& stub : stubs_) {
      stub = std::make_unique<grpc::GenericStub>(
          MakeChannel(absl::StrCat("127.0.0.1:", port), /*ps=*/0,
                      ChannelKind::kControl, Credentials()));
    }
  }

  std::unique_ptr<SilentCall> StartSilent() {
    return std::make_unique<SilentCall>(stubs_[0].get(), server_.queue());
  }
  struct Call {
    grpc::ClientContext context;
    absl::Notification done;
    absl::Status status;
  };
  std::unique_ptr<Call> StartCall(int peer) {
    auto call = std::make_unique<Call>();
    server_.queue()->Start(
        stubs_[peer].get(), "/Keep", &call->context, Bytes("x"),
        [call = call.get()](const grpc::Status& status, grpc::ByteBuffer*) {
          call->status = FromGrpcStatus(status);
          call->done.Notify();
        });
    return call;
  }
  void AwaitKept(size_t count) {
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return kept_.size() == count;
    };
    absl::MutexLock lock(&mutex_);
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience));
  }
  void AnswerAll() {
    std::vector<Reply<grpc::ByteBuffer>> kept;
    {
      absl::MutexLock lock(&mutex_);
      kept.swap(kept_);
    }
    for (auto& reply : kept) reply(Bytes("y"));
  }

  absl::Duration read_timeout_ = absl::Hours(1);
  RpcServer server_;
  // The stubs of two peers.
  std::unique_ptr<grpc::GenericStub> stubs_[2];
  absl::Mutex mutex_;
  std::vector<Reply<grpc::ByteBuffer>> kept_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(LimitsTest, APeerMayHaveSoManyCallsThatItDoesNotSend) {
  // They come in any order.
  std::vector<std::unique_ptr<SilentCall>> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(StartSilent());
  const auto refused = [&] {
    for (;;) {
      for (auto call = silent.begin(); call != silent.end(); ++call) {
        if ((*call)->IsOver()) return call;
      }
    }
  }();
  const absl::Status status = (*refused)->Await();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  silent.erase(refused);
  // Another peer is not affected.
  const auto other = StartCall(1);
  AwaitKept(1);
  AnswerAll();
  other->done.WaitForNotification();
  EXPECT_EQ(other->status, absl::OkStatus());
  // Nor is the first one once one of its calls has gone.
  silent[0]->Cancel();
  EXPECT_TRUE(absl::IsCancelled(silent[0]->Await()));
  for (;;) {
    const auto again = StartCall(0);
    const auto kept_or_refused = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !kept_.empty() || again->done.HasBeenNotified();
    };
    {
      absl::MutexLock lock(&mutex_);
      while (!kept_or_refused()) {
        mutex_.AwaitWithTimeout(absl::Condition(&kept_or_refused),
                                absl::Milliseconds(10));
      }
    }
    AnswerAll();
    again->done.WaitForNotification();
    if (again->status.ok()) break;
    EXPECT_TRUE(absl::IsResourceExhausted(again->status)) << again->status;
  }
  silent[1]->Cancel();
  EXPECT_TRUE(absl::IsCancelled(silent[1]->Await()));
}

class ReadTimeoutTest : public LimitsTest {
 protected:
  ReadTimeoutTest() { read_timeout_ = absl::Milliseconds(200); }
};

TEST_F(ReadTimeoutTest, ACallThatIsNotSentIsGivenUp) {
  const auto silent = StartSilent();
  const auto kept = StartCall(0);
  const absl::Status status = silent->Await();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsInternal(status)) << status;
  // A call whose message has arrived may take its time.
  AwaitKept(1);
  AnswerAll();
  kept->done.WaitForNotification();
  EXPECT_EQ(kept->status, absl::OkStatus());
}

// Which first bytes make the server close a new connection.
TEST(ConnectionTest, WhoSaysNothingOrNonsenseIsClosed) {
  RpcServer::Options options = OptionsOf("127.0.0.1:0", 1);
  options.limits.handshake_timeout = absl::Milliseconds(100);
  RpcServer server;
  int port;
  ASSERT_EQ(server.Start(options, {}, &port), absl::OkStatus());
  for (const std::string bytes : {"", "PRI * HT", "GET / HTTP/1.1\r\n\r\n"}) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(
        connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    const timeval patience = {absl::ToInt64Seconds(kPatience), 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    // Perhaps after the server's settings.
    char answer[1024];
    ssize_t got;
    do {
      got = recv(fd, answer, sizeof(answer), 0);
    } while (got > 0);
    EXPECT_TRUE(got == 0 || errno == ECONNRESET)
        << "\"" << bytes << "\" " << strerror(errno);
    close(fd);
  }
}

}  // namespace
}  // namespace holdfast

#include "common/rpc/call_queue.h"

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/fake_ps.h"
#include "common/rpc/message_bytes.h"
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
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
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
  EXPECT_TRUE(queue_.Poll(absl::Now() + kPatience));
  ASSERT_TRUE(call.done.HasBeenNotified());
  EXPECT_TRUE(call.status.ok()) << call.status.error_message();
  EXPECT_EQ(call.response.waiting_for(), "rain");
}

TEST_F(CallQueueTest, AnError) {
  ps_.get_status.Do(
      [](int, const auto&, auto*) { return absl::NotFoundError("no rain"); });
  Call call;
  Start(&call);
  EXPECT_TRUE(queue_.Poll(absl::Now() + kPatience));
  EXPECT_EQ(call.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call.status.error_message(), "no rain");
}

TEST_F(CallQueueTest, PollEndsAtItsDeadline) {
  EXPECT_FALSE(queue_.Poll(absl::Now()));
  EXPECT_FALSE(queue_.Poll(absl::Now() + absl::Milliseconds(1)));
}

TEST_F(CallQueueTest, WakeEndsAPoll) {
  std::thread waker([this] { queue_.Wake(); });
  EXPECT_TRUE(queue_.Poll(absl::Now() + kPatience));
  waker.join();
}

TEST_F(CallQueueTest, ThreadsServeUntilTheyAreDestroyed) {
  Call calls[20];
  {
    CallThreads threads(&queue_, 3, "test");
    for (Call& call : calls) Start(&call);
    for (Call& call : calls) {
      EXPECT_TRUE(call.done.WaitForNotificationWithTimeout(kPatience));
    }
  }
  for (Call& call : calls) EXPECT_TRUE(call.status.ok());
  EXPECT_FALSE(queue_.Poll(absl::InfiniteFuture())) << "it is closed";
}

// Something that is over at once, and does `happen`.
class AtOnce final : public CallQueue::Event {
 public:
  AtOnce(CallQueue* queue, std::function<void()> happen)
      : happen_(std::move(happen)) {
    alarm_.Set(queue->get(), absl::ToChronoTime(absl::UnixEpoch()),
               static_cast<Event*>(this));
  }
  void Happen(bool) override { happen_(); }

 private:
  const std::function<void()> happen_;
  grpc::Alarm alarm_;
};

TEST(CallThreadsTest, AnotherJoinsWhereThereIsMuch) {
  CallQueue queue;
  constexpr int kEvents = 100;
  absl::Mutex mutex;
  std::set<std::thread::id> served;
  std::vector<std::unique_ptr<AtOnce>> events;
  // Once 50 have been served, a thread goes on when another has begun to serve.
  int count = 0;
  absl::Notification joined;
  for (int i = 0; i < kEvents; ++i) {
    events.push_back(std::make_unique<AtOnce>(&queue, [&] {
      bool wait;
      {
        absl::MutexLock lock(&mutex);
        served.insert(std::this_thread::get_id());
        wait = ++count == kEvents / 2 && served.size() < 2;
        if (served.size() == 2 && !joined.HasBeenNotified()) joined.Notify();
      }
      if (wait) {
        EXPECT_TRUE(joined.WaitForNotificationWithTimeout(kPatience));
      }
    }));
  }
  { const CallThreads threads(&queue, 2, "test"); }
  EXPECT_EQ(count, kEvents);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// Floods, slow peers and oversized messages against ps processes that train:
// the training must end with the same digest as without an attack, no daemon
// may die, and the ps must accept connections afterwards.

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/rpc_limits.h"
#include "common/rpc/status.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/integration/raw_client.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(90);
// The limit on descriptors of a ps in this test, and the number of sockets that
// each flood opens.
constexpr char kDescriptors[] = "--nofile=256:256";
constexpr int kSockets = 400;
constexpr char kGetStatus[] = "/holdfast.proto.Coordinator/GetStatus";

// The first bytes of a TLS 1.2 handshake, which announce more.
const std::string kHalfHello =
    std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8);
const std::string kHttp2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// A connection to a Unix socket, or -1.
int ConnectToSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  // Does not wait while the backlog is full.
  fcntl(fd, F_SETFL, O_NONBLOCK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(fd);
    return -1;
  }
  return fd;
}

// A connection to `port` of this machine, or -1.
int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(fd);
    return -1;
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// Whether the peer has closed the connection.
bool IsClosed(int fd) {
  char c;
  const ssize_t got = recv(fd, &c, 1, MSG_PEEK);
  return got == 0 || (got < 0 && errno != EAGAIN);
}

// Opens kSockets connections, sends `hello` over each, keeps them until `over`,
// and replaces those that are closed.
void HoldSockets(const std::function<int()>& connect,
                 const std::function<std::string()>& hello,
                 const std::atomic<bool>& over, std::atomic<int>* refused) {
  std::vector<int> sockets(kSockets, -1);
  while (!over) {
    for (int& fd : sockets) {
      if (over) break;
      if (fd >= 0 && !IsClosed(fd)) continue;
      if (fd >= 0) {
        close(fd);
        ++*refused;
      }
      fd = connect();
      if (fd < 0) continue;
      const std::string bytes = hello();
      (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  for (const int fd : sockets) {
    if (fd >= 0) close(fd);
  }
}

class FloodTest : public testing::Test {
 protected:
  FloodTest() : folder_(FreshFolder()) {}

  // Trains, and attacks from the fifth step until the job is done. `ps_flags`:
  // further flags of each ps.
  void TrainUnder(const std::function<void(const TaskCluster&,
                                           const std::atomic<bool>&)>& attack,
                  const std::vector<std::string>& ps_flags = {}) {
    const auto digest =
        DigestInPeace(JobKind::kSynchronous, folder_ + "/peace");
    ASSERT_TRUE(digest.ok()) << digest.status();
    TaskCluster::Options options =
        SmallCluster(JobKind::kSynchronous, folder_ + "/attacked");
    options.tls = true;
    options.ps_flags.insert(options.ps_flags.end(), ps_flags.begin(),
                            ps_flags.end());
    options.launcher = [](const std::string& task) {
      return task[0] == 'p' ? std::vector<std::string>{"prlimit", kDescriptors}
                            : std::vector<std::string>();
    };
    TaskCluster cluster(options);
    cluster.StartAll();
    ASSERT_TRUE(cluster.AdvanceUntil(
        [&] { return cluster.status().global_step() >= 5 || cluster.failed(); },
        kLimit))
        << cluster.Describe();
    std::atomic<bool> over(false);
    std::thread attacker([&] { attack(cluster, over); });
    const absl::Status ended = cluster.AwaitEnd(kLimit);
    over = true;
    attacker.join();
    ASSERT_TRUE(ended.ok()) << ended;
    EXPECT_EQ(CheckEnd(JobKind::kSynchronous, cluster, *digest),
              absl::OkStatus());
    EXPECT_EQ(CheckShared(cluster), absl::OkStatus());
    for (const std::string& task : cluster.names()) {
      EXPECT_EQ(cluster.starts(task), 1) << task << "\n" << cluster.log(task);
    }
  }

  Credentials Operator() const {
    const auto credentials =
        Credentials::FromFolder(folder_ + "/attacked/tls/operator-0");
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return *credentials;
  }

  const std::string folder_;
};

uint16_t PortOf(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts.back(), &port)) << address;
  return static_cast<uint16_t>(port);
}

TEST_F(FloodTest, OfConnectionsThatShowNoCertificate) {
  TrainUnder([&](const TaskCluster& cluster, const std::atomic<bool>& over) {
    const uint16_t port = PortOf(cluster.coordinator_address());
    std::atomic<int> silent(0), half(0), garbage(0), plain(0);
    std::atomic<bool> enough(false);
    std::vector<std::thread> floods;
    const auto flood = [&](std::atomic<int>* refused,
                           std::function<std::string()> hello) {
      floods.emplace_back([&enough, port, refused, hello] {
        HoldSockets([port] { return Connect(port); }, hello, enough, refused);
      });
    };
    flood(&silent, [] { return std::string(); });
    flood(&half, [] { return kHalfHello; });
    flood(&garbage, [random = std::mt19937(1)]() mutable {
      std::string bytes(500, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      return bytes;
    });
    flood(&plain, [] { return kHttp2 + std::string(500, '\1'); });
    const absl::Time until = SteadyNow() + absl::Seconds(2);
    while (!over && SteadyNow() < until) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    enough = true;
    for (std::thread& thread : floods) thread.join();
    // The ps accepts connections again, while it still trains.
    const RawClient client(cluster.coordinator_address(), 0, Operator());
    const absl::Time soon = SteadyNow() + absl::Seconds(20);
    for (bool open = false; !open && !over;) {
      const absl::Status asked =
          client.CallBytes(kGetStatus, "", absl::Seconds(5)).status();
      open = asked.ok();
      if (open || SteadyNow() < soon) continue;
      ADD_FAILURE() << asked;
      break;
    }
    std::cout << "closed by the ps: " << silent << " silent, " << half
              << " with half a handshake, " << garbage << " with garbage, "
              << plain << " not encrypted" << std::endl;
    // There was room for at most 192.
    EXPECT_GT(silent + half, 0);
    EXPECT_GT(garbage, 0);
    EXPECT_GT(plain, 0);
  });
}

// Of the sockets over which processes of one host share memory.
TEST_F(FloodTest, OfTheSocketsForNeighbors) {
  // A socket's path must be short.
  char directory[] = "/tmp/flood.XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const auto flood_all = [&](const TaskCluster&,
                             const std::atomic<bool>& over) {
    std::atomic<int> silent(0), garbage(0);
    std::atomic<bool> enough(false);
    std::vector<std::thread> floods;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const auto connect = [path = entry.path().string()] {
        return ConnectToSocket(path);
      };
      floods.emplace_back([&, connect] {
        HoldSockets(
            connect, [] { return std::string(); }, enough, &silent);
      });
      floods.emplace_back([&, connect] {
        std::mt19937 random(1);
        const auto hello = [&] {
          std::string bytes(1 + random() % 100, '\0');
          for (char& c : bytes) c = static_cast<char>(random());
          return bytes;
        };
        HoldSockets(connect, hello, enough, &garbage);
      });
    }
    EXPECT_EQ(floods.size(), 4u) << "two floods for each of two ps";
    const absl::Time until = SteadyNow() + absl::Seconds(2);
    while (!over && SteadyNow() < until) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    enough = true;
    for (std::thread& thread : floods) thread.join();
    std::cout << "closed by the ps: " << silent << " silent, " << garbage
              << " with garbage" << std::endl;
    // A ps keeps 64 that have said nothing.
    EXPECT_GT(silent, 0);
    EXPECT_GT(garbage, 0);
  };
  TrainUnder(flood_all, {absl::StrCat("--same_host_dir=", directory)});
  std::filesystem::remove_all(directory);
}

// A call that is started but never sends its message.
class SilentCall final : public CallQueue::Event {
 public:
  SilentCall(grpc::GenericStub* stub, CallQueue* queue)
      : stream_(stub->PrepareCall(&context_, kGetStatus, queue->get())) {
    stream_->StartCall(static_cast<Event*>(this));
  }
  void Happen(bool) override {
    if (std::exchange(begun_, true)) {
      over_ = true;
      return;
    }
    stream_->Finish(&status_, static_cast<Event*>(this));
  }
  void Cancel() { context_.TryCancel(); }
  bool over() const { return over_; }
  absl::Status status() const { return FromGrpcStatus(status_); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::Status status_;
  bool begun_ = false;
  bool over_ = false;
};

TEST_F(FloodTest, OfCallsWithACertificate) {
  TrainUnder([&](const TaskCluster& cluster, const std::atomic<bool>& over) {
    const std::string address = cluster.coordinator_address();
    const Credentials credentials = Operator();
    std::atomic<int> asked(0), oversized(0), too_many(0);
    std::vector<std::thread> floods;
    for (int i = 0; i < 2; ++i) {
      floods.emplace_back([&] {
        const RawClient client(address, 0, credentials);
        while (!over) {
          // The ps may already have exited.
          if (client.CallBytes(kGetStatus, "", absl::Seconds(1)).ok()) ++asked;
        }
      });
    }
    floods.emplace_back([&] {
      const RawClient client(
          grpc::CreateCustomChannel(address, credentials.ForChannel(0), {}));
      const std::string large(kMaxMessageBytes + 1, '\0');
      while (!over) {
        const auto answer =
            client.CallBytes(kGetStatus, large, absl::Seconds(5));
        EXPECT_FALSE(answer.ok());
        if (absl::IsResourceExhausted(answer.status())) ++oversized;
      }
    });
    floods.emplace_back([&] {
      CallQueue queue;
      grpc::GenericStub stub(
          MakeChannel(address, 0, ChannelKind::kControl, credentials));
      std::vector<std::unique_ptr<SilentCall>> calls;
      // From then on, the ps refuses everything that this peer asks.
      while (!over && (asked < 20 || oversized == 0)) {
        queue.Poll(SteadyNow() + absl::Milliseconds(5));
      }
      for (int i = 0; i < 300; ++i) {
        calls.push_back(std::make_unique<SilentCall>(&stub, &queue));
      }
      while (!over) queue.Poll(SteadyNow() + absl::Milliseconds(20));
      for (const auto& call : calls) {
        if (call->over() && absl::IsResourceExhausted(call->status())) {
          ++too_many;
        }
        call->Cancel();
      }
      for (const auto& call : calls) {
        while (!call->over()) queue.Poll(SteadyNow() + absl::Milliseconds(20));
      }
    });
    for (std::thread& thread : floods) thread.join();
    std::cout << asked << " calls answered, " << oversized
              << " oversized messages refused, " << too_many
              << " of 300 silent calls refused" << std::endl;
    EXPECT_GT(asked, 0);
    EXPECT_GT(oversized, 0);
    // 256 calls may wait for their messages.
    EXPECT_GE(too_many, 300 - 256);
  });
}

}  // namespace
}  // namespace holdfast

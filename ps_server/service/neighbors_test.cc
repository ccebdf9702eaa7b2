// SPDX-License-Identifier: Apache-2.0

// Making links, and what ends them.

#include "ps_server/service/neighbors.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/board.h"
#include "common/shared_memory/link_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard.pb.h"
#include "ps_server/service/testing/neighbors_testing.h"

namespace holdfast::link_testing {
namespace {

using ::testing::HasSubstr;

using LinkTest = NeighborsTest;

TEST_F(LinkTest, IsMade) {
  Start();
  const proto::LinkResponse response = Ask(SenderOf(0));
  EXPECT_EQ(response.refusal(), "");
  EXPECT_EQ(response.uid(), geteuid());
  EXPECT_EQ(response.secret().size(), LinkMessage::kSecretBytes);
  EXPECT_EQ(neighbors_->figures().links, 0u);
  LinkClient client(SenderOf(0));
  client.Greet(response);
  EXPECT_TRUE(client.IsWelcome());
  EXPECT_EQ(neighbors_->figures().links, 1u);
}

TEST_F(LinkTest, EachHasAnotherNumberAndSecret) {
  Start();
  const proto::LinkResponse first = Ask(SenderOf(0));
  const proto::LinkResponse second = Ask(SenderOf(0));
  EXPECT_NE(first.link(), second.link());
  EXPECT_NE(first.secret(), second.secret());
}

TEST_F(LinkTest, TheFilesOfThePsComeWithTheWelcome) {
  Start();
  ValuesToLend version = MakeVersion(kPage, 'a');
  const auto client = MakeLink(SenderOf(0));
  const auto file = client->ReceiveFile(1);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->size(), options_.arena->files()[0]->size());
}

TEST_F(LinkTest, IsRefusedToAnotherKernel) {
  Start();
  proto::LinkRequest request = RequestOf(SenderOf(0));
  request.set_boot_id("another host");
  EXPECT_THAT(neighbors_->Link(request).refusal(), HasSubstr("another host"));
  EXPECT_EQ(neighbors_->Link(request).secret(), "");
  EXPECT_EQ(neighbors_->figures().refused_requests, 2u);
}

TEST_F(LinkTest, IsRefusedWhereTheKernelHasNoName) {
  options_.boot_id = "";
  Start();
  proto::LinkRequest request = RequestOf(SenderOf(0));
  request.set_boot_id("");
  EXPECT_NE(neighbors_->Link(request).refusal(), "");
}

TEST_F(LinkTest, AWrongSecretIsRefusedAndTheRightOneStaysGood) {
  Start();
  const proto::LinkResponse right = Ask(SenderOf(0));
  proto::LinkResponse wrong = right;
  (*wrong.mutable_secret())[15] ^= 1;
  LinkClient thief(SenderOf(0));
  thief.Greet(wrong);
  EXPECT_TRUE(thief.IsClosed());
  LinkClient client(SenderOf(0));
  client.Greet(right);
  EXPECT_TRUE(client.IsWelcome());
  EXPECT_EQ(neighbors_->figures().refused_peers, 1u);
}

TEST_F(LinkTest, TheSecretOfAnotherLinkIsRefused) {
  Start();
  proto::LinkResponse response = Ask(SenderOf(0));
  response.set_secret(Ask(SenderOf(1)).secret());
  LinkClient client(SenderOf(0));
  client.Greet(response);
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(LinkTest, ASecretIsGoodForTenSeconds) {
  Start();
  const proto::LinkResponse one = Ask(SenderOf(0));
  const proto::LinkResponse other = Ask(SenderOf(0));
  clock_.now += Neighbors::kSecretLife - absl::Milliseconds(1);
  LinkClient in_time(SenderOf(0));
  in_time.Greet(one);
  EXPECT_TRUE(in_time.IsWelcome());
  clock_.now += absl::Milliseconds(1);
  LinkClient late(SenderOf(0));
  late.Greet(other);
  EXPECT_TRUE(late.IsClosed());
}

TEST_F(LinkTest, ASecretIsGoodOnce) {
  Start();
  const proto::LinkResponse response = Ask(SenderOf(0));
  LinkClient first(SenderOf(0));
  first.Greet(response);
  EXPECT_TRUE(first.IsWelcome());
  LinkClient second(SenderOf(0));
  second.Greet(response);
  EXPECT_TRUE(second.IsClosed());
}

TEST_F(LinkTest, TheFifthSecretOfATaskVoidsItsFirst) {
  Start();
  const proto::LinkResponse other = Ask(SenderOf(1));
  std::vector<proto::LinkResponse> responses;
  for (size_t i = 0; i <= Neighbors::kMaxSecretsOfOne; ++i) {
    responses.push_back(Ask(SenderOf(0)));
  }
  LinkClient first(SenderOf(0));
  first.Greet(responses[0]);
  EXPECT_TRUE(first.IsClosed());
  for (const proto::LinkResponse& response :
       {responses[1], responses.back(), other}) {
    LinkClient client(SenderOf(0));
    client.Greet(response);
    EXPECT_TRUE(client.IsWelcome());
  }
}

TEST_F(LinkTest, SecretsAreBounded) {
  Start();
  const uint32_t tasks = Neighbors::kMaxSecrets / Neighbors::kMaxSecretsOfOne;
  for (uint32_t task = 0; task < tasks; ++task) {
    for (size_t i = 0; i < Neighbors::kMaxSecretsOfOne; ++i) {
      ASSERT_EQ(Ask(SenderOf(task)).refusal(), "");
    }
  }
  EXPECT_THAT(Ask(SenderOf(tasks)).refusal(), HasSubstr("1024"));
  clock_.now += Neighbors::kSecretLife;
  EXPECT_EQ(Ask(SenderOf(tasks)).refusal(), "");
}

// A process has descriptors for that many clients, and so does this one, which
// plays all of them.
TEST_F(LinkTest, LinksAreBounded) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4 * Neighbors::kMaxLinks);
  if (limit.rlim_cur < 4 * Neighbors::kMaxLinks) {
    GTEST_SKIP() << "at most " << limit.rlim_cur << " descriptors";
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Start();
  const proto::LinkResponse before = Ask(SenderOf(0));
  std::vector<std::unique_ptr<LinkClient>> clients;
  for (uint32_t task = 1; task <= Neighbors::kMaxLinks; ++task) {
    clients.push_back(MakeLink(SenderOf(task)));
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(neighbors_->figures().links, Neighbors::kMaxLinks);
  EXPECT_THAT(Ask(SenderOf(0)).refusal(), HasSubstr("1024 links"));
  LinkClient late(SenderOf(0));
  late.Greet(before);
  EXPECT_TRUE(late.IsClosed());
  // It is counted only after it has ended.
  while (neighbors_->figures().refused_peers == 0) sched_yield();
  EXPECT_EQ(neighbors_->figures().refused_peers, 1);
  // A link that ends makes room.
  clients.back()->Close();
  while (neighbors_->figures().links == Neighbors::kMaxLinks) sched_yield();
  MakeLink(SenderOf(0));
}

TEST_F(LinkTest, WhoeverSaysNothingIsInNobodysWay) {
  Start();
  const proto::LinkResponse response = Ask(SenderOf(0));
  auto oldest = LinkSocket::Connect(response.path());
  ASSERT_TRUE(oldest.ok()) << oldest.status();
  std::vector<std::unique_ptr<LinkSocket>> silent;
  for (size_t i = 0; i < Neighbors::kMaxStrangers; ++i) {
    // More may be connecting than the listener's queue holds.
    auto socket = LinkSocket::Connect(response.path());
    ASSERT_TRUE(socket.ok()) << socket.status();
    silent.push_back(*std::move(socket));
  }
  LinkClient client(SenderOf(0));
  client.Greet(response);
  EXPECT_TRUE(client.IsWelcome());
  EXPECT_TRUE(absl::IsUnavailable((*oldest)->Receive(kPatience).status()));
}

TEST_F(LinkTest, AFirstWordThatIsNoHelloIsTheLast) {
  Start();
  LinkClient client(SenderOf(0));
  auto socket = LinkSocket::Connect(Ask(SenderOf(0)).path());
  ASSERT_TRUE(socket.ok()) << socket.status();
  LinkMessage message;
  message.kind = LinkMessage::Kind::kFile;
  message.file = 1;
  message.size = client.board().file().size();
  message.fd = Duplicate(client.board().file().fd());
  ASSERT_EQ((*socket)->Send(message), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable((*socket)->Receive(kPatience).status()));
}

TEST_F(LinkTest, BytesThatAreNoMessageEndIt) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  ASSERT_EQ(write(client->socket().fd(), "garbage", 7), 7);
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(LinkTest, ASecondHelloEndsIt) {
  Start();
  const auto client = MakeLink(SenderOf(0));
  LinkMessage hello;
  hello.kind = LinkMessage::Kind::kHello;
  hello.link = client->link();
  hello.secret = std::string(LinkMessage::kSecretBytes, 's');
  hello.fd = Duplicate(client->board().file().fd());
  ASSERT_EQ(client->socket().Send(hello), absl::OkStatus());
  EXPECT_TRUE(client->IsClosed());
}

TEST_F(LinkTest, ABoardThatIsNoneGetsNoLink) {
  Start();
  const proto::LinkResponse response = Ask(SenderOf(0));
  auto socket = LinkSocket::Connect(response.path());
  ASSERT_TRUE(socket.ok()) << socket.status();
  LinkMessage hello;
  hello.kind = LinkMessage::Kind::kHello;
  hello.link = response.link();
  hello.secret = response.secret();
  // Not sealed, so it may shrink while the ps uses it.
  hello.fd = UniqueFd(memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(hello.fd.get(), kBoardBytes), 0);
  ASSERT_EQ((*socket)->Send(hello), absl::OkStatus());
  EXPECT_TRUE(absl::IsUnavailable((*socket)->Receive(kPatience).status()));
  EXPECT_EQ(neighbors_->figures().links, 0u);
}

// The kernel says who connects: the effective user at that moment.
TEST_F(LinkTest, AnotherUserNeedsACertificate) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "cannot become another user";
  ASSERT_EQ(chmod(options_.directory.c_str(), 0755), 0);
  options_.kind = LinkListener::Directory::kGiven;
  for (const bool secure : {false, true}) {
    options_.secure = secure;
    options_.arena =
        std::make_shared<SharedArena>(SharedArena::Options{.name = "test"});
    Start();
    const proto::LinkResponse response = Ask(SenderOf(0));
    LinkClient client(SenderOf(0));
    // Changes the user of this thread only.
    if (syscall(SYS_setresuid, -1, kNobody, -1) != 0) {
      GTEST_SKIP() << "this namespace has no other user";
    }
    const auto reachable = LinkSocket::Connect(response.path());
    if (reachable.ok()) client.Greet(response);
    ASSERT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);
    if (!reachable.ok()) GTEST_SKIP() << reachable.status();
    if (secure) {
      EXPECT_TRUE(client.IsWelcome());
    } else {
      EXPECT_TRUE(client.IsClosed());
    }
    neighbors_.reset();
  }
}

}  // namespace
}  // namespace holdfast::link_testing

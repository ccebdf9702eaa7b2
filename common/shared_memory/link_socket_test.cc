// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/link_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = LinkMessage::Kind;

const std::string kSecret = "0123456789abcdef";

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry = readdir(entries)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(entries);
  return names;
}

int OpenDescriptors() { return Entries("/proc/self/fd").size(); }

// A folder with a short name: the path of a test's temporary directory may be
// too long for a socket.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/link_socket_XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    path_ = name;
  }
  ~Folder() {
    for (const std::string& name : Entries(path_)) {
      const std::string path = absl::StrCat(path_, "/", name);
      if (unlink(path.c_str()) == 0) continue;
      for (const std::string& inner : Entries(path)) {
        unlink(absl::StrCat(path, "/", inner).c_str());
      }
      rmdir(path.c_str());
    }
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Two connected ends.
struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    a = std::make_unique<LinkSocket>(UniqueFd(fds[0]));
    b = std::make_unique<LinkSocket>(UniqueFd(fds[1]));
  }
  std::unique_ptr<LinkSocket> a, b;
};

LinkMessage Welcome() {
  LinkMessage message;
  message.kind = Kind::kWelcome;
  message.link = 7;
  return message;
}

LinkMessage File(uint32_t number) {
  LinkMessage message;
  message.kind = Kind::kFile;
  message.file = number;
  message.size = uint64_t{1} << 40;
  message.fd = UniqueFd(memfd_create("t", MFD_CLOEXEC));
  return message;
}

LinkMessage Hello() {
  LinkMessage message;
  message.kind = Kind::kHello;
  message.link = ~uint64_t{0};
  message.secret = kSecret;
  message.fd = UniqueFd(memfd_create("t", MFD_CLOEXEC));
  return message;
}

bool IsSameFile(const UniqueFd& a, const UniqueFd& b) {
  struct stat of_a, of_b;
  return fstat(a.get(), &of_a) == 0 && fstat(b.get(), &of_b) == 0 &&
         of_a.st_ino == of_b.st_ino && of_a.st_dev == of_b.st_dev;
}

// The bytes of a message on the wire (docs/protocol/same_host.md, "Bytes").
std::string Bytes(uint32_t kind, uint32_t zero = 0) {
  std::string bytes(48, '\0');
  std::memcpy(&bytes[0], "HFL1", 4);
  std::memcpy(&bytes[4], &kind, 4);
  std::memcpy(&bytes[28], &zero, 4);
  std::memcpy(&bytes[32], kSecret.data(), kSecret.size());
  return bytes;
}

// Sends packets that a LinkSocket would not send.
void SendRaw(const LinkSocket& socket, std::string bytes, size_t num_fds) {
  std::vector<int> fds;
  for (size_t i = 0; i < num_fds; ++i) {
    fds.push_back(memfd_create("t", MFD_CLOEXEC));
  }
  iovec part = {bytes.data(), bytes.size()};
  std::vector<cmsghdr> control(1 + CMSG_SPACE(num_fds * sizeof(int)) /
                                       sizeof(cmsghdr));
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (num_fds > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), num_fds * sizeof(int));
  }
  EXPECT_EQ(sendmsg(socket.fd(), &header, MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  for (const int fd : fds) close(fd);
}

// ---- Messages ----

TEST(LinkSocketTest, CarriesEachKind) {
  const int before = OpenDescriptors();
  {
    const Ends ends;
    EXPECT_EQ(ends.b->TryReceive()->has_value(), false);

    const LinkMessage hello = Hello();
    ASSERT_TRUE(ends.a->Send(hello).ok());
    ASSERT_TRUE(ends.a->Send(File(3)).ok());
    ASSERT_TRUE(ends.a->Send(Welcome()).ok());
    ASSERT_TRUE(ends.b->Send(Welcome()).ok());

    const auto first = ends.b->TryReceive();
    ASSERT_TRUE(first.ok() && first->has_value()) << first.status();
    EXPECT_EQ((*first)->kind, Kind::kHello);
    EXPECT_EQ((*first)->link, ~uint64_t{0});
    EXPECT_EQ((*first)->secret, kSecret);
    EXPECT_TRUE(IsSameFile((*first)->fd, hello.fd));
    EXPECT_NE((*first)->fd.get(), hello.fd.get());
    EXPECT_NE(fcntl((*first)->fd.get(), F_GETFD) & FD_CLOEXEC, 0);

    const auto second = ends.b->Receive(absl::InfiniteDuration());
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->kind, Kind::kFile);
    EXPECT_EQ(second->file, 3u);
    EXPECT_EQ(second->size, uint64_t{1} << 40);
    EXPECT_TRUE(second->fd.valid());
    EXPECT_THAT(second->secret, IsEmpty());

    for (LinkSocket* end : {ends.a.get(), ends.b.get()}) {
      const auto welcome = end->TryReceive();
      ASSERT_TRUE(welcome.ok() && welcome->has_value()) << welcome.status();
      EXPECT_EQ((*welcome)->kind, Kind::kWelcome);
      EXPECT_EQ((*welcome)->link, 7u);
      EXPECT_FALSE((*welcome)->fd.valid());
      EXPECT_EQ(end->TryReceive()->has_value(), false);
    }
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(LinkSocketTest, HasItsBytesWhereTheDocumentSays) {
  const Ends ends;
  LinkMessage message = Hello();
  message.link = 0x0102030405060708;
  message.size = 0x1112131415161718;
  message.file = 0x21222324;
  ASSERT_TRUE(ends.a->Send(message).ok());
  char bytes[100];
  ASSERT_EQ(recv(ends.b->fd(), bytes, sizeof(bytes), 0), 48);
  std::string expected = Bytes(1);
  std::memcpy(&expected[8], &message.link, 8);
  std::memcpy(&expected[16], &message.size, 8);
  std::memcpy(&expected[24], &message.file, 4);
  EXPECT_EQ(std::string(bytes, 48), expected);
}

TEST(LinkSocketTest, SendsNothingThatIsNotWellFormed) {
  const Ends ends;
  LinkMessage short_secret = Hello();
  short_secret.secret = "short";
  LinkMessage no_board = Hello();
  no_board.fd = UniqueFd();
  LinkMessage no_file = File(1);
  no_file.fd = UniqueFd();
  LinkMessage file_too_much = Welcome();
  file_too_much.fd = UniqueFd(dup(0));
  LinkMessage unknown = Welcome();
  unknown.kind = static_cast<Kind>(9);
  for (const LinkMessage* message :
       {&short_secret, &no_board, &no_file, &file_too_much, &unknown}) {
    EXPECT_EQ(ends.a->Send(*message).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ends.b->TryReceive()->has_value(), false);
}

TEST(LinkSocketTest, RefusesAnotherLayoutAndKeepsNoDescriptor) {
  const Ends ends;
  std::string other_version = Bytes(2);
  other_version[3] = '2';
  const struct {
    const char* what;
    std::string bytes;
    size_t num_fds;
  } kCases[] = {
      {"short", Bytes(2).substr(0, 47), 0},
      {"one byte with a file", "x", 1},
      {"long", Bytes(2) + "x", 0},
      {"very long, with a file", std::string(100000, 'x'), 1},
      {"another version", other_version, 0},
      {"kind 0", Bytes(0), 0},
      {"kind 4", Bytes(4), 1},
      {"a kind of 32 bits", Bytes(~uint32_t{0}), 0},
      {"not zero", Bytes(2, 1), 0},
      {"hello without a board", Bytes(1), 0},
      {"welcome with a file", Bytes(2), 1},
      {"file without a file", Bytes(3), 0},
      {"two files", Bytes(3), 2},
      {"three files", Bytes(3), 3},
      {"250 files", Bytes(3), 250},
  };
  const int before = OpenDescriptors();
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    SendRaw(*ends.a, c.bytes, c.num_fds);
    EXPECT_EQ(ends.b->TryReceive().status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(OpenDescriptors(), before);
  }
  // Packets have boundaries: the next one is read normally.
  SendRaw(*ends.a, Bytes(2), 0);
  EXPECT_TRUE(ends.b->Receive(absl::InfiniteDuration()).ok());
}

TEST(LinkSocketTest, DropsDescriptorsOfMessagesThatNobodyReads) {
  const int before = OpenDescriptors();
  {
    const Ends ends;
    for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(ends.a->Send(File(i)).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(LinkSocketTest, TellsWhenTheOtherEndIsClosed) {
  Ends ends;
  ASSERT_TRUE(ends.a->Send(Welcome()).ok());
  ends.a = nullptr;
  EXPECT_TRUE(ends.b->TryReceive()->has_value()) << "sent before";
  EXPECT_EQ(ends.b->TryReceive().status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(ends.b->Receive(absl::InfiniteDuration()).status().code(),
            absl::StatusCode::kUnavailable);
  // SIGPIPE does not kill the process, either.
  EXPECT_EQ(ends.b->Send(Welcome()).code(), absl::StatusCode::kUnavailable);
}

TEST(LinkSocketTest, AnEmptyPacketIsTheEnd) {
  const Ends ends;
  const int before = OpenDescriptors();
  SendRaw(*ends.a, "", 1);
  EXPECT_EQ(ends.b->TryReceive().status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(LinkSocketTest, DoesNotWaitForAPeerThatReadsNothing) {
  const Ends ends;
  absl::Status status;
  int sent = 0;
  while ((status = ends.a->Send(Welcome())).ok()) ASSERT_LT(++sent, 1000000);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(sent, 0);
  int received = 0;
  while (ends.b->TryReceive()->has_value()) ++received;
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(ends.a->Send(Welcome()).ok());
}

TEST(LinkSocketTest, WaitsNoLongerThanTold) {
  const Ends ends;
  EXPECT_EQ(ends.b->Receive(absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ends.b->Receive(-absl::InfiniteDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const absl::Duration timeout = absl::Milliseconds(30);
  const absl::Time before = SteadyNow();
  EXPECT_EQ(ends.b->Receive(timeout).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(SteadyNow() - before, timeout);
  // A message that has arrived is returned at once.
  ASSERT_TRUE(ends.a->Send(Welcome()).ok());
  EXPECT_TRUE(ends.b->Receive(absl::ZeroDuration()).ok());
}

TEST(LinkSocketTest, WaitsForAMessage) {
  const Ends ends;
  // Each end sends after it has received.
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(ends.a->Receive(absl::InfiniteDuration()).ok());
      EXPECT_TRUE(ends.a->Send(Welcome()).ok());
    }
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(ends.b->Send(Welcome()).ok());
    EXPECT_TRUE(ends.b->Receive(absl::InfiniteDuration()).ok());
  }
  other.join();
}

// ---- The listener ----

std::unique_ptr<LinkListener> Listen(const std::string& folder) {
  auto listener = LinkListener::Listen(folder);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return listener.ok() ? *std::move(listener) : nullptr;
}

TEST(LinkListenerTest, ConnectsTwoEnds) {
  const Folder folder;
  const int before = OpenDescriptors();
  {
    const auto listener = Listen(folder.path());
    ASSERT_NE(listener, nullptr);
    EXPECT_EQ(*listener->TryAccept(), nullptr);
    const auto client = LinkSocket::Connect(listener->path());
    ASSERT_TRUE(client.ok()) << client.status();
    const auto accepted = listener->TryAccept();
    ASSERT_TRUE(accepted.ok() && *accepted != nullptr) << accepted.status();
    EXPECT_EQ(*listener->TryAccept(), nullptr);
    for (const LinkSocket* end : {client->get(), accepted->get()}) {
      EXPECT_EQ(*end->PeerUid(), geteuid());
      EXPECT_NE(fcntl(end->fd(), F_GETFD) & FD_CLOEXEC, 0);
    }
    EXPECT_NE(fcntl(listener->fd(), F_GETFD) & FD_CLOEXEC, 0);
    ASSERT_TRUE((*client)->Send(File(1)).ok());
    EXPECT_TRUE((*accepted)->TryReceive()->has_value());
    ASSERT_TRUE((*accepted)->Send(Welcome()).ok());
    EXPECT_TRUE((*client)->Receive(absl::InfiniteDuration()).ok());
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_THAT(Entries(folder.path()), IsEmpty());
}

TEST(LinkListenerTest, MakesItsFolderForItsUserAlone) {
  const Folder folder;
  const std::string inner = absl::StrCat(folder.path(), "/inner");
  const auto listener = Listen(inner);
  ASSERT_NE(listener, nullptr);
  struct stat stat;
  ASSERT_EQ(::stat(inner.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 0777, 0700u);
  EXPECT_TRUE(absl::StartsWith(listener->path(), absl::StrCat(inner, "/")));
  // An existing folder works as well, also with a trailing slash.
  EXPECT_NE(Listen(absl::StrCat(inner, "/")), nullptr);
}

TEST(LinkListenerTest, TellsAnAbsolutePath) {
  const Folder folder;
  const UniqueFd here(open(".", O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(chdir(folder.path().c_str()), 0);
  const auto listener = Listen("relative");
  ASSERT_EQ(fchdir(here.get()), 0);
  ASSERT_NE(listener, nullptr);
  EXPECT_TRUE(LinkSocket::Connect(listener->path()).ok());
}

TEST(LinkListenerTest, RefusesAFolderThatIsOpenToOthers) {
  const Folder folder;
  const std::string inner = absl::StrCat(folder.path(), "/inner");
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  for (const mode_t mode : {0701, 0710, 0704, 0770, 0777, 01777}) {
    ASSERT_EQ(chmod(inner.c_str(), mode), 0);
    const auto listener = LinkListener::Listen(inner);
    EXPECT_EQ(listener.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(listener.status().message()), HasSubstr(inner));
  }
  ASSERT_EQ(chmod(inner.c_str(), 0700), 0);
  EXPECT_NE(Listen(inner), nullptr);
}

TEST(LinkListenerTest, RefusesWhatIsNoFolder) {
  const Folder folder;
  const std::string file = absl::StrCat(folder.path(), "/file");
  const UniqueFd made(open(file.c_str(), O_CREAT | O_RDWR, 0700));
  const std::string link = absl::StrCat(folder.path(), "/link");
  const std::string real = absl::StrCat(folder.path(), "/real");
  ASSERT_EQ(mkdir(real.c_str(), 0700), 0);
  ASSERT_EQ(symlink(real.c_str(), link.c_str()), 0);
  for (const std::string& path : {file, link}) {
    EXPECT_EQ(LinkListener::Listen(path).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << path;
  }
  EXPECT_EQ(LinkListener::Listen("").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LinkListener::Listen(folder.path() + "/a/b").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(LinkListenerTest, RefusesAnotherUsersFolder) {
  const Folder folder;
  const std::string inner = absl::StrCat(folder.path(), "/inner");
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  if (chown(inner.c_str(), geteuid() + 1, getegid()) != 0) {
    GTEST_SKIP() << "chown: " << strerror(errno);
  }
  const auto listener = LinkListener::Listen(inner);
  EXPECT_EQ(listener.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(listener.status().message()),
              HasSubstr("belongs to user"));
}

// A socket's address has room for 107 bytes.
TEST(LinkListenerTest, APathMayBeLong) {
  const Folder folder;
  const std::string inner =
      absl::StrCat(folder.path(), "/", std::string(100, 'x'));
  EXPECT_EQ(LinkListener::Listen(inner, LinkListener::Directory::kGiven)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  const int before = OpenDescriptors();
  {
    const auto listener = Listen(inner);
    ASSERT_NE(listener, nullptr);
    EXPECT_TRUE(absl::StartsWith(listener->path(), inner));
    const auto socket = LinkSocket::Connect(listener->path());
    EXPECT_TRUE(socket.ok()) << socket.status();
    EXPECT_EQ(LinkSocket::Connect(inner + "/none").status().code(),
              absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_THAT(Entries(inner), IsEmpty());
}

TEST(LinkListenerTest, SeveralListenInOneFolder) {
  const Folder folder;
  const auto first = Listen(folder.path());
  const auto second = Listen(folder.path());
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_NE(first->path(), second->path());
  EXPECT_TRUE(LinkSocket::Connect(first->path()).ok());
  EXPECT_TRUE(LinkSocket::Connect(second->path()).ok());
}

// Leaves the socket behind, as a process that is killed does.
void Die(std::unique_ptr<LinkListener> listener) {
  const std::string path = listener->path();
  ASSERT_EQ(link(path.c_str(), (path + "x").c_str()), 0);
  listener = nullptr;
  ASSERT_EQ(rename((path + "x").c_str(), path.c_str()), 0);
}

// Makes the socket look as if it had been created `age` ago.
void SetAge(const std::string& path, absl::Duration age) {
  const timespec made = absl::ToTimespec(DateNow() - age);
  const timespec times[] = {made, made};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

TEST(LinkListenerTest, WhatTheDeadHaveLeftIsInNobodysWay) {
  const Folder folder;
  auto dead = Listen(folder.path());
  ASSERT_NE(dead, nullptr);
  const std::string path = dead->path();
  Die(std::move(dead));
  EXPECT_EQ(LinkSocket::Connect(path).status().code(),
            absl::StatusCode::kUnavailable);
  const auto listener = Listen(folder.path());
  ASSERT_NE(listener, nullptr);
  EXPECT_TRUE(LinkSocket::Connect(listener->path()).ok());
  EXPECT_THAT(Entries(folder.path()), SizeIs(2))
      << "it may be one that does not listen yet";
}

TEST(LinkListenerTest, WhatTheDeadHaveLeftIsRemovedAfterAMinute) {
  const Folder folder;
  auto dead = Listen(folder.path());
  const auto living = Listen(folder.path());
  ASSERT_TRUE(dead != nullptr && living != nullptr);
  const std::string path = dead->path();
  Die(std::move(dead));
  SetAge(path, absl::Minutes(2));
  SetAge(living->path(), absl::Minutes(2));
  const std::string other = folder.path() + "/other.sock";
  ASSERT_EQ(link(path.c_str(), other.c_str()), 0);
  const auto listener = Listen(folder.path());
  ASSERT_NE(listener, nullptr);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0) << "it is not ours";
  EXPECT_TRUE(LinkSocket::Connect(living->path()).ok());
}

TEST(LinkListenerTest, UsesAGivenFolderAsItIs) {
  const Folder folder;
  const std::string inner = absl::StrCat(folder.path(), "/inner");
  constexpr auto kGiven = LinkListener::Directory::kGiven;
  EXPECT_EQ(LinkListener::Listen(inner, kGiven).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_EQ(mkdir(inner.c_str(), 0700), 0);
  ASSERT_EQ(chmod(inner.c_str(), 01777), 0);
  const mode_t mask = umask(077);
  const auto listener = LinkListener::Listen(inner, kGiven);
  umask(mask);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(LinkSocket::Connect((*listener)->path()).ok());
  struct stat stat;
  ASSERT_EQ(::stat((*listener)->path().c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 0777, 0666u);
  ASSERT_EQ(::stat(inner.c_str(), &stat), 0);
  EXPECT_EQ(stat.st_mode & 07777, 01777u);
}

TEST(LinkSocketTest, NobodyListens) {
  const Folder folder;
  const std::string abstract("\0abstract", 9);
  const std::vector<std::string> kPaths = {
      folder.path() + "/none", folder.path(), "",
      folder.path() + "/" + std::string(200, 'x'), abstract};
  const int before = OpenDescriptors();
  for (const std::string& path : kPaths) {
    const auto socket = LinkSocket::Connect(path);
    EXPECT_EQ(socket.status().code(), absl::StatusCode::kUnavailable) << path;
    EXPECT_THAT(std::string(socket.status().message()), HasSubstr(path));
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(BootIdTest, IsThatOfTheKernel) {
  const std::string id = BootId();
  // 8-4-4-4-12 hexadecimal digits.
  EXPECT_THAT(id, SizeIs(36));
  EXPECT_EQ(std::count(id.begin(), id.end(), '-'), 4);
  EXPECT_EQ(BootId(), id);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/listen_address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

// A port of 127.0.0.1 on which this object listens.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(fd_, plain, length), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, plain, &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { close(fd_); }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

int FreePort() { return TakenPort().port(); }

std::string Error(absl::string_view address, bool insecure = false) {
  const auto result = ListenAddress(address, insecure);
  EXPECT_FALSE(result.ok()) << *result;
  return result.status().ToString();
}

TEST(ListenAddressTest, Loopback) {
  const int port = FreePort();
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    const std::string address = absl::StrCat(host, ":", port);
    const auto result = ListenAddress(address, false);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, address);
  }
}

TEST(ListenAddressTest, LocalhostIsLookedUp) {
  const int port = FreePort();
  const auto result = ListenAddress(absl::StrCat("localhost:", port), false);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, absl::StrCat("127.0.0.1:", port));
}

TEST(ListenAddressTest, ElsewhereNeedsInsecure) {
  const std::string address = absl::StrCat("0.0.0.0:", FreePort());
  EXPECT_THAT(Error(address),
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("0.0.0.0"),
                    HasSubstr("--insecure")));
  const auto result = ListenAddress(address, true);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, address);
}

TEST(ListenAddressTest, APortInUse) {
  const TakenPort taken;
  EXPECT_THAT(Error(absl::StrCat("127.0.0.1:", taken.port())),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("in use")));
}

TEST(ListenAddressTest, AnAddressOfAnotherMachine) {
  // 192.0.2.0/24 is for documentation (RFC 5737).
  EXPECT_THAT(Error("192.0.2.1:2222", true),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("this machine")));
}

TEST(ListenAddressTest, NoAddressAtAll) {
  EXPECT_THAT(Error("localhost"), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(Error("127.0.0.1:99999"), HasSubstr("INVALID_ARGUMENT"));
}

}  // namespace
}  // namespace holdfast

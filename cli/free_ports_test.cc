// SPDX-License-Identifier: Apache-2.0
#include "cli/free_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FindFreePortsTest, TakesThoseThatFollowTheStart) {
  auto ports = FindFreePorts(3, 20000, [](uint16_t) { return true; });
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_THAT(*ports, ElementsAre(20000, 20001, 20002));
}

TEST(FindFreePortsTest, LeavesOutWhatIsTaken) {
  auto ports =
      FindFreePorts(2, 20000, [](uint16_t port) { return port % 2 == 1; });
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_THAT(*ports, ElementsAre(20001, 20003));
}

TEST(FindFreePortsTest, GoesAroundTheRange) {
  auto ports = FindFreePorts(2, kLastPort, [](uint16_t) { return true; });
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_THAT(*ports, ElementsAre(kLastPort, kFirstPort));
}

TEST(FindFreePortsTest, SaysWhenThereAreNotEnough) {
  auto ports =
      FindFreePorts(2, 20000, [](uint16_t port) { return port == 12345; });
  EXPECT_EQ(ports.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(ports.status().message(), HasSubstr("only 1 of the 2 ports"));
}

// A socket that listens on `port` of loopback (0: any port), as servers do, or
// -1.
int Listen(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(fd, 1) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

uint16_t PortOf(int fd) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

TEST(HeldPortsTest, DoesNotTakeOneThatIsListenedTo) {
  const int fd = Listen(0);
  ASSERT_GE(fd, 0);
  const uint16_t port = PortOf(fd);
  HeldPorts held;
  EXPECT_FALSE(held.TakeIfFree(port));
  close(fd);
  EXPECT_TRUE(held.TakeIfFree(port));
}

TEST(HeldPortsTest, AServerMayListenToWhatNobodyElseCanTake) {
  const int probe = Listen(0);
  ASSERT_GE(probe, 0);
  const uint16_t port = PortOf(probe);
  close(probe);
  HeldPorts other;
  {
    HeldPorts held;
    ASSERT_TRUE(held.TakeIfFree(port));
    EXPECT_FALSE(held.TakeIfFree(port));
    EXPECT_FALSE(other.TakeIfFree(port));
    // Twice, because a daemon may be restarted.
    for (int i = 0; i < 2; ++i) {
      const int fd = Listen(port);
      EXPECT_GE(fd, 0);
      EXPECT_FALSE(other.TakeIfFree(port));
      close(fd);
    }
    EXPECT_FALSE(other.TakeIfFree(port));
  }
  EXPECT_TRUE(other.TakeIfFree(port));
}

}  // namespace
}  // namespace holdfast

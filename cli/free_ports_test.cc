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

TEST(LoopbackPortIsFreeTest, SeesAListener) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(fd, generic, size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, generic, &size), 0);
  const uint16_t port = ntohs(address.sin_port);

  EXPECT_FALSE(LoopbackPortIsFree(port));
  close(fd);
  EXPECT_TRUE(LoopbackPortIsFree(port));
}

}  // namespace
}  // namespace holdfast

#include "common/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// `from`: an address of this machine's loopback.
int Connect(uint16_t port, in_addr_t from = INADDR_LOOPBACK) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(from);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  return fd;
}

// What the server says to `request` until it closes the connection.
std::string Ask(uint16_t port, const std::string& request,
                in_addr_t from = INADDR_LOOPBACK) {
  const int fd = Connect(port, from);
  EXPECT_EQ(write(fd, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char bytes[512];
  for (ssize_t size; (size = read(fd, bytes, sizeof(bytes))) > 0;) {
    answer.append(bytes, size);
  }
  close(fd);
  return answer;
}

std::string Get(uint16_t port, const std::string& path,
                in_addr_t from = INADDR_LOOPBACK) {
  return Ask(port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"),
             from);
}

TEST(HttpServerTest, ServesItsPages) {
  const auto server = HttpServer::Start(
      {}, {{"/a",
            [] {
              return HttpServer::Answer{200, "first\n"};
            }},
           {"/b", [] {
              return HttpServer::Answer{503, "<b>", "text/html"};
            }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  EXPECT_THAT(Get(port, "/a"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("Content-Length: 6\r\n"), EndsWith("first\n")));
  EXPECT_THAT(Get(port, "/a?x=1"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(port, "/b"),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("text/html")));
}

TEST(HttpServerTest, RefusesAllElse) {
  const auto server =
      HttpServer::Start({}, {{"/a", [] {
                                return HttpServer::Answer{200, "first\n"};
                              }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  for (const char* path : {"/", "/a/b", "/b", "/../../etc/passwd",
                           "/%2e%2e/etc/passwd", "//etc/passwd"}) {
    EXPECT_THAT(Get(port, path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  EXPECT_THAT(Ask(port, "POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(port, "DELETE /a HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(port, "HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 "), Not(HasSubstr("first"))));
  EXPECT_THAT(Ask(port, "nonsense\r\n\r\n"), Not(HasSubstr("first")));
  EXPECT_THAT(Get(port, "/a"), StartsWith("HTTP/1.1 200 "));
}

// More connections of one machine than the server takes of all.
TEST(HttpServerTest, AnswersOthersWhileAPeerHoldsConnections) {
  const auto server =
      HttpServer::Start({}, {{"/a", [] {
                                return HttpServer::Answer{200, "first\n"};
                              }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  std::vector<int> held;
  for (int i = 0; i < 300; ++i) {
    held.push_back(Connect(port));
    // Fails where the server has hung up.
    (void)!send(held.back(), "GET /a HT", 9, MSG_NOSIGNAL);
  }
  // The held ones end by themselves after 3 s, which it must not wait for.
  const absl::Time asked = SteadyNow();
  EXPECT_THAT(Get(port, "/a", INADDR_LOOPBACK + 1),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(SteadyNow() - asked, absl::Milliseconds(2500));
  for (const int fd : held) close(fd);
}

TEST(HttpServerTest, Everywhere) {
  HttpServer::Options options;
  options.everywhere = true;
  const auto server =
      HttpServer::Start(options, {{"/a", [] {
                                     return HttpServer::Answer{200, "first\n"};
                                   }}});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Get((*server)->port(), "/a"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServerTest, APortInUse) {
  const auto first = HttpServer::Start({}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  HttpServer::Options options;
  options.port = (*first)->port();
  const auto second = HttpServer::Start(options, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat(options.port)));
}

TEST(HealthPagesTest, SayHowItIs) {
  std::atomic<bool> ready(false);
  const auto server = HttpServer::Start(
      {}, HealthPages([] { return absl::OkStatus(); },
                      [&ready] {
                        return ready ? absl::OkStatus()
                                     : absl::UnavailableError("no variables");
                      }));
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  EXPECT_THAT(Get(port, "/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get(port, "/readyz"),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("no variables\n")));
  ready = true;
  EXPECT_THAT(Get(port, "/readyz"), StartsWith("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace holdfast

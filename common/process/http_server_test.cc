// SPDX-License-Identifier: Apache-2.0
#include "common/process/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

HttpServer::Page Saying(const std::string& text) {
  return [text](const HttpServer::Request&) {
    return HttpServer::Answer{200, text};
  };
}

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

// The server's answer to `request`, up to the end of the connection.
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
  return Ask(port,
             absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"),
             from);
}

TEST(ParseHttpTargetTest, TakesPathAndQueryApart) {
  auto request = ParseHttpTarget("/a%20b/c+d");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->path, "/a b/c+d");
  EXPECT_TRUE(request->query.empty());

  request = ParseHttpTarget(
      "/events.json?since=12&text=a%26b%3Dc+%C3%A4&flag&&empty=&since=1%332");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->path, "/events.json");
  EXPECT_THAT(request->query,
              ElementsAre(Pair("empty", ""), Pair("flag", ""),
                          Pair("since", "132"), Pair("text", "a&b=c ä")));

  // The form in which a proxy is asked.
  request = ParseHttpTarget("http://localhost:80/a?b=c");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->path, "/a");
  EXPECT_THAT(request->query, ElementsAre(Pair("b", "c")));
  request = ParseHttpTarget("HTTPS://localhost");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->path, "/");
}

TEST(ParseHttpTargetTest, RefusesWhatIsNoPath) {
  for (const char* target : {"", "*", "a", "?a=b", "ftp://a/b", "/%", "/%4",
                             "/%4x", "/a?b=%", "/a?%zz=1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHttpTarget(target).status()))
        << target;
  }
}

TEST(HttpServerTest, ServesItsPages) {
  const auto server = HttpServer::Start(
      {}, {{"/a", Saying("first\n")},
           {"/b",
            [](const HttpServer::Request&) {
              return HttpServer::Answer{503, "<b>", "text/html"};
            }},
           {"/query", [](const HttpServer::Request& request) {
              std::string text = request.path;
              for (const auto& [name, value] : request.query) {
                absl::StrAppend(&text, ";", name, "=", value);
              }
              return HttpServer::Answer{200, text};
            }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  EXPECT_THAT(Get(port, "/a"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                    HasSubstr("Content-Length: 6\r\n"), EndsWith("first\n")));
  EXPECT_THAT(Get(port, "/a?x=1"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get(port, "/b"),
              AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("text/html")));
  EXPECT_THAT(Get(port, "/query?x=%201&y=a+b"), EndsWith("/query;x= 1;y=a b"));
  EXPECT_THAT(Ask(port, "GET /a HTTP/1.0\r\n\r\n"), EndsWith("first\n"));
}

TEST(HttpServerTest, RefusesAllElse) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  for (const char* path : {"/", "/a/b", "/b", "/../../etc/passwd",
                           "/%2e%2e/etc/passwd", "//etc/passwd", "/a%00"}) {
    EXPECT_THAT(Get(port, path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  EXPECT_THAT(
      Ask(port, "POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD")));
  EXPECT_THAT(Ask(port, "DELETE /a HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(
      Ask(port, "HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 6\r\n"),
            Not(HasSubstr("first"))));
  for (const char* nonsense :
       {"nonsense\r\n\r\n", "GET /a\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "GET /a HTTP/9\r\n\r\n", "GET /a HTTP/1.1\r\n no name\r\n\r\n",
        "\x16\x03\x01\r\n\r\n", "GET /%g HTTP/1.1\r\n\r\n"}) {
    EXPECT_THAT(Ask(port, nonsense), StartsWith("HTTP/1.1 400 ")) << nonsense;
  }
  EXPECT_THAT(Get(port, "/a"), StartsWith("HTTP/1.1 200 "));
}

// The answer arrives completely although the server does not read the body.
TEST(HttpServerTest, TakesNoBody) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string body(100'000, 'x');
  EXPECT_THAT(Ask((*server)->port(),
                  absl::StrCat("POST /a HTTP/1.1\r\nContent-Length: ",
                               5'000'000, "\r\n\r\n", body)),
              EndsWith("pages can only be read\n"));
}

TEST(HttpServerTest, TakesRequestsOfALimitedLength) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  EXPECT_THAT(Get(port, "/a?" + std::string(15 << 10, 'x')),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get(port, "/a?" + std::string(17 << 10, 'x')),
              AllOf(StartsWith("HTTP/1.1 431 "), HasSubstr("16384 bytes")));
  EXPECT_THAT(Ask(port, absl::StrCat("GET /a HTTP/1.1\r\nA: ",
                                     std::string(50 << 10, 'x'), "\r\n\r\n")),
              StartsWith("HTTP/1.1 431 "));
}

// Such a request may come from a web site of that name, through a browser on
// this machine.
TEST(HttpServerTest, OnLoopbackAnswersToLocalNamesAlone) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto ask = [&](const std::string& host) {
    return Ask((*server)->port(),
               absl::StrCat("GET /a HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
  };
  for (const char* host :
       {"localhost", "LocalHost:80", "127.0.0.1", "[::1]:8080",
        "127.0.0.1:8080", "ps-0.localhost", ""}) {
    EXPECT_THAT(ask(host), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:8080", "notlocalhost",
        "127.0.0.1.evil.example", "[evil", "localhost.evil"}) {
    EXPECT_THAT(ask(host), AllOf(StartsWith("HTTP/1.1 403 "),
                                 HasSubstr("ask for localhost")))
        << host;
  }
}

// More connections from one machine than the server accepts in total.
TEST(HttpServerTest, AnswersOthersWhileAPeerHoldsConnections) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  std::vector<int> held;
  for (int i = 0; i < 300; ++i) {
    held.push_back(Connect(port));
    // Fails if the server has closed the connection.
    (void)!send(held.back(), "GET /a HT", 9, MSG_NOSIGNAL);
  }
  // The held connections end by themselves after 3 s; the server must not wait
  // for that.
  const absl::Time asked = SteadyNow();
  EXPECT_THAT(Get(port, "/a", INADDR_LOOPBACK + 1),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(SteadyNow() - asked, absl::Milliseconds(2500));
  for (const int fd : held) close(fd);
}

TEST(HttpServerTest, CutsOffWhoDoesNotEndTheRequest) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  // Reads until the server closes the connection.
  EXPECT_EQ(Ask((*server)->port(), "GET /a HTTP/1.1\r\nHost: loc"), "");
}

TEST(HttpServerTest, AnswersOthersWhileAPeerDoesNotRead) {
  // More than the buffers of both sides' sockets.
  const std::string large(64 << 20, 'x');
  const auto server = HttpServer::Start(
      {}, {{"/large", Saying(large)}, {"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  const int slow = Connect(port);
  const std::string request = "GET /large HTTP/1.0\r\n\r\n";
  ASSERT_EQ(write(slow, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  // Its answer has begun.
  char byte;
  ASSERT_EQ(recv(slow, &byte, 1, MSG_PEEK), 1);
  const absl::Time asked = SteadyNow();
  EXPECT_THAT(Get(port, "/a"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(SteadyNow() - asked, absl::Milliseconds(2500));
  close(slow);
  // A peer that reads gets the whole page.
  EXPECT_GT(Get(port, "/large").size(), large.size());
}

TEST(HttpServerTest, ServesManyAtATime) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  std::atomic<int> right(0);
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        right += absl::EndsWith(Get(port, "/a"), "\r\n\r\nfirst\n");
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 16 * 50);
}

// Clients that connect while the process has no file descriptors left wait.
TEST(HttpServerTest, AcceptsAgainOnceThereAreDescriptors) {
  const auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const int first_free = socket(AF_INET, SOCK_STREAM, 0);
  close(first_free);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit full = limit;
  // One descriptor for the client.
  full.rlim_cur = first_free + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  const int client = Connect((*server)->port());
  ASSERT_EQ(client, first_free);
  const std::string request = "GET /a HTTP/1.0\r\n\r\n";
  ASSERT_EQ(write(client, request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  pollfd answer = {client, POLLIN, 0};
  EXPECT_EQ(poll(&answer, 1, 150), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(poll(&answer, 1, 30'000), 1);
  char bytes[16] = {};
  EXPECT_EQ(read(client, bytes, 15), 15);
  EXPECT_EQ(std::string(bytes), "HTTP/1.1 200 OK");
  close(client);
}

TEST(HttpServerTest, EndsWhileRequestsAreUnderWay) {
  auto server = HttpServer::Start({}, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const int held = Connect((*server)->port());
  EXPECT_EQ(send(held, "GET /a HT", 9, MSG_NOSIGNAL), 9);
  server->reset();
  char byte;
  EXPECT_LE(read(held, &byte, 1), 0);
  close(held);
}

TEST(HttpServerTest, Everywhere) {
  HttpServer::Options options;
  options.everywhere = true;
  const auto server = HttpServer::Start(options, {{"/a", Saying("first\n")}});
  ASSERT_TRUE(server.ok()) << server.status();
  const uint16_t port = (*server)->port();
  EXPECT_THAT(Get(port, "/a"), StartsWith("HTTP/1.1 200 "));
  // It answers under any name.
  EXPECT_THAT(Ask(port, "GET /a HTTP/1.1\r\nHost: ps-0.net\r\n\r\n"),
              StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServerTest, NeedsSoundCertificatesForHttps) {
  HttpServer::Options options;
  options.tls.emplace();
  options.tls->pem = [] { return HttpServer::Tls::Pem{"none", "none"}; };
  EXPECT_EQ(HttpServer::Start(options, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.tls->pem = [] { return absl::NotFoundError("no such file"); };
  EXPECT_EQ(HttpServer::Start(options, {}).status(),
            absl::NotFoundError("no such file"));
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

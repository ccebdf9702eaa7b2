// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"

namespace holdfast {
namespace {

// Bytes that the reader reads at a time. Fits in the cache.
constexpr size_t kPiece = 1 << 17;
constexpr size_t kAnswer = 16;

absl::Status Error(const char* what) {
  return absl::ErrnoToStatus(errno, what);
}

bool ReadAll(int fd, size_t size, std::vector<char>* buffer) {
  while (size > 0) {
    const ssize_t got =
        read(fd, buffer->data(), std::min(size, buffer->size()));
    if (got <= 0) return false;
    size -= got;
  }
  return true;
}

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0) return false;
    data += sent;
    size -= sent;
  }
  return true;
}

}  // namespace

uint64_t SumOf(absl::Span<const float> values) {
  // Wide enough to be limited by memory bandwidth.
  using Words = uint64_t __attribute__((vector_size(64)));
  const char* const bytes = reinterpret_cast<const char*>(values.data());
  const size_t size = values.size() * sizeof(float);
  Words sums = {};
  size_t at = 0;
  for (; at + sizeof(sums) <= size; at += sizeof(sums)) {
    Words words;
    memcpy(&words, bytes + at, sizeof(words));
    sums += words;
  }
  uint64_t sum = 0;
  for (; at < size; ++at) sum += static_cast<unsigned char>(bytes[at]);
  for (size_t i = 0; i < sizeof(sums) / sizeof(sum); ++i) sum += sums[i];
  return sum;
}

absl::StatusOr<std::unique_ptr<TcpLimit>> TcpLimit::Start(size_t bytes) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return Error("cannot make a socket");
  const auto close_listener = absl::MakeCleanup([&] { close(listener); });
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, any, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, any, &length) != 0) {
    return Error("cannot listen on loopback");
  }
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client < 0) return Error("cannot make a socket");
  // The connection is made in the backlog, before it is accepted.
  const int server = connect(client, any, length) == 0
                         ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)
                         : -1;
  if (server < 0) {
    absl::Status error = Error("cannot connect over loopback");
    close(client);
    return error;
  }
  const int on = 1;
  for (const int fd : {client, server}) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return std::unique_ptr<TcpLimit>(new TcpLimit(client, server, bytes));
}

TcpLimit::TcpLimit(int client, int server, size_t bytes)
    : client_(client), server_(server), reader_([server, bytes] {
        std::vector<char> buffer(kPiece);
        while (ReadAll(server, bytes, &buffer) &&
               WriteAll(server, buffer.data(), kAnswer)) {
        }
      }) {}

TcpLimit::~TcpLimit() {
  shutdown(client_, SHUT_RDWR);
  reader_.join();
  close(client_);
  close(server_);
}

absl::Status TcpLimit::Exchange(absl::Span<const char> data) {
  std::vector<char> answer(kAnswer);
  if (WriteAll(client_, data.data(), data.size()) &&
      ReadAll(client_, kAnswer, &answer)) {
    return absl::OkStatus();
  }
  return Error("a connection over loopback broke");
}

}  // namespace holdfast

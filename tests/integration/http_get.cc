// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

HttpAnswer HttpGet(uint16_t port, const std::string& target) {
  HttpAnswer answer;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request = absl::StrCat("GET ", target,
                                           " HTTP/1.1\r\nHost: localhost\r\n"
                                           "Connection: close\r\n\r\n");
  std::string text;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
          0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char bytes[16 << 10];
    for (ssize_t size; (size = read(fd, bytes, sizeof(bytes))) > 0;) {
      text.append(bytes, size);
    }
  }
  close(fd);
  const size_t end = text.find("\r\n\r\n");
  if (end == text.npos) return answer;
  answer.headers = text.substr(0, end + 2);
  answer.body = text.substr(end + 4);
  // "HTTP/1.1 200 OK"
  if (!absl::SimpleAtoi(answer.headers.substr(9, 3), &answer.code)) {
    answer.code = 0;
  }
  return answer;
}

}  // namespace holdfast

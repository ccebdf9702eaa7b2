// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_INTEGRATION_HTTP_GET_H_
#define HOLDFAST_TESTS_INTEGRATION_HTTP_GET_H_

#include <cstdint>
#include <string>

namespace holdfast {

struct HttpAnswer {
  // The HTTP status code; 0 if there was no answer.
  int code = 0;
  std::string headers;
  std::string body;
};

// Requests `target`, such as "/status.json" or "/a?b=c", from an HTTP server on
// 127.0.0.1, and returns the answer.
HttpAnswer HttpGet(uint16_t port, const std::string& target);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_HTTP_GET_H_

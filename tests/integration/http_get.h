#ifndef HOLDFAST_TESTS_INTEGRATION_HTTP_GET_H_
#define HOLDFAST_TESTS_INTEGRATION_HTTP_GET_H_

#include <cstdint>
#include <string>

namespace holdfast {

struct HttpAnswer {
  // 0: there was none.
  int code = 0;
  std::string headers;
  std::string body;
};

// What an HTTP server on 127.0.0.1 answers when it is asked for `target`, as
// "/status.json" or "/a?b=c".
HttpAnswer HttpGet(uint16_t port, const std::string& target);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_HTTP_GET_H_

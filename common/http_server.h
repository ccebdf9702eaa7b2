#ifndef HOLDFAST_COMMON_HTTP_SERVER_H_
#define HOLDFAST_COMMON_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// A small HTTP server for what people and supervisors look at: pages that are
// read (GET, HEAD), never anything that changes the job. Plain HTTP, so a page
// holds nothing that a stranger must not know.
//
// One thread serves it, and no peer holds it up: one that is slow is cut off
// after seconds. Thread-safe.
class HttpServer {
 public:
  struct Answer {
    int code = 200;
    std::string body;
    std::string content_type = "text/plain; charset=utf-8";
  };
  // Makes a page, on the server's thread: cheap, and without a lock that is
  // held for long.
  using Page = std::function<Answer()>;
  // By path, "/healthz".
  using Pages = std::map<std::string, Page>;

  struct Options {
    // 0: one that is free.
    uint16_t port = 0;
    // Listen on all addresses of this machine, not on loopback alone.
    bool everywhere = false;
  };

  // Errors: UNAVAILABLE when the port cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const Options& options, Pages pages);

  // Waits for pages that are being made.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// /healthz and /readyz, as probes of container engines ask for them: 200 "ok"
// where the status is OK, otherwise 503 with its message. `alive`: whether the
// process works at all; one that does not is to be ended by its supervisor.
// `ready`: whether it takes part in its job. Called as pages are.
HttpServer::Pages HealthPages(std::function<absl::Status()> alive,
                              std::function<absl::Status()> ready);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_HTTP_SERVER_H_

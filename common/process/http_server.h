#ifndef HOLDFAST_COMMON_PROCESS_HTTP_SERVER_H_
#define HOLDFAST_COMMON_PROCESS_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct x509_st;  // OpenSSL's X509

namespace holdfast {

// A small HTTP server for what people and supervisors look at: pages that are
// read (GET, HEAD), never anything that changes the job. Plain HTTP, where a
// page holds nothing that a stranger must not know; or HTTPS for those who show
// a certificate.
//
// One thread serves it, and no peer holds it up: requests and answers of many
// peers are under way at once, and one that is slow is cut off after seconds.
// A server on loopback alone answers only requests for this machine (localhost,
// or an IP address), so that a web site that gives its own name the address
// 127.0.0.1 cannot read pages through a visitor's browser.
// Thread-safe.
class HttpServer {
 public:
  struct Answer {
    int code = 200;
    std::string body;
    std::string content_type = "text/plain; charset=utf-8";
  };
  struct Request {
    // Percent-decoded, without the query: "/healthz".
    std::string path;
    // What stands behind the '?', by name, decoded. Of a name that is given
    // more than once the last value counts; one without '=' is empty.
    std::map<std::string, std::string> query;
  };
  // Makes a page, on the server's thread: cheap, and without a lock that is
  // held for long.
  using Page = std::function<Answer(const Request&)>;
  // By path, "/healthz".
  using Pages = std::map<std::string, Page>;

  // What HTTPS needs.
  struct Tls {
    struct Pem {
      // Whose certificates are accepted.
      std::string authorities;
      // The server's certificate, those between it and its authority, and its
      // private key.
      std::string own;
    };
    // Called for each connection, which gets what is returned, or, where that
    // is an error, what the one before got.
    std::function<absl::StatusOr<Pem>()> pem;
    // Whether the owner of `certificate`, which an authority has signed, may
    // read the pages. Everybody else gets 403 with the message.
    std::function<absl::Status(const x509_st& certificate)> admit;
  };

  struct Options {
    // 0: one that is free.
    uint16_t port = 0;
    // Listen on all addresses of this machine, not on loopback alone.
    bool everywhere = false;
    // HTTPS, TLS 1.2 or newer; a client without a certificate of an authority
    // gets no connection. Default: plain HTTP.
    std::optional<Tls> tls;
  };

  // Errors: UNAVAILABLE when the port cannot be had; INVALID_ARGUMENT, or the
  // error of `tls->pem`, when certificates and key are not what they should be.
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

// The request for `target`, as a request line has it: "/a?b=c", or with scheme
// and host before that. Errors: INVALID_ARGUMENT when it has no path, or a '%'
// without two hexadecimal digits behind it.
absl::StatusOr<HttpServer::Request> ParseHttpTarget(absl::string_view target);

// /healthz and /readyz, as probes of container engines ask for them: 200 "ok"
// where the status is OK, otherwise 503 with its message. `alive`: whether the
// process works at all; one that does not is to be ended by its supervisor.
// `ready`: whether it takes part in its job. Called as pages are.
HttpServer::Pages HealthPages(std::function<absl::Status()> alive,
                              std::function<absl::Status()> ready);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_HTTP_SERVER_H_

// SPDX-License-Identifier: Apache-2.0
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

// A small HTTP server for people and supervisors: pages that are read (GET,
// HEAD), and nothing that changes the job. It serves plain HTTP, for pages
// without secrets, or HTTPS for clients that present a certificate.
//
// A single thread serves all peers, and no peer can block it: many requests and
// answers are in progress at once, and slow peers are disconnected after
// seconds. A server on loopback only answers only requests for this machine
// (localhost, or an IP address), so that a web site that resolves its own name
// to 127.0.0.1 cannot read pages through a visitor's browser. Thread-safe.
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
    // The parameters after the '?', by name, decoded. If a name is given more
    // than once, the last value counts; a parameter without '=' is empty.
    std::map<std::string, std::string> query;
  };
  // Answers a request for one page. It is called on the server's thread, so it
  // must be cheap, and must not take locks that are held for long.
  using Page = std::function<Answer(const Request&)>;
  // Indexed by the page's path, such as "/healthz".
  using Pages = std::map<std::string, Page>;

  // The settings for HTTPS.
  struct Tls {
    struct Pem {
      // The authorities whose certificates are accepted.
      std::string authorities;
      // The server's certificate, the intermediate certificates, and its
      // private key.
      std::string own;
    };
    // Called for each connection, which uses the returned certificates and key
    // or, if an error is returned, the last valid ones.
    std::function<absl::StatusOr<Pem>()> pem;
    // Returns OK if the owner of `certificate`, which an authority has signed,
    // may read the pages. Otherwise the answer is 403 with the error's message.
    std::function<absl::Status(const x509_st& certificate)> admit;
  };

  struct Options {
    // 0 means a free port.
    uint16_t port = 0;
    // Whether to listen on all addresses of this machine, not only on loopback.
    bool everywhere = false;
    // If set, the server uses HTTPS, with TLS 1.2 or newer, and refuses
    // connections from clients without a certificate of an authority. Otherwise
    // it uses plain HTTP.
    std::optional<Tls> tls;
  };

  // Errors: UNAVAILABLE when the port is not available; INVALID_ARGUMENT, or
  // the error of `tls->pem`, when certificates or key are invalid.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const Options& options, Pages pages);

  // Waits for the call of a Page that is in progress, if any.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// Parses `target`, the part of an HTTP request line that names the page:
// "/a?b=c", optionally after scheme and host.
// Errors: INVALID_ARGUMENT when `target` has no path, or has a '%' that is not
// followed by two hexadecimal digits.
absl::StatusOr<HttpServer::Request> ParseHttpTarget(absl::string_view target);

// The pages /healthz and /readyz for the probes of container engines: 200 "ok"
// if `alive` or `ready` returns OK, otherwise 503 with the error's message.
// `alive` says whether the process works at all; if not, its supervisor should
// end it. `ready` says whether the process takes part in its job. Both are
// called like a Page.
HttpServer::Pages HealthPages(std::function<absl::Status()> alive,
                              std::function<absl::Status()> ready);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_HTTP_SERVER_H_

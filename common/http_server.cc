#include "common/http_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// More are turned away. What one machine may hold leaves room for the probes of
// another.
constexpr unsigned int kMaxConnections = 256;
constexpr unsigned int kMaxConnectionsOfOneAddress = 32;
// A peer that neither sends nor reads for so long is cut off.
constexpr unsigned int kPatienceSeconds = 3;
// For a request's line and headers.
constexpr size_t kMaxRequestBytes = 16 << 10;

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(Pages pages) : pages_(std::move(pages)) {}
  ~Impl() {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }

  // False: see errno.
  bool Listen(uint16_t port, in_addr_t address, unsigned int flags);

  uint16_t port() const {
    return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
  }

 private:
  static MHD_Result Serve(void* self, MHD_Connection* connection,
                          const char* path, const char* method, const char*,
                          const char*, size_t*, void**);
  Answer AnswerTo(absl::string_view method, const std::string& path) const;

  const Pages pages_;
  MHD_Daemon* daemon_ = nullptr;
};

bool HttpServer::Impl::Listen(uint16_t port, in_addr_t address,
                              unsigned int flags) {
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(address);
  // With both kinds of addresses it listens on all, and takes the port alone.
  const bool dual = (flags & MHD_USE_DUAL_STACK) != 0;
  daemon_ = MHD_start_daemon(
      flags | MHD_USE_AUTO_INTERNAL_THREAD, port, nullptr, nullptr,
      &Impl::Serve, this, MHD_OPTION_CONNECTION_LIMIT, kMaxConnections,
      MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMaxConnectionsOfOneAddress,
      MHD_OPTION_CONNECTION_TIMEOUT, kPatienceSeconds,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kMaxRequestBytes,
      dual ? MHD_OPTION_END : MHD_OPTION_SOCK_ADDR, &where, MHD_OPTION_END);
  return daemon_ != nullptr;
}

HttpServer::Answer HttpServer::Impl::AnswerTo(absl::string_view method,
                                              const std::string& path) const {
  if (method != "GET" && method != "HEAD") {
    return {405, "pages can only be read\n"};
  }
  const auto page = pages_.find(path);
  if (page == pages_.end()) return {404, "no such page\n"};
  return page->second();
}

MHD_Result HttpServer::Impl::Serve(void* self, MHD_Connection* connection,
                                   const char* path, const char* method,
                                   const char*, const char*, size_t*, void**) {
  const Answer answer = static_cast<const Impl*>(self)->AnswerTo(method, path);
  // The body is copied, and left out of what HEAD asks for.
  MHD_Response* const response = MHD_create_response_from_buffer(
      answer.body.size(), const_cast<char*>(answer.body.data()),
      MHD_RESPMEM_MUST_COPY);
  MHD_add_response_header(response, "Content-Type",
                          answer.content_type.c_str());
  MHD_add_response_header(response, "Cache-Control", "no-store");
  // A request is all that a connection is for.
  MHD_add_response_header(response, "Connection", "close");
  const MHD_Result result =
      MHD_queue_response(connection, answer.code, response);
  MHD_destroy_response(response);
  return result;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const Options& options, Pages pages) {
  auto impl = std::make_unique<Impl>(std::move(pages));
  const bool listens =
      options.everywhere
          // Both kinds, where the machine has IPv6.
          ? impl->Listen(options.port, INADDR_ANY, MHD_USE_DUAL_STACK) ||
                impl->Listen(options.port, INADDR_ANY, 0)
          : impl->Listen(options.port, INADDR_LOOPBACK, 0);
  if (!listens) {
    return absl::UnavailableError(absl::StrCat(
        "cannot serve HTTP on port ", options.port, ": ", strerror(errno)));
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }

HttpServer::Pages HealthPages(std::function<absl::Status()> alive,
                              std::function<absl::Status()> ready) {
  const auto page = [](std::function<absl::Status()> check) {
    return [check = std::move(check)]() -> HttpServer::Answer {
      const absl::Status status = check();
      if (status.ok()) return {200, "ok\n"};
      return {503, absl::StrCat(status.message(), "\n")};
    };
  };
  return {{"/healthz", page(std::move(alive))},
          {"/readyz", page(std::move(ready))}};
}

}  // namespace holdfast

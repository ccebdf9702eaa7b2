// SPDX-License-Identifier: Apache-2.0
#include "common/process/http_server.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/detect_ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

// More connections are refused. The limit per address leaves room for other
// machines' probes.
constexpr int kMaxConnections = 256;
constexpr int kMaxConnectionsOfOneAddress = 32;
// A peer is disconnected if its handshake or its request takes longer than
// this, or if it reads nothing of its answer for this long.
constexpr std::chrono::seconds kPatience(3);
// A peer that reads its answer byte by byte is disconnected after this time.
constexpr std::chrono::seconds kLifetime(60);
// The limit for a request's line and headers.
constexpr size_t kMaxRequestBytes = 16 << 10;
// The number of bytes that a peer may send once the server ignores them.
constexpr size_t kMaxIgnoredBytes = 1 << 20;
// How long the server waits after it fails to accept a connection.
constexpr std::chrono::milliseconds kPause(100);

std::optional<std::string> PercentDecode(absl::string_view text,
                                         bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded.push_back(' ');
    } else if (text[i] != '%') {
      decoded.push_back(text[i]);
    } else {
      if (text.size() - i < 3 || !absl::ascii_isxdigit(text[i + 1]) ||
          !absl::ascii_isxdigit(text[i + 2])) {
        return std::nullopt;
      }
      absl::StrAppend(&decoded, absl::HexStringToBytes(text.substr(i + 1, 2)));
      i += 2;
    }
  }
  return decoded;
}

// Whether `host`, from a request, is a name that this machine has for itself.
bool IsThisMachine(absl::string_view host) {
  if (host.empty()) return true;  // HTTP/1.0
  absl::string_view name = host;
  if (absl::StartsWith(name, "[")) {
    name = name.substr(1, name.find(']') - 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  error_code error;
  asio::ip::make_address(std::string(name), error);
  return !error || absl::EqualsIgnoreCase(name, "localhost") ||
         absl::EndsWithIgnoreCase(name, ".localhost");
}

void CloseOnExec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

absl::Status WrongPem(absl::string_view what, const error_code& error) {
  return absl::InvalidArgumentError(
      absl::StrCat("HTTPS: ", what, ": ", error.message()));
}

absl::StatusOr<std::shared_ptr<asio::ssl::context>> MakeContext(
    const HttpServer::Tls::Pem& pem) {
  auto context =
      std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* const raw = context->native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  // No session is resumed: the certificate is verified on each connection.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(raw, 0);
  error_code error;
  const auto check = [&error](absl::string_view what) {
    return error ? WrongPem(what, error) : absl::OkStatus();
  };
  context->add_certificate_authority(asio::buffer(pem.authorities), error);
  absl::Status status = check("certificates of authorities");
  if (!error) {
    context->use_certificate_chain(asio::buffer(pem.own), error);
    status = check("own certificate");
  }
  if (!error) {
    context->use_private_key(asio::buffer(pem.own), asio::ssl::context::pem,
                             error);
    status = check("private key");
  }
  if (!error) {
    context->set_verify_mode(
        asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
    status = check("verification");
  }
  if (!status.ok()) return status;
  // Browsers use the authorities' names to choose the certificate that they
  // offer.
  const STACK_OF(X509_OBJECT)* const trusted =
      X509_STORE_get0_objects(SSL_CTX_get_cert_store(raw));
  for (int i = 0; i < sk_X509_OBJECT_num(trusted); ++i) {
    X509* const authority =
        X509_OBJECT_get0_X509(sk_X509_OBJECT_value(trusted, i));
    if (authority != nullptr) SSL_CTX_add_client_CA(raw, authority);
  }
  return context;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const Options& options, Pages pages)
      : options_(options), pages_(std::move(pages)) {}
  ~Impl() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start();
  uint16_t port() const { return port_; }

 private:
  class Connection;

  // Errors: the system's.
  error_code Listen(const tcp::endpoint& where);
  void Accept();
  void Take(tcp::socket socket);
  // Returns the TLS context for a new connection.
  std::shared_ptr<asio::ssl::context> CurrentTls();
  Answer AnswerTo(const absl::Status& admitted, absl::string_view method,
                  absl::string_view host, absl::string_view target) const;

  const Options options_;
  const Pages pages_;
  uint16_t port_ = 0;

  // Everything below belongs to the thread once it runs. Connections decrement
  // the counts, so context_, which owns them, must be destroyed before the
  // counts.
  int connections_ = 0;
  std::map<asio::ip::address, int> connections_of_;
  Tls::Pem pem_;
  std::shared_ptr<asio::ssl::context> tls_;

  asio::io_context context_{/*concurrency_hint=*/1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer pause_{context_};
  std::thread thread_;
};

// One connection, for one request. It lives as long as an operation on it is
// pending.
class HttpServer::Impl::Connection
    : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl* server, tcp::socket socket, const asio::ip::address& peer)
      : server_(server), peer_(peer), tcp_(std::move(socket)) {
    ++server_->connections_;
    ++server_->connections_of_[peer_];
  }
  ~Connection() {
    --server_->connections_;
    const auto count = server_->connections_of_.find(peer_);
    if (--count->second == 0) server_->connections_of_.erase(count);
  }

  void Start() {
    tcp_.expires_after(kPatience);
    if (!server_->options_.tls.has_value()) return ReadRequest(&tcp_);
    beast::async_detect_ssl(
        tcp_, buffer_,
        [self = shared_from_this()](const error_code& error, bool is_tls) {
          if (error) return;
          if (is_tls) return self->ShakeHands();
          self->Send(&self->tcp_,
                     {400, "this port serves HTTPS: use https://\n"}, true);
        });
  }

 private:
  using TlsStream = asio::ssl::stream<beast::tcp_stream&>;

  void ShakeHands() {
    const std::shared_ptr<asio::ssl::context> tls = server_->CurrentTls();
    tls_.emplace(tcp_, *tls);
    tls_->async_handshake(
        TlsStream::server, buffer_.data(),
        [self = shared_from_this()](const error_code& error, size_t used) {
          // OpenSSL has sent the reason to the peer.
          if (error) return self->HangUp();
          self->buffer_.consume(used);
          self->admitted_ = self->server_->options_.tls->admit(
              *SSL_get0_peer_certificate(self->tls_->native_handle()));
          self->tcp_.expires_after(kPatience);
          self->ReadRequest(&*self->tls_);
        });
  }

  template <typename Stream>
  void ReadRequest(Stream* stream) {
    parser_.header_limit(kMaxRequestBytes);
    // A body is not read. (Beast 1.74 takes boost::none for a limit of 0.)
    parser_.body_limit(std::numeric_limits<uint64_t>::max());
    http::async_read_header(
        *stream, buffer_, parser_,
        [self = shared_from_this(), stream](const error_code& error, size_t) {
          self->AnswerRequest(stream, error);
        });
  }

  template <typename Stream>
  void AnswerRequest(Stream* stream, const error_code& error) {
    if (error == http::error::header_limit ||
        error == http::error::buffer_overflow) {
      return Send(stream,
                  {431, absl::StrCat("the request has more than ",
                                     kMaxRequestBytes, " bytes\n")},
                  true);
    }
    if (error == http::error::end_of_stream ||
        error == http::error::partial_message) {
      return;
    }
    if (error &&
        error.category() ==
            http::make_error_code(http::error::bad_method).category()) {
      return Send(stream, {400, "this is not an HTTP request\n"}, true);
    }
    if (error) return;
    const auto& request = parser_.get();
    const auto view = [](beast::string_view text) {
      return absl::string_view(text.data(), text.size());
    };
    Send(stream,
         server_->AnswerTo(admitted_, view(request.method_string()),
                           view(request[http::field::host]),
                           view(request.target())),
         request.method() != http::verb::head);
  }

  template <typename Stream>
  void Send(Stream* stream, const Answer& answer, bool with_body) {
    const auto reason = http::obsolete_reason(http::int_to_status(answer.code));
    answer_ = absl::StrCat(
        "HTTP/1.1 ", answer.code, " ",
        absl::string_view(reason.data(), reason.size()),
        "\r\nContent-Type: ", answer.content_type,
        "\r\nContent-Length: ", answer.body.size(),
        answer.code == 405 ? "\r\nAllow: GET, HEAD" : "",
        "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
        // Each connection serves one request.
        "\r\nConnection: close\r\n\r\n",
        with_body ? answer.body : "");
    unsent_ = answer_;
    SendRest(stream);
  }

  template <typename Stream>
  void SendRest(Stream* stream) {
    if (Clock::now() > begun_ + kLifetime) return;
    tcp_.expires_after(kPatience);
    if (unsent_.empty()) return Finish(stream);
    stream->async_write_some(asio::buffer(unsent_.data(), unsent_.size()),
                             [self = shared_from_this(), stream](
                                 const error_code& error, size_t sent) {
                               if (error) return;
                               self->unsent_.remove_prefix(sent);
                               self->SendRest(stream);
                             });
  }

  void Finish(beast::tcp_stream*) { HangUp(); }
  void Finish(TlsStream* stream) {
    stream->async_shutdown(
        [self = shared_from_this()](const error_code&) { self->HangUp(); });
  }

  // Closing a socket that has unread data resets the connection, and the peer
  // may lose data that it has not read yet. So the server waits until the peer
  // closes it or times out.
  void HangUp() {
    error_code ignored;
    tcp_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    tcp_.expires_after(kPatience);
    buffer_.clear();
    Ignore(0);
  }

  void Ignore(size_t ignored) {
    if (ignored > kMaxIgnoredBytes) return;
    tcp_.async_read_some(buffer_.prepare(kMaxRequestBytes),
                         [self = shared_from_this(), ignored](
                             const error_code& error, size_t read) {
                           if (!error) self->Ignore(ignored + read);
                         });
  }

  Impl* const server_;
  const asio::ip::address peer_;
  const Clock::time_point begun_ = Clock::now();
  beast::tcp_stream tcp_;
  std::optional<TlsStream> tls_;
  absl::Status admitted_;
  beast::flat_buffer buffer_{kMaxRequestBytes};
  http::request_parser<http::empty_body> parser_;
  std::string answer_;
  absl::string_view unsent_;
};

absl::Status HttpServer::Impl::Start() {
  if (options_.tls.has_value()) {
    HOLDFAST_ASSIGN_OR_RETURN(auto pem, options_.tls->pem());
    HOLDFAST_ASSIGN_OR_RETURN(auto tls, MakeContext(pem));
    pem_ = std::move(pem);
    tls_ = std::move(tls);
  }
  error_code error;
  if (options_.everywhere) {
    // Both IPv6 and IPv4, if the machine has IPv6.
    error = Listen({asio::ip::address_v6::any(), options_.port});
    if (error) error = Listen({asio::ip::address_v4::any(), options_.port});
  } else {
    error = Listen({asio::ip::address_v4::loopback(), options_.port});
  }
  if (!error) port_ = acceptor_.local_endpoint(error).port();
  if (error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot serve HTTP on port ", options_.port, ": ", error.message()));
  }
  Accept();
  thread_ = std::thread([this] { context_.run(); });
  pthread_setname_np(thread_.native_handle(), "http");
  return absl::OkStatus();
}

error_code HttpServer::Impl::Listen(const tcp::endpoint& where) {
  error_code error, ignored;
  acceptor_.close(ignored);
  acceptor_.open(where.protocol(), error);
  if (error) return error;
  CloseOnExec(acceptor_.native_handle());
  acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && where.address().is_v6()) {
    acceptor_.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor_.bind(where, error);
  if (error) return error;
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    if (!error) {
      Take(std::move(socket));
      return Accept();
    }
    // No file descriptors or no memory are left.
    pause_.expires_after(kPause);
    pause_.async_wait([this](const error_code&) { Accept(); });
  });
}

void HttpServer::Impl::Take(tcp::socket socket) {
  CloseOnExec(socket.native_handle());
  error_code error;
  const asio::ip::address peer = socket.remote_endpoint(error).address();
  if (error || connections_ >= kMaxConnections) return;
  const auto count = connections_of_.find(peer);
  if (count != connections_of_.end() &&
      count->second >= kMaxConnectionsOfOneAddress) {
    return;
  }
  std::make_shared<Connection>(this, std::move(socket), peer)->Start();
}

std::shared_ptr<asio::ssl::context> HttpServer::Impl::CurrentTls() {
  absl::StatusOr<Tls::Pem> pem = options_.tls->pem();
  if (pem.ok() &&
      (pem->own != pem_.own || pem->authorities != pem_.authorities)) {
    if (auto tls = MakeContext(*pem); tls.ok()) tls_ = *std::move(tls);
    pem_ = *std::move(pem);
  }
  return tls_;
}

HttpServer::Answer HttpServer::Impl::AnswerTo(const absl::Status& admitted,
                                              absl::string_view method,
                                              absl::string_view host,
                                              absl::string_view target) const {
  if (!admitted.ok()) return {403, absl::StrCat(admitted.message(), "\n")};
  if (!options_.everywhere && tls_ == nullptr && !IsThisMachine(host)) {
    return {
        403,
        absl::StrCat(
            "this port is only for this machine: ask for localhost, not for ",
            host, "\n")};
  }
  if (method != "GET" && method != "HEAD") {
    return {405, "pages can only be read\n"};
  }
  const absl::StatusOr<Request> request = ParseHttpTarget(target);
  if (!request.ok())
    return {400, absl::StrCat(request.status().message(), "\n")};
  const auto page = pages_.find(request->path);
  if (page == pages_.end()) return {404, "no such page\n"};
  return page->second(*request);
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const Options& options, Pages pages) {
  auto impl = std::make_unique<Impl>(options, std::move(pages));
  HOLDFAST_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }

absl::StatusOr<HttpServer::Request> ParseHttpTarget(absl::string_view target) {
  const auto wrong = [target](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("\"", target, "\" ", why));
  };
  absl::string_view rest = target;
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(rest, scheme)) continue;
    rest.remove_prefix(scheme.size());
    const size_t end = rest.find_first_of("/?");
    rest = end == rest.npos ? "/" : rest.substr(end);
    break;
  }
  if (!absl::StartsWith(rest, "/"))
    return wrong("is not a path: it must begin with '/'");
  const size_t question = rest.find('?');
  const auto path = PercentDecode(rest.substr(0, question), false);
  if (!path.has_value())
    return wrong("has a '%' without two hexadecimal digits");
  HttpServer::Request request;
  request.path = *path;
  if (question == rest.npos) return request;
  for (const absl::string_view pair :
       absl::StrSplit(rest.substr(question + 1), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto name = PercentDecode(parts.first, true);
    const auto value = PercentDecode(parts.second, true);
    if (!name.has_value() || !value.has_value()) {
      return wrong("has a '%' without two hexadecimal digits");
    }
    request.query[*name] = *value;
  }
  return request;
}

HttpServer::Pages HealthPages(std::function<absl::Status()> alive,
                              std::function<absl::Status()> ready) {
  const auto page = [](std::function<absl::Status()> check) {
    return [check = std::move(check)](
               const HttpServer::Request&) -> HttpServer::Answer {
      const absl::Status status = check();
      if (status.ok()) return {200, "ok\n"};
      return {503, absl::StrCat(status.message(), "\n")};
    };
  };
  return {{"/healthz", page(std::move(alive))},
          {"/readyz", page(std::move(ready))}};
}

}  // namespace holdfast

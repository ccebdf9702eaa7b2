// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/diagnosis.h"

#include <arpa/inet.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/job/cluster_spec.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/identity.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/status.h"
#include "proto/health.pb.h"

namespace holdfast {
namespace {

using Kind = Diagnosis::Kind;

// How often a wait checks whether it was cancelled.
constexpr absl::Duration kSlice = absl::Milliseconds(50);
// Time limits for connecting, and for the first bytes of a peer that has
// accepted.
constexpr absl::Duration kConnectPatience = absl::Seconds(2);
constexpr absl::Duration kAnswerPatience = absl::Seconds(1);
// The shortest time from the end of one diagnosis to the start of the next.
constexpr absl::Duration kLookEvery = absl::Seconds(2);
// The maximum numbers of bytes of an unexpected answer that are kept, and that
// are shown.
constexpr size_t kMostHeard = 512;
constexpr size_t kMostShown = 60;

// The first bytes of an HTTP/2 client: its preface, and a SETTINGS frame
// without settings.
constexpr char kPreface[] =
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const absl::string_view kHttp2Opening(kPreface, sizeof(kPreface) - 1);
constexpr size_t kFrameHeader = 9;

constexpr char kSelfIntroduction[] = "this is ";

// A deadline that can be cancelled.
struct Patience {
  Patience For(absl::Duration most) const {
    return {std::min(deadline, SteadyNow() + most), cancelled};
  }
  bool IsOver() const {
    return SteadyNow() >= deadline || (cancelled != nullptr && *cancelled);
  }
  absl::Duration Slice() const {
    return std::clamp(deadline - SteadyNow(), absl::ZeroDuration(), kSlice);
  }

  absl::Time deadline;
  const std::atomic<bool>* cancelled;
};

Diagnosis Unclear(std::string cause) {
  return {Kind::kUnclear, std::move(cause), std::nullopt};
}
Diagnosis Passing(std::string cause) {
  return {Kind::kPassing, std::move(cause), std::nullopt};
}
Diagnosis Mistake(std::string cause,
                  std::optional<TaskId> found = std::nullopt) {
  return {Kind::kMistake, std::move(cause), std::move(found)};
}

// ---- Names ----

struct Endpoint {
  std::string ToString() const {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host,
                    sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      return "";
    }
    return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port)
                                        : absl::StrCat(host, ":", port);
  }

  sockaddr_storage address;
  socklen_t length;
};

// Shared with the thread that looks the name up, which may end later.
struct Lookup {
  absl::Mutex mutex;
  bool done ABSL_GUARDED_BY(mutex) = false;
  int error ABSL_GUARDED_BY(mutex) = 0;
  std::vector<Endpoint> endpoints ABSL_GUARDED_BY(mutex);
};

void LookUp(const std::string& host, uint16_t port, Lookup* lookup) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  absl::MutexLock lock(&lookup->mutex);
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    Endpoint& endpoint = lookup->endpoints.emplace_back();
    std::memcpy(&endpoint.address, info->ai_addr, info->ai_addrlen);
    endpoint.length = info->ai_addrlen;
  }
  if (found != nullptr) freeaddrinfo(found);
  lookup->error = error;
  lookup->done = true;
}

// The addresses of `where`. Empty, with the reason in `*why`, if the name does
// not resolve.
std::vector<Endpoint> Resolve(const HostPort& where, const Patience& patience,
                              Diagnosis* why) {
  const auto lookup = std::make_shared<Lookup>();
  // getaddrinfo cannot be cancelled and may take half a minute.
  std::thread([lookup, where] {
    LookUp(where.host, where.port, lookup.get());
  }).detach();
  absl::MutexLock lock(&lookup->mutex);
  while (!lookup->done && !patience.IsOver()) {
    lookup->mutex.AwaitWithTimeout(absl::Condition(&lookup->done),
                                   patience.Slice());
  }
  if (!lookup->done) {
    *why = Unclear(absl::StrCat("DNS does not answer for the host name \"",
                                where.host, "\""));
  } else if (lookup->error != 0) {
    *why = Passing(
        absl::StrCat("the host name \"", where.host,
                     "\" does not resolve: ", gai_strerror(lookup->error)));
  }
  return lookup->done ? lookup->endpoints : std::vector<Endpoint>();
}

// ---- Sockets ----

// A connection whose methods never block beyond the given patience.
class Socket {
 public:
  explicit Socket(const Endpoint& to)
      : fd_(socket(to.address.ss_family,
                   SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // Connects, and returns 0, or an errno, which is ETIMEDOUT if the peer does
  // not answer.
  int Connect(const Endpoint& to, const Patience& patience) {
    if (fd_ < 0) return errno;
    const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
    if (connect(fd_, address, to.length) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!Await(POLLOUT, patience)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }

  // Sends as much as the peer takes.
  void Send(absl::string_view bytes, const Patience& patience) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(sent);
      } else if (errno != EAGAIN || !Await(POLLOUT, patience)) {
        return;
      }
    }
  }

  // Returns the next bytes. Returns nothing if the peer has closed the
  // connection; or, and then sets `*silent`, if the peer has sent nothing in
  // time.
  std::string Receive(const Patience& patience, bool* silent) {
    std::string bytes(kMostHeard, '\0');
    if (!Await(POLLIN, patience)) {
      *silent = true;
      return "";
    }
    const ssize_t received = recv(fd_, bytes.data(), bytes.size(), 0);
    bytes.resize(std::max<ssize_t>(received, 0));
    return bytes;
  }

 private:
  bool Await(short events, const Patience& patience) const {
    while (!patience.IsOver()) {
      pollfd wait = {fd_, events, 0};
      const int slice =
          static_cast<int>(absl::ToInt64Milliseconds(patience.Slice())) + 1;
      if (poll(&wait, 1, slice) > 0) return true;
    }
    return false;
  }

  const int fd_;
};

// The first of `endpoints` that accepts a connection. Nullopt, with the reason
// in `*why`, if none does.
std::optional<Endpoint> FindReachable(const std::vector<Endpoint>& endpoints,
                                      const std::string& address,
                                      const Patience& patience,
                                      Diagnosis* why) {
  for (const Endpoint& endpoint : endpoints) {
    const int error =
        Socket(endpoint).Connect(endpoint, patience.For(kConnectPatience));
    if (error == 0) return endpoint;
    const std::string numeric = endpoint.ToString();
    const std::string at =
        numeric == address ? "" : absl::StrCat(" at ", numeric);
    if (error == ECONNREFUSED) {
      *why = Passing(
          absl::StrCat("connection refused: nothing listens there", at));
    } else if (error == ETIMEDOUT) {
      if (why->kind == Kind::kPassing) continue;
      *why = Unclear(
          absl::StrCat("nothing answers there", at,
                       ": the machine is off, or a firewall drops packets"));
    } else {
      if (why->kind == Kind::kPassing) continue;
      *why = Passing(
          absl::StrCat("cannot connect", at, ": ", std::strerror(error)));
    }
  }
  return std::nullopt;
}

// ---- The peer's answer ----

// The result of a connection on which this side spoke first.
struct Talk {
  // The first bytes of the peer.
  std::string heard;
  bool silent = false;

  // With TLS, once the handshake is complete:
  bool handshake = false;
  long verified = X509_V_OK;
  std::vector<std::string> names;
  // Whether the peer sent an encrypted answer; if it did not, its TLS alert.
  bool answered = false;
  std::string alert;
};

bool IsTls(absl::string_view heard) {
  // A handshake or alert record of any version.
  return heard.size() >= 2 && (heard[0] == 0x16 || heard[0] == 0x15) &&
         heard[1] == 0x03;
}

bool IsHttp2(absl::string_view heard) {
  // SETTINGS or GOAWAY, on stream 0.
  return heard.size() >= kFrameHeader && (heard[3] == 4 || heard[3] == 7) &&
         heard.substr(5, 4) == absl::string_view("\0\0\0\0", 4);
}

Talk TalkPlainly(const Endpoint& to, const Patience& patience) {
  Talk talk;
  Socket socket(to);
  if (socket.Connect(to, patience.For(kConnectPatience)) != 0) return talk;
  const Patience answer = patience.For(kAnswerPatience);
  socket.Send(kHttp2Opening, answer);
  while (talk.heard.size() < kFrameHeader) {
    const std::string more = socket.Receive(answer, &talk.silent);
    if (more.empty()) break;
    talk.heard += more;
  }
  return talk;
}

struct SslFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};
using SslContext = std::unique_ptr<SSL_CTX, SslFree>;

// Presents the same certificate as gRPC, but accepts every peer's, to inspect
// it.
SslContext MakeContext(const Credentials& credentials) {
  SslContext context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof(kHttp2));
  if (credentials.secure()) {
    const Credentials::Paths paths = credentials.paths();
    SSL_CTX_use_certificate_chain_file(context.get(), paths.own.c_str());
    SSL_CTX_use_PrivateKey_file(context.get(), paths.own.c_str(),
                                SSL_FILETYPE_PEM);
    SSL_CTX_load_verify_locations(context.get(), paths.authorities.c_str(),
                                  nullptr);
  }
  return context;
}

class TlsTalk {
 public:
  TlsTalk(const Endpoint& to, uint32_t ps, const Credentials& credentials)
      : to_(to),
        context_(MakeContext(credentials)),
        ssl_(SSL_new(context_.get())),
        socket_(to) {
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(in_, -1);
    SSL_set_bio(ssl_.get(), in_, out_);
    SSL_set_connect_state(ssl_.get());
    if (credentials.secure()) {
      SSL_set_tlsext_host_name(ssl_.get(), credentials.HostName(ps).c_str());
    }
  }

  Talk Run(const Patience& patience) {
    if (socket_.Connect(to_, patience.For(kConnectPatience)) != 0) return talk_;
    const absl::Cleanup clear = [] { ERR_clear_error(); };
    const Patience handshake = patience.For(kAnswerPatience);
    if (!Drive(handshake, [this] { return SSL_do_handshake(ssl_.get()); })) {
      return talk_;
    }
    talk_.handshake = true;
    talk_.verified = SSL_get_verify_result(ssl_.get());
    const std::unique_ptr<X509, SslFree> certificate(
        SSL_get1_peer_certificate(ssl_.get()));
    if (certificate != nullptr) talk_.names = IdentityUrisOf(*certificate);
    // With TLS 1.3 a server verifies the client's certificate only after the
    // handshake.
    const Patience answer = patience.For(kAnswerPatience);
    Drive(answer, [this] {
      return SSL_write(ssl_.get(), kHttp2Opening.data(), kHttp2Opening.size());
    });
    talk_.answered = Drive(answer, [this] {
      char first;
      return SSL_read(ssl_.get(), &first, 1);
    });
    return talk_;
  }

 private:
  // Repeats `step` while it needs more bytes of the peer. False if it failed.
  template <typename Step>
  bool Drive(const Patience& patience, Step step) {
    for (;;) {
      ERR_clear_error();
      const int result = step();
      char* bytes = nullptr;
      if (const long size = BIO_get_mem_data(out_, &bytes); size > 0) {
        socket_.Send(absl::string_view(bytes, size), patience);
        BIO_reset(out_);
      }
      if (result > 0) return true;
      if (SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ) {
        const char* const why = ERR_reason_error_string(ERR_peek_error());
        talk_.alert = why == nullptr ? "" : why;
        return false;
      }
      const std::string more = socket_.Receive(patience, &talk_.silent);
      if (more.empty()) return false;
      if (talk_.heard.size() < kMostHeard) talk_.heard += more;
      BIO_write(in_, more.data(), static_cast<int>(more.size()));
    }
  }

  const Endpoint& to_;
  const SslContext context_;
  const std::unique_ptr<SSL, SslFree> ssl_;
  // Owned by ssl_.
  BIO* in_;
  BIO* out_;
  Socket socket_;
  Talk talk_;
};

// ---- The verdict ----

// The diagnosis for a peer that has sent `heard`, bytes that no ps sends.
Diagnosis NotPs(absl::string_view heard) {
  const std::string line(
      absl::StripAsciiWhitespace(heard.substr(0, heard.find('\n'))));
  const std::string shown = absl::CHexEscape(line.substr(0, kMostShown));
  // HTML alone comes from servers that take the HTTP/2 preface for HTTP/0.9.
  if (absl::StartsWith(heard, "HTTP/") ||
      absl::StartsWithIgnoreCase(heard, "<!doctype html")) {
    return Mistake(absl::StrCat("an HTTP server answers there, not a ps (\"",
                                shown, "\")"));
  }
  return Mistake(absl::StrCat(
      "the server there speaks another protocol than a ps: \"", shown, "\""));
}

Diagnosis Mute(const Talk& talk) {
  return Unclear(talk.silent
                     ? "connections are accepted, but the peer sends nothing"
                     : "connections are closed without an answer");
}

// The diagnosis for a peer with which the TLS handshake is complete. It is
// kUnclear, without a cause, if nothing is wrong.
Diagnosis JudgeTls(const Talk& talk, uint32_t ps,
                   const Credentials& credentials) {
  if (talk.verified != X509_V_OK) {
    return Passing(
        absl::StrCat("its certificate is not accepted by the ca.crt "
                     "of --tls_dir here: ",
                     X509_verify_cert_error_string(talk.verified)));
  }
  const std::string& training = credentials.identity().training;
  const Identity expected = {training, {kPsJob, ps}};
  for (const std::string& name : talk.names) {
    if (name == expected.ToUri()) {
      if (talk.answered || talk.silent) return {};
      return Passing(
          absl::StrCat("it does not accept the certificate of --tls_dir here",
                       talk.alert.empty() ? "" : ": ", talk.alert));
    }
  }
  if (talk.names.empty()) {
    return Mistake("its certificate does not name a task");
  }
  const absl::StatusOr<Identity> peer = ParseIdentity(talk.names.front());
  if (peer.ok() && peer->training != training) {
    return Mistake(
        absl::StrCat("it belongs to another training: its "
                     "certificate names ",
                     talk.names.front(), ", expected ", expected.ToUri()));
  }
  return Mistake(
      absl::StrCat("another task answers there: its certificate names ",
                   talk.names.front(), ", expected ", expected.ToUri()),
      peer.ok() ? std::optional<TaskId>(peer->task) : std::nullopt);
}

// Asks over gRPC which task answers.
Diagnosis AskWho(const std::string& address, uint32_t ps,
                 const Credentials& credentials, const Patience& patience) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(TaskId{kPsJob, ps}.ToString());
  grpc::ByteBuffer bytes, answer;
  if (!ToBytes(request, &bytes).ok()) return {};
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(
      MakeChannel(address, ps, ChannelKind::kControl, credentials));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(patience.deadline));
  grpc::Status status;
  const auto call =
      stub.PrepareUnaryCall(&context, kHealthCheck, bytes, &queue);
  call->StartCall();
  call->Finish(&answer, &status, &context);
  void* tag;
  bool ok;
  while (queue.AsyncNext(&tag, &ok, GrpcDeadline(SteadyNow() + kSlice)) ==
         grpc::CompletionQueue::TIMEOUT) {
    if (patience.IsOver()) context.TryCancel();
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return JudgeHealthCheck(FromGrpcStatus(status), ps);
}

}  // namespace

absl::Status Diagnosis::ToStatus(absl::string_view name) const {
  std::string text = absl::StrCat(name, ": ", cause);
  if (kind == Kind::kMistake) {
    return absl::InvalidArgumentError(std::move(text));
  }
  return absl::UnavailableError(std::move(text));
}

absl::Status NoSuchService(absl::string_view service, const TaskId& self) {
  return absl::NotFoundError(absl::StrCat("no such service: ", service, "; ",
                                          kSelfIntroduction, self.ToString()));
}

Diagnosis JudgeHealthCheck(const absl::Status& answer, uint32_t ps) {
  if (answer.ok()) return {};
  if (absl::IsUnimplemented(answer)) {
    return Mistake(absl::StrCat(
        "a gRPC server answers there that is not a ps: ", answer.message()));
  }
  if (!absl::IsNotFound(answer)) {
    return Unclear(std::string(answer.message()));
  }
  const absl::string_view message = answer.message();
  const std::string prefix =
      absl::StrCat(kSelfIntroduction, "/job:", kPsJob, "/task:");
  uint32_t index;
  const size_t at = message.rfind(prefix);
  if (at == message.npos ||
      !absl::SimpleAtoi(message.substr(at + prefix.size()), &index)) {
    return {};
  }
  const TaskId found = {kPsJob, index};
  return Mistake(absl::StrCat("another task answers there, ", found.ToString(),
                              ": the ClusterSpecs list the ps in different "
                              "orders, or an address is wrong"),
                 found);
}

Diagnosis Diagnose(const std::string& address, uint32_t ps,
                   const Credentials& credentials, absl::Duration most,
                   const std::atomic<bool>* cancelled) {
  const Patience patience = {SteadyNow() + most, cancelled};
  const absl::StatusOr<HostPort> where = ParseHostPort(address);
  if (!where.ok()) return Mistake(std::string(where.status().message()));
  Diagnosis why;
  const std::vector<Endpoint> endpoints = Resolve(*where, patience, &why);
  if (endpoints.empty()) return why;
  const std::optional<Endpoint> to =
      FindReachable(endpoints, address, patience, &why);
  if (!to.has_value()) return why;

  const bool secure = credentials.secure();
  Talk talk = secure ? TlsTalk(*to, ps, credentials).Run(patience)
                     : TalkPlainly(*to, patience);
  if (talk.heard.empty()) {
    // A server of the other kind (with or without TLS) may just hang up, or
    // wait for more bytes.
    Talk other = secure ? TalkPlainly(*to, patience)
                        : TlsTalk(*to, ps, credentials).Run(patience);
    if (other.heard.empty()) return Mute(talk);
    talk = std::move(other);
  }
  if (IsTls(talk.heard)) {
    if (!secure) {
      return Passing("it uses TLS, but this task has no --tls_dir");
    }
    if (!talk.handshake) {
      return Passing(absl::StrCat("the TLS handshake fails",
                                  talk.alert.empty() ? "" : ": ", talk.alert));
    }
    Diagnosis diagnosis = JudgeTls(talk, ps, credentials);
    if (!diagnosis.cause.empty()) return diagnosis;
  } else if (!IsHttp2(talk.heard)) {
    return NotPs(talk.heard);
  } else if (secure) {
    return Passing("it does not use TLS, but this task has --tls_dir");
  }
  return AskWho(address, ps, credentials, patience);
}

Diagnoser::~Diagnoser() { StopLooking(); }

void Diagnoser::StopLooking() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
  cancelled_ = false;
}

Diagnosis Diagnoser::Look() {
  absl::MutexLock lock(&mutex_);
  if (!looking_ && SteadyNow() >= next_look_) {
    if (thread_.joinable()) thread_.join();  // it has ended
    looking_ = true;
    thread_ = std::thread([this] {
      Diagnosis found =
          Diagnose(address_, ps_, credentials_, kLookPatience, &cancelled_);
      absl::MutexLock lock(&mutex_);
      last_ = std::move(found);
      next_look_ = SteadyNow() + kLookEvery;
      looking_ = false;
    });
  }
  return last_;
}

void Diagnoser::Forget() {
  StopLooking();
  absl::MutexLock lock(&mutex_);
  next_look_ = absl::InfinitePast();
  last_ = Diagnosis();
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// Access to pages that are served over HTTPS, and peers that get no connection.

#include "common/rpc/https.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/process/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/security/certificates.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kRequest[] = "GET /a HTTP/1.1\r\nHost: ps-0.mnist\r\n\r\n";
const TaskId kOperator = {kOperatorJob, 0};

int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  return fd;
}

std::string LastError() {
  const unsigned long error = ERR_get_error();
  const char* const reason = ERR_reason_error_string(error);
  return absl::StrCat("error: ", reason == nullptr ? "closed" : reason);
}

// A client that presents the certificate of `pair`, or none if `pair` is empty,
// and accepts those of TheAuthority(). Not thread-safe, because OpenSSL keeps
// errors per thread.
class Client {
 public:
  explicit Client(const KeyPair& pair, int newest = TLS1_3_VERSION)
      : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    SSL_CTX_set_max_proto_version(context_.get(), newest);
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    X509* const authority =
        ReadCertificate(TheAuthority().key_pair().certificate);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), authority);
    X509_free(authority);
    if (pair.certificate.empty()) return;
    X509* const own = ReadCertificate(pair.certificate);
    SSL_CTX_use_certificate(context_.get(), own);
    X509_free(own);
    BIO* const bio = BIO_new_mem_buf(pair.key.data(), pair.key.size());
    EVP_PKEY* const key =
        PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    SSL_CTX_use_PrivateKey(context_.get(), key);
    EVP_PKEY_free(key);
    BIO_free(bio);
  }

  // The server's answer, or "error: ...". `shown`: receives the server's
  // certificate.
  std::string Ask(uint16_t port, std::string* shown = nullptr) const {
    ERR_clear_error();
    const int fd = Connect(port);
    const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context_.get()),
                                                   SSL_free);
    SSL_set_fd(ssl.get(), fd);
    std::string answer;
    const int size = sizeof(kRequest) - 1;
    if (SSL_connect(ssl.get()) != 1 ||
        SSL_write(ssl.get(), kRequest, size) != size) {
      answer = LastError();
    } else {
      if (shown != nullptr) {
        BIO* const bio = BIO_new(BIO_s_mem());
        PEM_write_bio_X509(bio, SSL_get0_peer_certificate(ssl.get()));
        char* text = nullptr;
        const long length = BIO_get_mem_data(bio, &text);
        shown->assign(text, length);
        BIO_free(bio);
      }
      char bytes[512];
      for (int read; (read = SSL_read(ssl.get(), bytes, sizeof(bytes))) > 0;) {
        answer.append(bytes, read);
      }
      if (answer.empty()) answer = LastError();
    }
    close(fd);
    return answer;
  }

 private:
  static X509* ReadCertificate(const std::string& pem) {
    BIO* const bio = BIO_new_mem_buf(pem.data(), pem.size());
    X509* const certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    return certificate;
  }

  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
};

std::string AskPlainly(uint16_t port, const std::string& request) {
  const int fd = Connect(port);
  (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  char bytes[512];
  for (ssize_t size; (size = read(fd, bytes, sizeof(bytes))) > 0;) {
    answer.append(bytes, size);
  }
  close(fd);
  return answer;
}

KeyPair Issue(const CertificateRequest& request) {
  return *TheAuthority().Issue(request);
}
KeyPair PairOf(const Identity& identity) {
  return Issue(SoundRequest(identity));
}
KeyPair PairOf(const TaskId& task) { return PairOf(Identity{kTraining, task}); }

std::unique_ptr<HttpServer> Serve(const Credentials& credentials) {
  HttpServer::Options options;
  options.everywhere = true;
  options.tls = HttpsForOperators(credentials);
  auto server =
      HttpServer::Start(options, {{"/a", [](const HttpServer::Request&) {
                                     return HttpServer::Answer{200, "secret\n"};
                                   }}});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpsTest, OperatorsOfTheTrainingReadThePages) {
  const auto server = Serve(CredentialsOf(TaskId{kPsJob, 0}));
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    EXPECT_THAT(Client(PairOf(kOperator), newest).Ask(server->port()),
                AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("secret")));
  }
  EXPECT_THAT(Client(PairOf(TaskId{kOperatorJob, 7})).Ask(server->port()),
              StartsWith("HTTP/1.1 200 "));
}

TEST(HttpsTest, OthersAreToldWhyNot) {
  const auto server = Serve(CredentialsOf(TaskId{kPsJob, 0}));
  CertificateRequest nobody = SoundRequest({kTraining, kOperator});
  nobody.uris.clear();
  CertificateRequest two = SoundRequest({kTraining, kOperator});
  two.uris.push_back("holdfast://mnist/ps/0");
  CertificateRequest king = SoundRequest({kTraining, kOperator});
  king.uris = {"holdfast://mnist/king/0"};
  struct Case {
    KeyPair pair;
    const char* message;
  };
  for (const Case& bad : std::vector<Case>{
           {PairOf(TaskId{kWorkerJob, 0}),
            "holdfast://mnist/worker/0 may not read this port: use the "
            "certificate of an operator"},
           {PairOf(TaskId{kPsJob, 0}), "holdfast://mnist/ps/0 may not"},
           {PairOf(TaskId{kEvaluatorJob, 0}), "evaluator/0 may not"},
           {PairOf(Identity{"other", kOperator}),
            "belongs to the training \"mnist\", not to that of "
            "holdfast://other/operator/0"},
           {Issue(nobody), "no identity"},
           {Issue(two), "more than one identity"},
           {Issue(king), "no job \"king\""}}) {
    EXPECT_THAT(Client(bad.pair).Ask(server->port()),
                AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr(bad.message),
                      Not(HasSubstr("secret"))));
  }
}

TEST(HttpsTest, WhoHasNoSoundCertificateGetsNoConnection) {
  const auto server = Serve(CredentialsOf(TaskId{kPsJob, 0}));
  CertificateRequest expired = SoundRequest({kTraining, kOperator});
  expired.not_after = DateNow() - absl::Minutes(1);
  CertificateRequest early = SoundRequest({kTraining, kOperator});
  early.not_before = DateNow() + absl::Minutes(30);
  const KeyPair forged =
      *MakeAuthority().Issue(SoundRequest({kTraining, kOperator}));
  for (const int newest : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    // Each client gets an alert that gives the reason, not just a closed
    // connection.
    EXPECT_THAT(Client({}, newest).Ask(server->port()),
                AllOf(StartsWith("error: "), HasSubstr("alert")));
    for (const KeyPair& pair : {Issue(expired), Issue(early), forged}) {
      EXPECT_THAT(Client(pair, newest).Ask(server->port()),
                  AllOf(StartsWith("error: "), HasSubstr("alert")));
    }
  }
  EXPECT_THAT(Client(PairOf(kOperator), TLS1_1_VERSION).Ask(server->port()),
              StartsWith("error: "));
  EXPECT_THAT(Client(PairOf(kOperator)).Ask(server->port()),
              StartsWith("HTTP/1.1 200 "));
}

TEST(HttpsTest, PlainHttpIsToldToUseHttps) {
  const auto server = Serve(CredentialsOf(TaskId{kPsJob, 0}));
  EXPECT_THAT(
      AskPlainly(server->port(), kRequest),
      AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("this port serves HTTPS")));
  // None of these completes a handshake.
  EXPECT_EQ(AskPlainly(server->port(), "\x16\x03\x01"), "");
  // The head of a ClientHello of 512 bytes, followed by nonsense.
  EXPECT_THAT(
      AskPlainly(server->port(),
                 std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9) +
                     std::string(508, 'x')),
      Not(HasSubstr("HTTP")));
}

TEST(HttpsTest, AnswersOthersWhileAPeerHoldsHandshakes) {
  const auto server = Serve(CredentialsOf(TaskId{kPsJob, 0}));
  // All but one of the connections that one address may have.
  std::vector<int> held;
  for (int i = 0; i < 31; ++i) {
    held.push_back(Connect(server->port()));
    EXPECT_EQ(send(held.back(), "\x16\x03\x01", 3, MSG_NOSIGNAL), 3);
  }
  const absl::Time asked = SteadyNow();
  EXPECT_THAT(Client(PairOf(kOperator)).Ask(server->port()),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(SteadyNow() - asked, absl::Milliseconds(2500));
  for (const int fd : held) close(fd);
}

TEST(HttpsTest, CertificatesAreExchangedWhileItRuns) {
  const KeyPair first = PairOf(TaskId{kPsJob, 0});
  const std::string folder = WriteFolder(first);
  const auto credentials = Credentials::FromFolder(folder);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  const auto server = Serve(*credentials);
  const Client client(PairOf(kOperator));
  std::string shown;
  EXPECT_THAT(client.Ask(server->port(), &shown), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(shown, first.certificate);

  const KeyPair second = PairOf(TaskId{kPsJob, 0});
  RewriteFolder(folder, second);
  const absl::Time give_up = SteadyNow() + absl::Seconds(30);
  while (shown != second.certificate && SteadyNow() < give_up) {
    EXPECT_THAT(client.Ask(server->port(), &shown),
                StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_EQ(shown, second.certificate);
}

}  // namespace
}  // namespace holdfast

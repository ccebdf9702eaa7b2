// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <fcntl.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

using grpc::experimental::CertificateVerifier;
using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsChannelCredentialsOptions;
using grpc::experimental::TlsCredentialsOptions;
using grpc::experimental::TlsCustomVerificationCheckRequest;
using grpc::experimental::TlsServerCredentialsOptions;

// How often the files are reread, here and by gRPC after that.
constexpr unsigned kRefreshSeconds = 1;
constexpr size_t kMaxFileBytes = 1 << 20;

template <typename T, void (*Free)(T*)>
struct Freer {
  void operator()(T* object) const { Free(object); }
};
void FreeBio(BIO* bio) { BIO_free(bio); }
void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }
void FreeChain(STACK_OF(X509) * chain) { sk_X509_pop_free(chain, X509_free); }

using Bio = std::unique_ptr<BIO, Freer<BIO, FreeBio>>;
using Certificate = std::unique_ptr<X509, Freer<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY, EVP_PKEY_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES, FreeNames>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE, X509_STORE_free>>;
using StoreContext =
    std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX, X509_STORE_CTX_free>>;
using Chain = std::unique_ptr<STACK_OF(X509), Freer<STACK_OF(X509), FreeChain>>;

absl::Status WrongFile(const std::string& path, absl::string_view why) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", why));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), text.size());
  if (file.gcount() == 0) {
    const int error = errno;
    return absl::NotFoundError(absl::StrCat(
        path, ": cannot be read, or is empty",
        error == 0 ? "" : absl::StrCat(" (", strerror(error), ")")));
  }
  text.resize(file.gcount());
  if (text.size() > kMaxFileBytes) return WrongFile(path, "is too long");
  return text;
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// All certificates of a file; at least one.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(
    const std::string& path, const std::string& text) {
  const Bio bio = BioOf(text);
  std::vector<Certificate> certificates;
  for (;;) {
    Certificate next(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  // The last error must be that there is no further certificate, not that one
  // is malformed.
  const bool whole =
      ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (certificates.empty() || !whole) {
    return WrongFile(path, "is not a PEM certificate");
  }
  ERR_clear_error();
  return certificates;
}

absl::StatusOr<Key> ParseKey(const std::string& path, const std::string& text) {
  // Otherwise OpenSSL would ask for a passphrase at the terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(BioOf(text).get(), nullptr, no_passphrase,
                                  nullptr));
  if (key == nullptr) {
    return WrongFile(path, "is not a PEM private key, or has a passphrase");
  }
  return key;
}

std::string TimeText(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, length);
}

absl::StatusOr<Identity> IdentityOf(const X509& certificate,
                                    const std::string& path) {
  const std::vector<std::string> uris = IdentityUrisOf(certificate);
  if (uris.size() != 1) {
    return WrongFile(
        path, absl::StrCat("has ", uris.size(),
                           " URIs that begin with holdfast:// among its "
                           "subject's alternative names, instead of one"));
  }
  absl::StatusOr<Identity> identity = ParseIdentity(uris[0]);
  if (!identity.ok()) return WrongFile(path, identity.status().message());
  return identity;
}

// Checks that the first certificate of `chain` is valid now, and that the chain
// leads to an authority.
absl::Status CheckSigned(const std::vector<Certificate>& chain,
                         const std::vector<Certificate>& authorities,
                         const std::string& path,
                         const std::string& authorities_path) {
  const X509* const own = chain[0].get();
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
    return WrongFile(path, absl::StrCat("has expired, on ",
                                        TimeText(X509_get0_notAfter(own))));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
    return WrongFile(path, absl::StrCat("is not valid before ",
                                        TimeText(X509_get0_notBefore(own))));
  }
  const Store store(X509_STORE_new());
  for (const Certificate& authority : authorities) {
    X509_STORE_add_cert(store.get(), authority.get());
  }
  const Chain between(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) {
    X509_up_ref(chain[i].get());
    sk_X509_push(between.get(), chain[i].get());
  }
  // Each side of a handshake verifies the other's certificate.
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    const StoreContext context(X509_STORE_CTX_new());
    X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(),
                        between.get());
    X509_STORE_CTX_set_purpose(context.get(), purpose);
    if (X509_verify_cert(context.get()) == 1) continue;
    return WrongFile(
        path, absl::StrCat("is not accepted by ", authorities_path, ": ",
                           X509_verify_cert_error_string(
                               X509_STORE_CTX_get_error(context.get()))));
  }
  return absl::OkStatus();
}

// Accepts only the expected peer.
class PeerVerifier final : public ExternalCertificateVerifier {
 public:
  // `files` are kept alive for as long as the channel may read them.
  PeerVerifier(const Identity& peer, std::shared_ptr<const void> files)
      : uri_(peer.ToUri()), files_(std::move(files)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    std::string names;
    for (const grpc::string_ref& uri : request->uri_names()) {
      if (absl::string_view(uri.data(), uri.size()) == uri_) return true;
      absl::StrAppend(&names, names.empty() ? "" : ", ",
                      absl::string_view(uri.data(), uri.size()));
    }
    *status = grpc::Status(
        grpc::StatusCode::UNAUTHENTICATED,
        absl::StrCat("expected ", uri_, ", but the certificate names ",
                     names.empty() ? "no URI" : names));
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string uri_;
  const std::shared_ptr<const void> files_;
};

}  // namespace

std::vector<std::string> IdentityUrisOf(const X509& certificate) {
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get());
       ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* const text = name->d.uniformResourceIdentifier;
    std::string uri(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                    ASN1_STRING_length(text));
    if (IsIdentityUri(uri)) uris.push_back(std::move(uri));
  }
  return uris;
}

namespace {

// The contents of a folder's files.
struct Files {
  static absl::StatusOr<Files> Read(const std::string& folder) {
    Files files{folder};
    for (const auto& [name, text] : {std::pair<const char*, std::string*>(
                                         kAuthorities, &files.authorities),
                                     {kOwn, &files.own},
                                     {kKey, &files.key}}) {
      HOLDFAST_ASSIGN_OR_RETURN(auto read, ReadFile(folder + name));
      *text = std::move(read);
    }
    return files;
  }

  // Checks that the files fit together, and returns the identity of their
  // owner.
  absl::StatusOr<Identity> Check() const {
    const std::string own_path = folder + kOwn;
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto trusted,
        ParseCertificates(folder + kAuthorities, authorities));
    HOLDFAST_ASSIGN_OR_RETURN(const auto chain,
                              ParseCertificates(own_path, own));
    HOLDFAST_ASSIGN_OR_RETURN(const auto private_key,
                              ParseKey(folder + kKey, key));
    X509* const first = chain.front().get();
    if (X509_check_private_key(first, private_key.get()) != 1) {
      return WrongFile(folder + kKey,
                       absl::StrCat("is not the key of ", own_path));
    }
    absl::StatusOr<Identity> identity = IdentityOf(*first, own_path);
    if (!identity.ok()) return identity;
    HOLDFAST_RETURN_IF_ERROR(
        CheckSigned(chain, trusted, own_path, folder + kAuthorities));
    return identity;
  }

  friend bool operator==(const Files& a, const Files& b) {
    return std::tie(a.authorities, a.own, a.key) ==
           std::tie(b.authorities, b.own, b.key);
  }

  static constexpr char kAuthorities[] = "/ca.crt";
  static constexpr char kOwn[] = "/tls.crt";
  static constexpr char kKey[] = "/tls.key";

  std::string folder;
  std::string authorities;
  std::string own;
  std::string key;
};

// A file in memory whose content can be replaced atomically.
class MemoryFile {
 public:
  // Errors: RESOURCE_EXHAUSTED when the file cannot be created or written.
  static absl::StatusOr<MemoryFile> Make(const std::string& text) {
    MemoryFile file(memfd_create("tls", MFD_CLOEXEC));
    if (file.fd_ < 0 || write(file.fd_, text.data(), text.size()) !=
                            static_cast<ssize_t>(text.size())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot hold certificates in memory: ", std::strerror(errno)));
    }
    return file;
  }
  MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }

  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }
  // Replaces the content by that of `other`. Needs no additional file
  // descriptor.
  void Become(const MemoryFile& other) const {
    PCHECK(dup3(other.fd_, fd_, O_CLOEXEC) == fd_);
  }

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}

  int fd_;
};

// The files that gRPC reads: certificate and key in one, so that they change
// together.
struct MemoryFiles {
  static absl::StatusOr<MemoryFiles> Make(const Files& files) {
    HOLDFAST_ASSIGN_OR_RETURN(auto authorities,
                              MemoryFile::Make(files.authorities));
    HOLDFAST_ASSIGN_OR_RETURN(auto own,
                              MemoryFile::Make(files.own + files.key));
    return MemoryFiles{std::move(authorities), std::move(own)};
  }

  MemoryFile authorities;
  MemoryFile own;
};

}  // namespace

// gRPC rereads files by itself, but ends the process when it finds one empty,
// as may happen while it is being written, and refuses all connections when key
// and certificate do not match. So it is given only files that have been
// validated here.
struct Credentials::Impl {
  Impl(Identity identity, Files first, MemoryFiles memory)
      : identity(std::move(identity)),
        in_use(std::move(memory)),
        provider(std::make_shared<FileWatcherCertificateProvider>(
            in_use.own.path(), in_use.own.path(), in_use.authorities.path(),
            kRefreshSeconds)),
        known(std::move(first)),
        thread([this] { Watch(); }) {}

  ~Impl() {
    {
      absl::MutexLock lock(&mutex);
      stopping = true;
    }
    thread.join();
  }

  void UseIn(TlsCredentialsOptions* options) const {
    options->set_certificate_provider(provider);
    options->watch_root_certs();
    options->watch_identity_key_cert_pairs();
  }

  void Watch() {
    for (;;) {
      {
        absl::MutexLock lock(&mutex);
        if (mutex.AwaitWithTimeout(absl::Condition(&stopping),
                                   absl::Seconds(kRefreshSeconds))) {
          return;
        }
      }
      absl::StatusOr<Files> files = Files::Read(known.folder);
      const absl::Status taken = files.ok() ? Take(*files) : files.status();
      // Logged once for each reason, because the reason may persist.
      if (!taken.ok() && taken != last_refusal) {
        LOG(WARNING) << "keeping the certificates in use: " << taken.message();
      }
      last_refusal = taken;
    }
  }

  absl::Status Take(const Files& files) {
    if (files == known) return absl::OkStatus();
    HOLDFAST_ASSIGN_OR_RETURN(const auto whose, files.Check());
    if (!(whose == identity)) {
      return absl::InvalidArgumentError(
          absl::StrCat(files.folder, Files::kOwn, ": names ", whose.ToUri(),
                       ", but the one in use names ", identity.ToUri()));
    }
    HOLDFAST_ASSIGN_OR_RETURN(const auto next, MemoryFiles::Make(files));
    in_use.own.Become(next.own);
    in_use.authorities.Become(next.authorities);
    known = files;
    LOG(INFO) << files.folder << ": new certificates are in use";
    return absl::OkStatus();
  }

  const Identity identity;
  const MemoryFiles in_use;
  const std::shared_ptr<FileWatcherCertificateProvider> provider;

  // Used only by the thread.
  Files known;
  absl::Status last_refusal;

  absl::Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::thread thread;
};

absl::StatusOr<Credentials> Credentials::FromFolder(const std::string& folder) {
  HOLDFAST_ASSIGN_OR_RETURN(auto files, Files::Read(folder));
  HOLDFAST_ASSIGN_OR_RETURN(auto identity, files.Check());
  HOLDFAST_ASSIGN_OR_RETURN(auto memory, MemoryFiles::Make(files));
  return Credentials(std::make_shared<Impl>(
      std::move(identity), std::move(files), std::move(memory)));
}

const Identity& Credentials::identity() const { return impl_->identity; }

std::shared_ptr<grpc::ServerCredentials> Credentials::ForServer() const {
  if (!secure()) return grpc::InsecureServerCredentials();
  TlsServerCredentialsOptions options(impl_->provider);
  impl_->UseIn(&options);
  options.set_cert_request_type(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

std::string Credentials::HostName(uint32_t ps) const {
  return absl::StrCat(kPsJob, "-", ps, ".", impl_->identity.training);
}

Credentials::Paths Credentials::paths() const {
  return {impl_->in_use.authorities.path(), impl_->in_use.own.path()};
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::ForChannel(
    uint32_t ps) const {
  if (!secure()) return grpc::InsecureChannelCredentials();
  TlsChannelCredentialsOptions options;
  impl_->UseIn(&options);
  options.set_certificate_verifier(
      ExternalCertificateVerifier::Create<PeerVerifier>(
          Identity{impl_->identity.training, {kPsJob, ps}}, impl_));
  // Do not check the host's name: certificates do not have one.
  options.set_check_call_host(false);
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace holdfast

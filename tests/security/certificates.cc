// SPDX-License-Identifier: Apache-2.0
#include "tests/security/certificates.h"

#include <stdlib.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

void Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  PCHECK(file) << path;
}

}  // namespace

CertificateRequest SoundRequest(const Identity& identity) {
  return RequestFor(identity, DateNow() - absl::Hours(1),
                    DateNow() + absl::Hours(1));
}

CertificateAuthority MakeAuthority() {
  auto authority = CertificateAuthority::Make(
      "test", DateNow() - absl::Hours(1), DateNow() + absl::Hours(1));
  CHECK(authority.ok()) << authority.status();
  return *std::move(authority);
}

const CertificateAuthority& TheAuthority() {
  static const auto* const authority =
      new CertificateAuthority(MakeAuthority());
  return *authority;
}

std::string WriteFolder(const KeyPair& pair,
                        const CertificateAuthority& trusted) {
  const char* const parent = getenv("TEST_TMPDIR");
  std::string folder =
      absl::StrCat(parent == nullptr ? "/tmp" : parent, "/tls.XXXXXX");
  PCHECK(mkdtemp(folder.data()) != nullptr) << folder;
  RewriteFolder(folder, pair, trusted);
  return folder;
}

void RewriteFolder(const std::string& folder, const KeyPair& pair,
                   const CertificateAuthority& trusted) {
  Write(folder + "/ca.crt", trusted.key_pair().certificate);
  Write(folder + "/tls.crt", pair.certificate);
  Write(folder + "/tls.key", pair.key);
}

std::string FolderOf(const TaskId& task) {
  const auto pair = TheAuthority().Issue(SoundRequest({kTraining, task}));
  CHECK(pair.ok()) << pair.status();
  return WriteFolder(*pair);
}

Credentials CredentialsOf(const Identity& identity) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const made = new std::map<std::string, Credentials>;
  const absl::MutexLock lock(&mutex);
  Credentials& credentials = (*made)[identity.ToUri()];
  if (!credentials.secure()) {
    const auto pair = TheAuthority().Issue(SoundRequest(identity));
    CHECK(pair.ok()) << pair.status();
    const auto read = Credentials::FromFolder(WriteFolder(*pair));
    CHECK(read.ok()) << read.status();
    credentials = *read;
  }
  return credentials;
}

Credentials CredentialsOf(const TaskId& task) {
  return CredentialsOf(Identity{kTraining, task});
}

}  // namespace holdfast

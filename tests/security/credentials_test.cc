// SPDX-License-Identifier: Apache-2.0

// Reading a folder for --tls_dir, and the errors for faulty ones.

#include "common/rpc/credentials.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/identity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/security/certificates.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Identity kWorker = {kTraining, {kWorkerJob, 1}};

std::string Error(const std::string& folder) {
  return Credentials::FromFolder(folder).status().ToString();
}

KeyPair Issue(const CertificateRequest& request) {
  return *TheAuthority().Issue(request);
}

void Overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

TEST(IdentityTest, ItsUriIsReadAsItWasWritten) {
  for (const char* job : {"ps", "worker", "chief", "evaluator", "operator"}) {
    const Identity identity = {"a-1", {job, 4294967295u}};
    EXPECT_EQ(identity.ToUri(),
              absl::StrCat("holdfast://a-1/", job, "/4294967295"));
    const auto read = ParseIdentity(identity.ToUri());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == identity);
  }
}

TEST(IdentityTest, WhatIsNoneIsRefused) {
  for (const std::string uri :
       {"", "holdfast://", "holdfast://a", "holdfast://a/ps",
        "holdfast://a/ps/", "holdfast://a/ps/-1", "holdfast://a/ps/01",
        "holdfast://a/ps/+1", "holdfast://a/ps/4294967296",
        "holdfast://a/ps/0/", "holdfast:///ps/0", "holdfast://A/ps/0",
        "holdfast://a.b/ps/0", "holdfast://-a/ps/0", "holdfast://a/client/0",
        "holdfast://a/PS/0", "spiffe://a/ps/0", "holdfast://a/ps/0?x",
        " holdfast://a/ps/0"}) {
    const auto read = ParseIdentity(uri);
    EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << uri;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(uri));
  }
  EXPECT_FALSE(
      ParseIdentity("holdfast://" + std::string(64, 'a') + "/ps/0").ok());
}

TEST(CredentialsTest, AreThoseOfTheFolder) {
  const auto credentials =
      Credentials::FromFolder(WriteFolder(Issue(SoundRequest(kWorker))));
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_TRUE(credentials->secure());
  EXPECT_TRUE(credentials->identity() == kWorker);
  EXPECT_FALSE(Credentials().secure());
}

TEST(CredentialsTest, AMissingOrBrokenFileIsNamed) {
  EXPECT_THAT(Error("/nowhere"),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("/nowhere/ca.crt")));
  for (const std::string name : {"ca.crt", "tls.crt", "tls.key"}) {
    const std::string folder = WriteFolder(Issue(SoundRequest(kWorker)));
    const std::string path = absl::StrCat(folder, "/", name);
    for (const std::string text :
         {"nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n",
          "-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n"}) {
      Overwrite(path, text);
      EXPECT_THAT(Error(folder), AllOf(HasSubstr("INVALID_ARGUMENT"),
                                       HasSubstr(path), HasSubstr("PEM")));
    }
    Overwrite(path, std::string((1 << 20) + 1, 'x'));
    EXPECT_THAT(Error(folder), AllOf(HasSubstr(path), HasSubstr("too long")));
    Overwrite(path, "");
    EXPECT_THAT(Error(folder), AllOf(HasSubstr("NOT_FOUND"), HasSubstr(path)));
    remove(path.c_str());
    EXPECT_THAT(Error(folder), AllOf(HasSubstr("NOT_FOUND"), HasSubstr(path),
                                     HasSubstr("No such file")));
  }
}

TEST(CredentialsTest, ABrokenSecondCertificateIsNotPassedOver) {
  const KeyPair pair = Issue(SoundRequest(kWorker));
  const std::string folder = WriteFolder(pair);
  Overwrite(folder + "/tls.crt",
            pair.certificate + "-----BEGIN CERTIFICATE-----\nAAAA\n");
  EXPECT_THAT(Error(folder), HasSubstr("tls.crt: is not a PEM certificate"));
}

TEST(CredentialsTest, TheKeyMustBeTheCertificates) {
  KeyPair pair = Issue(SoundRequest(kWorker));
  pair.key = Issue(SoundRequest(kWorker)).key;
  EXPECT_THAT(
      Error(WriteFolder(pair)),
      AllOf(HasSubstr("/tls.key: is not the key of"), HasSubstr("/tls.crt")));
}

TEST(CredentialsTest, TheTimeMustBeRight) {
  CertificateRequest request = SoundRequest(kWorker);
  request.not_after = DateNow() - absl::Minutes(1);
  EXPECT_THAT(Error(WriteFolder(Issue(request))),
              HasSubstr("/tls.crt: has expired, on "));
  request = SoundRequest(kWorker);
  request.not_before = DateNow() + absl::Minutes(30);
  EXPECT_THAT(Error(WriteFolder(Issue(request))),
              HasSubstr("/tls.crt: is not valid before "));
}

TEST(CredentialsTest, TheAuthorityMustHaveSigned) {
  EXPECT_THAT(
      Error(WriteFolder(Issue(SoundRequest(kWorker)), MakeAuthority())),
      AllOf(HasSubstr("/tls.crt: is not accepted by"), HasSubstr("/ca.crt")));
}

TEST(CredentialsTest, TheIdentityMustBeOne) {
  CertificateRequest request = SoundRequest(kWorker);
  request.uris.clear();
  EXPECT_THAT(Error(WriteFolder(Issue(request))), HasSubstr("has 0 URIs"));
  request.uris = {"https://example.com"};
  EXPECT_THAT(Error(WriteFolder(Issue(request))), HasSubstr("has 0 URIs"));
  request.uris = {"holdfast://a/ps/0", "holdfast://a/ps/1"};
  EXPECT_THAT(Error(WriteFolder(Issue(request))), HasSubstr("has 2 URIs"));
  request.uris = {"holdfast://a/king/0"};
  EXPECT_THAT(Error(WriteFolder(Issue(request))),
              HasSubstr("there is no job \"king\""));
  request.uris = {"https://example.com", "holdfast://a/ps/7"};
  EXPECT_THAT(Error(WriteFolder(Issue(request))), HasSubstr("OK"));
}

}  // namespace
}  // namespace holdfast

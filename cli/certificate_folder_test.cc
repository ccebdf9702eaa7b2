// SPDX-License-Identifier: Apache-2.0
#include "cli/certificate_folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

CertificateFolderOptions Options() {
  std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/certs.XXXXXX");
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  CertificateFolderOptions options;
  options.path = path + "/tls";
  options.training = "mnist";
  options.tasks = {{kPsJob, 0}, {kWorkerJob, 1}, {kOperatorJob, 0}};
  return options;
}

TEST(CertificateFolderTest, HasWhatEachTaskNeeds) {
  const CertificateFolderOptions options = Options();
  const auto made = MakeCertificateFolder(options);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, options.tasks);
  for (const TaskId& task : options.tasks) {
    const std::string folder = CertificateFolderOf(options.path, task);
    const auto credentials = Credentials::FromFolder(folder);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    EXPECT_EQ(credentials->identity().training, "mnist");
    EXPECT_EQ(credentials->identity().task, task);
    EXPECT_EQ(ModeOf(folder + "/tls.key"), 0600);
    EXPECT_EQ(ModeOf(folder + "/tls.crt"), 0644);
  }
  EXPECT_EQ(ModeOf(options.path + "/ca.key"), 0600);
}

TEST(CertificateFolderTest, WhatIsThereIsKept) {
  CertificateFolderOptions options = Options();
  ASSERT_TRUE(MakeCertificateFolder(options).ok());
  const std::string authority = Read(options.path + "/ca.crt");
  const std::string key = Read(options.path + "/ca.key");
  const std::string ps = Read(options.path + "/ps-0/tls.crt");

  // The cluster grows.
  options.tasks.push_back({kWorkerJob, 2});
  auto made = MakeCertificateFolder(options);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, std::vector<TaskId>({{kWorkerJob, 2}}));
  EXPECT_TRUE(Credentials::FromFolder(options.path + "/worker-2").ok());
  EXPECT_EQ(Read(options.path + "/ps-0/tls.crt"), ps);
  made = MakeCertificateFolder(options);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(*made, IsEmpty());

  options.renew = true;
  made = MakeCertificateFolder(options);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*made, options.tasks);
  EXPECT_NE(Read(options.path + "/ps-0/tls.crt"), ps);
  EXPECT_TRUE(Credentials::FromFolder(options.path + "/ps-0").ok());
  EXPECT_EQ(Read(options.path + "/ca.crt"), authority);
  EXPECT_EQ(Read(options.path + "/ca.key"), key);
}

TEST(CertificateFolderTest, AnAuthorityIsNeverWrittenOver) {
  const CertificateFolderOptions options = Options();
  ASSERT_TRUE(MakeCertificateFolder(options).ok());
  const std::string authority = Read(options.path + "/ca.crt");
  const std::string key = Read(options.path + "/ca.key");
  unlink((options.path + "/ca.key").c_str());
  auto made = MakeCertificateFolder(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(made.status())) << made.status();
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("ca.key"));
  EXPECT_EQ(Read(options.path + "/ca.crt"), authority);

  std::ofstream(options.path + "/ca.key") << "nonsense";
  made = MakeCertificateFolder(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(made.status())) << made.status();
  EXPECT_EQ(Read(options.path + "/ca.key"), "nonsense");

  unlink((options.path + "/ca.crt").c_str());
  std::ofstream(options.path + "/ca.key", std::ios::trunc) << key;
  EXPECT_TRUE(
      absl::IsFailedPrecondition(MakeCertificateFolder(options).status()));
  EXPECT_EQ(Read(options.path + "/ca.key"), key);
}

TEST(CertificateFolderTest, AWrongNameIsRefused) {
  CertificateFolderOptions options = Options();
  options.training = "My Job";
  const auto made = MakeCertificateFolder(options);
  EXPECT_TRUE(absl::IsInvalidArgument(made.status()));
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("My Job"));
  EXPECT_NE(access(options.path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// Which clients --status_port admits, depending on the other flags.

#include <optional>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "common/process/daemon.h"
#include "gtest/gtest.h"
#include "tests/security/certificates.h"

ABSL_DECLARE_FLAG(std::optional<int>, status_port);

namespace holdfast {
namespace {

ConnectionFlags Connections(bool tls, bool insecure) {
  ConnectionFlags connections;
  if (tls) connections.credentials = CredentialsOf(TaskId{kPsJob, 0});
  connections.insecure = insecure;
  return connections;
}

TEST(StatusFlagsTest, ThereIsNoPortUnlessAskedFor) {
  absl::SetFlag(&FLAGS_status_port, std::nullopt);
  const auto options = StatusFromFlags(Connections(true, true));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->has_value());
}

TEST(StatusFlagsTest, InTheClearItStaysOnLoopbackUnlessInsecure) {
  absl::SetFlag(&FLAGS_status_port, 8081);
  for (const bool insecure : {false, true}) {
    const auto options = StatusFromFlags(Connections(false, insecure));
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ((*options)->port, 8081);
    EXPECT_EQ((*options)->everywhere, insecure);
    EXPECT_FALSE((*options)->tls.has_value());
  }
}

TEST(StatusFlagsTest, WithCertificatesItIsHttpsWhateverElseIsSaid) {
  absl::SetFlag(&FLAGS_status_port, 0);
  for (const bool insecure : {false, true}) {
    const auto options = StatusFromFlags(Connections(true, insecure));
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE((*options)->everywhere);
    EXPECT_TRUE((*options)->tls.has_value());
  }
}

TEST(StatusFlagsTest, RefusesWhatIsNoPort) {
  for (const int port : {-1, 65536}) {
    absl::SetFlag(&FLAGS_status_port, port);
    EXPECT_TRUE(absl::IsInvalidArgument(
        StatusFromFlags(Connections(false, false)).status()))
        << port;
  }
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/process/version.h"

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/rpc_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(VersionTest, HasTheProtocolsNumber) {
  EXPECT_TRUE(
      absl::StartsWith(kVersion, absl::StrCat("0.", kProtocolVersion, ".")));
  EXPECT_EQ(VersionLine("ps_server"),
            absl::StrCat("ps_server ", kVersion, " (protocol ",
                         kProtocolVersion, ")"));
}

TEST(VersionTest, IsThatOfTheDocs) {
  std::stringstream docs;
  docs << std::ifstream("docs/operating/compatibility.md").rdbuf();
  EXPECT_THAT(docs.str(), HasSubstr(absl::StrCat("| ", kVersion, " |")));
  EXPECT_THAT(docs.str(),
              HasSubstr(absl::StrCat("| ", kProtocolVersion, " |")));
}

}  // namespace
}  // namespace holdfast

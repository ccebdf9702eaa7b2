// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_address.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/certificate_folder.h"
#include "common/job/cluster_spec.h"
#include "common/job/task_id.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kCluster[] =
    R"({"ps": ["a:2222", "b:2222"], "worker": ["c:2222"]})";
constexpr char kTfConfig[] = R"({"cluster": {"ps": ["d:1", "e:1"],
    "worker": ["f:1"]}, "task": {"type": "worker", "index": 0}})";

class ClusterAddressTest : public ::testing::Test {
 protected:
  ClusterAddressTest()
      : folder_(absl::StrCat(
            ::testing::TempDir(), "/",
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }

  static std::string Ps0(const ClusterAddress& address,
                         absl::string_view tf_config = "") {
    const auto options = ResolveClusterAddress(address, tf_config);
    if (!options.ok()) return options.status().ToString();
    EXPECT_EQ(options->cluster.num_ps(), 1u);
    EXPECT_EQ(options->task.job, "client");
    return *options->cluster.Address({kPsJob, 0});
  }

  static absl::Status Error(const ClusterAddress& address,
                            absl::string_view tf_config = "") {
    return ResolveClusterAddress(address, tf_config).status();
  }

  const std::string folder_;
};

TEST_F(ClusterAddressTest, IsThatOfPs0) {
  Write("cluster.json", kCluster);
  Write("ps-0.pid", "17\n");
  EXPECT_EQ(Ps0({.ps = "x:1"}), "x:1");
  EXPECT_EQ(Ps0({.ps = "x:1,y:2"}), "x:1");
  EXPECT_EQ(Ps0({.ps = "[::1]:4000"}), "[::1]:4000");
  EXPECT_EQ(Ps0({.cluster_spec = kCluster}), "a:2222");
  EXPECT_EQ(Ps0({.cluster_spec = folder_ + "/cluster.json"}), "a:2222");
  EXPECT_EQ(Ps0({.run_dir = folder_}), "a:2222");
  EXPECT_EQ(Ps0({}, kTfConfig), "d:1");
  // Flags take precedence over the environment.
  EXPECT_EQ(Ps0({.ps = "x:1"}, kTfConfig), "x:1");
}

TEST_F(ClusterAddressTest, HasToBeOne) {
  absl::Status error = Error({});
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("--ps="), HasSubstr("--cluster_spec="),
                    HasSubstr("--run_dir="), HasSubstr("TF_CONFIG")));
  error = Error({.ps = "x:1", .run_dir = "y"});
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("--ps and --run_dir both name"));
}

TEST_F(ClusterAddressTest, ErrorsNameTheFlag) {
  EXPECT_THAT(std::string(Error({.ps = "nowhere"}).message()),
              AllOf(HasSubstr("--ps=nowhere: "), HasSubstr("has no port")));
  EXPECT_THAT(Error({.cluster_spec = folder_ + "/none.json"}).message(),
              HasSubstr("none.json"));
  EXPECT_EQ(Error({.cluster_spec = folder_ + "/none.json"}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Error({}, "{").message(), HasSubstr("TF_CONFIG"));
  EXPECT_THAT(Error({.ps = "x:1", .tls_dir = "none"}).message(),
              HasSubstr("--tls_dir: none/ca.crt"));
  EXPECT_THAT(Error({.ps = "x:1", .timeout = absl::ZeroDuration()}).message(),
              HasSubstr("--timeout=0"));
}

TEST_F(ClusterAddressTest, OfARunDirectoryWithoutARun) {
  absl::Status error = Error({.run_dir = folder_});
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("is not the run directory"));
  Write("cluster.json", kCluster);
  error = Error({.run_dir = folder_});
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("no run is going on there"));
}

TEST_F(ClusterAddressTest, TakesTheCertificatesOfARun) {
  Write("cluster.json", kCluster);
  Write("ps-0.pid", "17\n");
  EXPECT_FALSE(
      ResolveClusterAddress({.run_dir = folder_}, "")->credentials.secure());
  CertificateFolderOptions options;
  options.path = folder_ + "/tls";
  options.training = "test";
  options.tasks = TasksWithOperator(*ClusterSpec::FromJson(kCluster));
  ASSERT_TRUE(MakeCertificateFolder(options).ok());
  // Certificates of an earlier run.
  EXPECT_FALSE(
      ResolveClusterAddress({.run_dir = folder_}, "")->credentials.secure());
  Write("encrypted", "");
  const auto resolved = ResolveClusterAddress({.run_dir = folder_}, "");
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_TRUE(resolved->credentials.secure());
  EXPECT_EQ(resolved->credentials.identity().task.job, "operator");
}

TEST_F(ClusterAddressTest, OneThatCannotBeReachedIsNamed) {
  std::string address;
  {
    FakePs ps;
    address = ps.address();
    EXPECT_TRUE(ConnectAsOperator({.ps = address}).ok());
  }
  const auto cluster = ConnectAsOperator({.ps = address});
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(cluster.status().message(),
              AllOf(HasSubstr(address), HasSubstr("connection refused")));
}

}  // namespace
}  // namespace holdfast

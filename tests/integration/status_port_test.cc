// SPDX-License-Identifier: Apache-2.0

// The pages and data that a ps serves on its status port.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "ps_server/server.h"
#include "tests/integration/http_get.h"
#include "tests/integration/loopback.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/test_cluster.h"

namespace holdfast {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

void WithStatusPort(Server::Options* options) {
  options->status_port.emplace();
}

TEST(StatusPortTest, ThatOfPs0HasTheJobsStatus) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kLongLease, {},
                      WithStatusPort);
  const HttpAnswer answer =
      HttpGet(cluster.ps(0).status_port(), "/status.json");
  EXPECT_EQ(answer.code, 200) << answer.body;
  EXPECT_THAT(answer.headers, HasSubstr("Content-Type: application/json\r\n"));
  // Fields have the names of the proto.
  EXPECT_THAT(answer.body, HasSubstr("\"global_step\""));
  proto::GetStatusResponse shown;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(answer.body, &shown).ok())
      << answer.body;
  const auto text = RawClient(cluster.address(0))
                        .Call("Coordinator.GetStatus", "", kPatience);
  ASSERT_TRUE(text.ok()) << text.status();
  proto::GetStatusResponse told;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(*text, &told));
  EXPECT_EQ(shown.version(), told.version());
  EXPECT_EQ(shown.generation(), told.generation());
  EXPECT_EQ(shown.state().phase(), proto::STARTING);
}

TEST(StatusPortTest, ThatOfPs0HasThePageAndWhatItAsksFor) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kLongLease, {},
                      WithStatusPort);
  const uint16_t port = cluster.ps(0).status_port();
  const HttpAnswer page = HttpGet(port, "/");
  EXPECT_EQ(page.code, 200);
  EXPECT_THAT(page.headers,
              HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page.body,
              AllOf(StartsWith("<!doctype html>"), EndsWith("</html>\n")));
  for (const char* path : {"/events.json", "/events.json?after=3",
                           "/history.json?after_step=0&max_points=600"}) {
    const HttpAnswer answer = HttpGet(port, path);
    EXPECT_EQ(answer.code, 200) << path << ": " << answer.body;
    EXPECT_THAT(answer.body, StartsWith("{")) << path;
  }
  // The limit comes from a rule in the proto.
  const HttpAnswer wrong = HttpGet(port, "/history.json?max_points=10001");
  EXPECT_EQ(wrong.code, 400);
  EXPECT_THAT(wrong.body, HasSubstr("max_points"));
}

TEST(StatusPortTest, ThatOfAnotherPsHasNoStatus) {
  TestCluster cluster(MakeLoopbackCluster(2, 1), kLongLease, {},
                      WithStatusPort);
  EXPECT_NE(cluster.ps(0).status_port(), cluster.ps(1).status_port());
  EXPECT_EQ(HttpGet(cluster.ps(0).status_port(), "/status.json").code, 200);
  EXPECT_EQ(HttpGet(cluster.ps(1).status_port(), "/status.json").code, 404);
  EXPECT_EQ(HttpGet(cluster.ps(1).status_port(), "/").body,
            absl::StrCat("This is /job:ps/task:1. The status page is on "
                         "/job:ps/task:0 (",
                         cluster.address(0),
                         "), on the port that its --status_port gives.\n"));
}

TEST(StatusPortTest, ThereIsNoneUnlessAskedFor) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kLongLease);
  EXPECT_EQ(cluster.ps(0).status_port(), 0);
}

TEST(StatusPortTest, APortInUseIsNamedWithTheFlag) {
  TestCluster cluster(MakeLoopbackCluster(1, 1), kLongLease, {},
                      WithStatusPort);
  Server::Options options{MakeLoopbackCluster(1, 1), {kPsJob, 0}};
  options.status_port.emplace();
  options.status_port->port = cluster.ps(0).status_port();
  const auto second = Server::Start(options);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(
      std::string(second.status().message()),
      AllOf(HasSubstr("/job:ps/task:0: --status_port: "), HasSubstr("in use")));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/page/status_pages.h"

#include <map>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/page/status_page.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Answers with what it was asked, so that a test sees both.
StatusQueries Echo() {
  return {
      [](const proto::GetStatusRequest&) {
        proto::GetStatusResponse status;
        status.set_global_step(7);
        return status;
      },
      [](const proto::GetEventsRequest& request) {
        proto::GetEventsResponse events;
        events.add_events()->set_number(request.after() + 1);
        return events;
      },
      [](const proto::GetHistoryRequest& request) {
        proto::GetHistoryResponse history;
        proto::HistoryPoint& point = *history.add_points();
        point.set_step(request.after_step());
        point.set_examples(request.max_points());
        return history;
      },
  };
}

HttpServer::Answer Get(const std::string& path,
                       const std::map<std::string, std::string>& query = {}) {
  return StatusPages(Echo()).at(path)({path, query});
}

TEST(StatusPagesTest, RootIsThePage) {
  const HttpServer::Answer answer = Get("/");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(answer.body, StatusPage());
  // The page is complete: neither end was lost when it was compiled in.
  EXPECT_THAT(answer.body,
              AllOf(StartsWith("<!doctype html>"), EndsWith("</html>\n")));
}

TEST(StatusPagesTest, RootIgnoresParameters) {
  EXPECT_EQ(Get("/", {{"from", "mail"}}).code, 200);
}

TEST(StatusPagesTest, StatusIsJsonWithNamesOfTheProto) {
  const HttpServer::Answer answer = Get("/status.json");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.content_type, "application/json");
  EXPECT_THAT(answer.body, HasSubstr("\"global_step\":\"7\""));
}

TEST(StatusPagesTest, StatusHasTheEmbeddingTablesOfEachPs) {
  StatusQueries queries = Echo();
  queries.status = [](const proto::GetStatusRequest&) {
    proto::GetStatusResponse status;
    proto::PsReport& ps = *status.add_tasks()->mutable_ps();
    ps.set_table_rows(12);
    proto::TableReport& table = *ps.add_tables();
    table.set_name("items");
    table.set_rows(12);
    table.set_evictions(3);
    return status;
  };
  EXPECT_THAT(
      StatusPages(queries).at("/status.json")({"/status.json", {}}).body,
      HasSubstr(R"("table_rows":"12","tables":[{"name":"items","rows":"12",)"
                R"("candidates":"0","reads":"0","hits":"0","admissions":"0",)"
                R"("expirations":"0","evictions":"3"}])"));
}

TEST(StatusPagesTest, EventsFollowANumber) {
  EXPECT_THAT(Get("/events.json").body, HasSubstr("\"number\":\"1\""));
  EXPECT_THAT(Get("/events.json", {{"after", "41"}}).body,
              HasSubstr("\"number\":\"42\""));
}

TEST(StatusPagesTest, HistoryTakesStepAndPoints) {
  const std::string body =
      Get("/history.json", {{"after_step", "500"}, {"max_points", "60"}}).body;
  EXPECT_THAT(body, HasSubstr("\"step\":\"500\""));
  EXPECT_THAT(body, HasSubstr("\"examples\":\"60\""));
}

TEST(StatusPagesTest, NamesABadParameter) {
  for (const char* value :
       {"", "abc", "-1", "+1", " 1", "1.5", "18446744073709551616"}) {
    const HttpServer::Answer answer = Get("/events.json", {{"after", value}});
    EXPECT_EQ(answer.code, 400) << value;
    EXPECT_EQ(answer.body,
              std::string("parameter after of /events.json must be "
                          "a whole number, not \"") +
                  value + "\"\n");
  }
  EXPECT_EQ(Get("/history.json", {{"max_points", "4294967296"}}).body,
            "parameter max_points of /history.json is too large: "
            "4294967296\n");
}

TEST(StatusPagesTest, NamesAnUnknownParameter) {
  const HttpServer::Answer answer = Get("/history.json", {{"after", "1"}});
  EXPECT_EQ(answer.code, 400);
  EXPECT_EQ(answer.body,
            "/history.json has no parameter \"after\"; it has after_step and "
            "max_points\n");
  EXPECT_EQ(Get("/status.json", {{"x", "1"}}).body,
            "/status.json has no parameter \"x\"; it has none\n");
}

TEST(StatusPagesTest, TellsWhyTheCoordinatorDoesNotAnswer) {
  StatusQueries queries = Echo();
  queries.status = [](const proto::GetStatusRequest&) {
    return absl::UnavailableError("its thread is busy");
  };
  const HttpServer::Answer answer =
      StatusPages(queries).at("/status.json")({"/status.json", {}});
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(answer.body, "its thread is busy\n");
}

TEST(ElsewherePagesTest, SaysWherePs0Is) {
  const HttpServer::Answer answer =
      ElsewherePages("/job:ps/task:2", "/job:ps/task:0 (ps-0.net:2222)")
          .at("/")({"/", {}});
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.body,
            "This is /job:ps/task:2. The status page is on /job:ps/task:0 "
            "(ps-0.net:2222), on the port that its --status_port gives.\n");
}

}  // namespace
}  // namespace holdfast

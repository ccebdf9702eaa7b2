// SPDX-License-Identifier: Apache-2.0
#include "ps_server/machine_queries.h"

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

using testing::HasSubstr;

struct Machine {
  void GetHistory(const proto::GetHistoryRequest& request,
                  Reply<proto::GetHistoryResponse> reply) {
    ++asked;
    if (request.after_step() == 99) {
      return reply(absl::FailedPreconditionError("not yet"));
    }
    proto::GetHistoryResponse response;
    response.add_points()->set_step(request.after_step() + 1);
    reply(std::move(response));
  }

  std::atomic<int> asked{0};
};

absl::StatusOr<proto::GetHistoryResponse> AskFor(
    MachineQueries<Machine>& queries, uint64_t after_step,
    uint32_t max_points = 0) {
  proto::GetHistoryRequest request;
  request.set_after_step(after_step);
  request.set_max_points(max_points);
  return queries.Ask(&Machine::GetHistory, request);
}

TEST(MachineQueriesTest, GivesTheAnswerOfTheMachine) {
  Machine machine;
  Strand strand("machine");
  MachineQueries<Machine> queries("the machine", &machine, &strand,
                                  absl::Minutes(1));
  const auto response = AskFor(queries, 7);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->points(0).step(), 8);
  EXPECT_EQ(AskFor(queries, 99).status(),
            absl::FailedPreconditionError("not yet"));
}

TEST(MachineQueriesTest, KeepsWrongRequestsFromTheMachine) {
  Machine machine;
  Strand strand("machine");
  MachineQueries<Machine> queries("the machine", &machine, &strand,
                                  absl::Minutes(1));
  const absl::Status status = AskFor(queries, 7, 10'001).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_points"));
  EXPECT_EQ(machine.asked, 0);
}

TEST(MachineQueriesTest, DoesNotHangWhereTheThreadDoes) {
  Machine machine;
  Strand strand("machine");
  constexpr absl::Duration kTimeout = absl::Milliseconds(200);
  MachineQueries<Machine> queries("the machine", &machine, &strand, kTimeout);
  absl::Notification stuck, go_on;
  strand.Post([&] {
    stuck.Notify();
    go_on.WaitForNotification();
  });
  stuck.WaitForNotification();
  const absl::Status status = AskFor(queries, 7).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the machine has not answered for 200ms"));
  // The machine has been busy for longer than the timeout, so nothing more is
  // posted.
  EXPECT_TRUE(absl::IsUnavailable(AskFor(queries, 7).status()));
  go_on.Notify();
  strand.Stop();
  EXPECT_EQ(machine.asked, 1);
}

TEST(ErrorAnswerTest, HasTheCodeOfTheError) {
  const HttpServer::Answer answer =
      ErrorAnswer(absl::UnavailableError("the disk hangs"));
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(answer.body, "the disk hangs\n");
  EXPECT_EQ(ErrorAnswer(absl::InvalidArgumentError("")).code, 400);
  EXPECT_EQ(ErrorAnswer(absl::InternalError("")).code, 500);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/stop.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/process/exit_code.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kReason[] =
    "the job was stopped at step 7 of 100; started again with the same "
    "checkpoint directory, it goes on from there";

class StopTest : public ::testing::Test {
 protected:
  StopTest() {
    ps_.get_status.Do([](int, const auto&, auto* response) {
      response->set_generation(3);
      response->mutable_state()->set_phase(proto::TRAINING);
      return absl::OkStatus();
    });
    ps_.get_events.Do([this](int, const auto& request, auto* response) {
      for (const proto::Event& event : events_) {
        if (event.number() > request.after()) *response->add_events() = event;
      }
      return absl::OkStatus();
    });
    // An event of an earlier start.
    AddEvent(proto::Event::STOPPED, "the job was stopped at step 2 of 100");
  }

  void AddEvent(proto::Event::Kind kind, const std::string& text) {
    proto::Event& event = events_.emplace_back();
    event.set_number(events_.size());
    event.set_kind(kind);
    event.set_text(text);
  }
  static void Fill(proto::JobPhase phase, uint64_t generation,
                   proto::StopResponse* response) {
    response->set_generation(generation);
    response->mutable_state()->set_phase(phase);
    response->set_step(7);
    if (phase == proto::STOPPED) {
      response->mutable_state()->set_reason(kReason);
    }
  }
  // Sets the successive answers of ps 0.
  void Answer(std::vector<std::pair<proto::JobPhase, uint64_t>> answers) {
    ps_.stop.Do([answers](int call, const auto&, auto* response) {
      const size_t i = std::min<size_t>(call, answers.size() - 1);
      Fill(answers[i].first, answers[i].second, response);
      if (answers[i].first == proto::STOPPING) {
        response->set_waiting_for("the checkpoint that it stops with");
      }
      return absl::OkStatus();
    });
  }

  // Returns the exit code. The output is in out_ and err_.
  int Run(std::vector<std::string> args = {}) {
    args.push_back("--ps=" + ps_.address());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = StopCommand(args);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  FakePs ps_;
  std::vector<proto::Event> events_;
  std::string out_;
  std::string err_;
};

TEST_F(StopTest, AsksUntilTheJobHasStopped) {
  Answer({{proto::STOPPING, 3}, {proto::STOPPING, 3}, {proto::STOPPED, 3}});
  EXPECT_EQ(Run(), kExitDone) << err_;
  EXPECT_EQ(out_,
            "The job was stopped at step 7 of 100; started again with the same "
            "checkpoint directory, it goes on from there.\n");
  EXPECT_EQ(err_,
            "holdfast stop: stopping at step 7: waiting for the checkpoint "
            "that it stops with\n")
      << "once";
  const auto requests = ps_.stop.requests();
  ASSERT_THAT(requests, SizeIs(3));
  for (const auto& request : requests) {
    EXPECT_EQ(request.generation(), 3u);
    EXPECT_FALSE(request.without_checkpoint());
  }
}

TEST_F(StopTest, SaysWhatTheUserDoesWithout) {
  Answer({{proto::STOPPED, 3}});
  EXPECT_EQ(Run({"--without_checkpoint"}), kExitDone) << err_;
  EXPECT_TRUE(ps_.stop.requests().at(0).without_checkpoint());
}

TEST_F(StopTest, AJobThatHasEnded) {
  Answer({{proto::DONE, 3}});
  EXPECT_EQ(Run(), kExitDone);
  EXPECT_THAT(out_, HasSubstr("The job is done, at step 7"));

  ps_.stop.Do([](int, const auto&, auto* response) {
    Fill(proto::FAILED, 3, response);
    response->mutable_state()->set_reason("the roof is on fire");
    return absl::OkStatus();
  });
  EXPECT_EQ(Run(), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("the job has failed: the roof is on fire"));
  EXPECT_THAT(out_, IsEmpty());
}

TEST_F(StopTest, OneThatIsRefusedIsNotAskedAgain) {
  ps_.stop.Do([](int, const auto&, auto*) {
    return absl::FailedPreconditionError("no checkpoint directory");
  });
  EXPECT_EQ(Run(), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("no checkpoint directory"));
  EXPECT_EQ(ps_.stop.num_calls(), 1);
}

// The previous ps 0 has died, and the request to stop with it.
TEST_F(StopTest, ANextLifeOfPs0IsAskedAnew) {
  Answer({{proto::STOPPING, 3}, {proto::TRAINING, 4}, {proto::STOPPED, 4}});
  EXPECT_EQ(Run(), kExitDone) << err_;
  EXPECT_THAT(out_, HasSubstr("The job was stopped at step 7"));
  EXPECT_THAT(err_, HasSubstr("the job went back to an earlier step "
                              "(generation 4); asking again"));
  EXPECT_EQ(ps_.stop.requests().at(1).generation(), 3u);
  EXPECT_EQ(ps_.stop.requests().at(2).generation(), 4u);
}

// The answer was lost, and the job was started again quickly.
TEST_F(StopTest, AJobThatWasStoppedAndStartedAgainIsLeftAlone) {
  ps_.stop.Do([this](int call, const auto&, auto* response) {
    EXPECT_EQ(call, 0);
    AddEvent(proto::Event::STOPPING, "an operator has asked the job to stop");
    AddEvent(proto::Event::STOPPED, kReason);
    Fill(proto::TRAINING, 4, response);
    return absl::OkStatus();
  });
  EXPECT_EQ(Run(), kExitDone) << err_;
  EXPECT_THAT(out_, AllOf(HasSubstr("The job was stopped at step 7 of 100"),
                          HasSubstr("started again since, and is at step 7")));
}

TEST_F(StopTest, OneThatDoesNotStopIsNamed) {
  Answer({{proto::STOPPING, 3}});
  EXPECT_EQ(Run({"--wait=1ms"}), kExitFailed);
  EXPECT_THAT(err_, AllOf(HasSubstr("has not stopped within 1ms"),
                          HasSubstr("the same command continues to wait")));
}

TEST_F(StopTest, WrongFlags) {
  EXPECT_EQ(Run({"--wait=soon"}), kExitUsage);
  EXPECT_EQ(Run({"--now"}), kExitUsage);
  EXPECT_EQ(ps_.stop.num_calls(), 0);
}

}  // namespace
}  // namespace holdfast

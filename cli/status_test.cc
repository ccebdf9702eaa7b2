// SPDX-License-Identifier: Apache-2.0
#include "cli/status.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/exit_code.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Command = int (*)(const std::vector<std::string>& args);

class StatusTest : public ::testing::Test {
 protected:
  StatusTest() {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(generation: 1 state { phase: TRAINING } global_step: 10
           total_steps: 100 train_loss: 0.5
           tasks { task { job: 'ps' } incarnation: 1 alive: true
                   ps { tables { name: 'items' rows: 12 reads: 8 hits: 6 } }
           })",
        &status_));
    ps_.get_status.Do([this](int, const auto&, auto* response) {
      *response = status_;
      return absl::OkStatus();
    });
    ps_.get_events.Do([this](int, const auto& request, auto* response) {
      for (const proto::Event& event : events_) {
        if (event.number() > request.after()) *response->add_events() = event;
      }
      return absl::OkStatus();
    });
  }

  void AddEvent(proto::Event::Kind kind, const std::string& text) {
    proto::Event& event = events_.emplace_back();
    event.set_number(events_.size());
    event.set_kind(kind);
    event.set_text(text);
  }

  // Returns the exit code. The output is in out_ and err_.
  int Run(Command command, std::vector<std::string> args) {
    args.push_back("--ps=" + ps_.address());
    return RunAsGiven(command, args);
  }
  int RunAsGiven(Command command, const std::vector<std::string>& args) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = command(args);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  std::vector<std::string> Lines() const {
    return absl::StrSplit(out_, '\n', absl::SkipEmpty());
  }

  FakePs ps_;
  proto::GetStatusResponse status_;
  std::vector<proto::Event> events_;
  std::string out_;
  std::string err_;
};

TEST_F(StatusTest, IsAScreenWithTheLastEvents) {
  for (int i = 1; i <= 7; ++i) {
    AddEvent(proto::Event::CHECKPOINT, absl::StrCat("event number ", i));
  }
  EXPECT_EQ(Run(StatusCommand, {}), kExitDone) << err_;
  EXPECT_THAT(
      out_,
      AllOf(HasSubstr("10%  step 10 of 100"), HasSubstr("items    12"),
            HasSubstr("75%"), HasSubstr("event number 7"),
            HasSubstr("event number 3"), Not(HasSubstr("event number 2"))));
}

TEST_F(StatusTest, OfAPsWithoutEvents) {
  ps_.get_events.Do([](int, const auto&, auto*) {
    return absl::UnimplementedError("of an older version");
  });
  EXPECT_EQ(Run(StatusCommand, {}), kExitDone) << err_;
  EXPECT_THAT(out_, HasSubstr("step 10 of 100"));
}

TEST_F(StatusTest, AsJsonIsWhatThePsSays) {
  EXPECT_EQ(Run(StatusCommand, {"--json"}), kExitDone) << err_;
  EXPECT_THAT(Lines(), SizeIs(1));
  proto::GetStatusResponse read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out_, &read).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(read, status_)) << out_;
  EXPECT_THAT(out_, HasSubstr(R"("tables":[{"name":"items","rows":"12",)"));
}

TEST_F(StatusTest, EventsHaveTheNewestLast) {
  AddEvent(proto::Event::JOINED, "first");
  AddEvent(proto::Event::LOST, "second");
  EXPECT_EQ(Run(EventsCommand, {}), kExitDone) << err_;
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("joined             first"),
                                   HasSubstr("lost               second")));
  EXPECT_EQ(Run(EventsCommand, {"--json"}), kExitDone);
  ASSERT_THAT(Lines(), SizeIs(2));
  proto::Event read;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(Lines()[1], &read).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(read, events_[1]));
}

TEST_F(StatusTest, EventsAreFollowedToTheEnd) {
  AddEvent(proto::Event::JOINED, "first");
  // The second call gets more events.
  ps_.get_events.Do([this](int call, const auto& request, auto* response) {
    EXPECT_EQ(request.after(), static_cast<uint64_t>(call));
    if (call == 1) AddEvent(proto::Event::DONE, "the job is done");
    *response->add_events() = events_.back();
    return absl::OkStatus();
  });
  EXPECT_EQ(Run(EventsCommand, {"--follow"}), kExitDone) << err_;
  EXPECT_THAT(Lines(),
              ElementsAre(HasSubstr("first"), HasSubstr("the job is done")));
}

TEST_F(StatusTest, History) {
  ps_.get_history.Do([](int, const auto& request, auto* response) {
    EXPECT_EQ(request.max_points(), 7u);
    auto* const point = response->add_points();
    point->set_step(100);
    point->set_loss(0.25);
    return absl::OkStatus();
  });
  EXPECT_EQ(Run(HistoryCommand, {"--csv", "--max_points=7"}), kExitDone);
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("step,time,loss,"),
                                   "100,0.000,0.25,0,0,0,,,,,,,"));
  EXPECT_EQ(Run(HistoryCommand, {"--max_points", "7"}), kExitDone);
  EXPECT_THAT(out_, HasSubstr(" 100  1970-01-01 "));
}

TEST_F(StatusTest, WrongUseAndNobodyThere) {
  const struct {
    Command command;
    std::vector<std::string> args;
    std::string error;
  } kCases[] = {
      {StatusCommand, {}, "holdfast status: no cluster is named"},
      {StatusCommand, {"--ps=nowhere"}, "--ps=nowhere"},
      {StatusCommand, {"--ps=a:1", "--run_dir=b"}, "both name a cluster"},
      {EventsCommand, {"--lines"}, "unknown flag --lines"},
      {HistoryCommand, {"--ps=a:1", "--max_points=10001"}, "from 1 to 10000"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(RunAsGiven(test.command, test.args), kExitUsage) << test.error;
    EXPECT_THAT(err_, HasSubstr(test.error));
    EXPECT_THAT(out_, IsEmpty());
  }
  const std::string gone = "--ps=" + ps_.address();
  ps_.Stop();
  for (const Command command : {StatusCommand, EventsCommand, HistoryCommand}) {
    EXPECT_EQ(RunAsGiven(command, {gone}), kExitFailed);
    EXPECT_THAT(
        err_, AllOf(HasSubstr(ps_.address()), HasSubstr("connection refused")));
  }
}

TEST_F(StatusTest, HelpHasExamples) {
  for (const Command command : {StatusCommand, EventsCommand, HistoryCommand}) {
    EXPECT_EQ(RunAsGiven(command, {"--help"}), kExitDone);
    EXPECT_THAT(out_, AllOf(HasSubstr("  holdfast "), HasSubstr("--run_dir="),
                            HasSubstr("Exits 0")));
  }
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/trace.h"
#include "common/process/exit_code.h"
#include "common/rpc/testing/fake_ps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using proto::TraceRequest;
using proto::TraceResponse;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TraceCommandTest : public ::testing::Test {
 protected:
  TraceCommandTest() {
    std::remove(output_.c_str());
    ps_.trace.Do([this](int, const TraceRequest& request,
                        TraceResponse* response) {
      asked_.push_back(absl::StrCat(
          TraceRequest::Action_Name(request.action()),
          request.steps() > 0 ? absl::StrCat(" ", request.steps()) : "",
          request.has_task()
              ? absl::StrCat(" ", request.task().job(), " ", request.piece())
              : ""));
      EXPECT_NE(request.trace(), 0u);
      if (!refusal_.ok()) return refusal_;
      if (request.action() == TraceRequest::FETCH) {
        response->add_spans()->set_name(
            absl::StrCat("piece ", request.piece()));
        return absl::OkStatus();
      }
      *response = trace_;
      if (request.action() == TraceRequest::FINISH) {
        trace_.set_state(TraceResponse::COMPLETE);
      }
      return absl::OkStatus();
    });
    trace_.set_state(TraceResponse::COMPLETE);
    trace_.set_first_step(3);
    trace_.set_end_step(5);
    trace_.set_global_step(5);
    proto::TraceTask& task = *trace_.add_tasks();
    task.mutable_task()->set_job("worker");
    task.set_pieces(2);
    task.set_spans(2);
    task.add_tracks()->set_name("training");
  }

  int Run(std::vector<std::string> args) {
    args.push_back("--ps=" + ps_.address());
    args.push_back("--output=" + output_);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = TraceCommand(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  std::string Output() const {
    std::ifstream file(output_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  FakePs ps_;
  TraceResponse trace_;
  absl::Status refusal_;
  std::vector<std::string> asked_;
  std::string output_ = testing::TempDir() + "/trace.json";
  std::string out_;
  std::string err_;
};

TEST_F(TraceCommandTest, FetchesAllPiecesAndWritesThem) {
  EXPECT_EQ(Run({"--steps=2"}), kExitDone) << err_;
  EXPECT_THAT(asked_, ElementsAre("BEGIN 2", "LOOK", "FETCH worker 0",
                                  "FETCH worker 1", "DROP"));
  EXPECT_THAT(Output(), AllOf(HasSubstr("piece 0"), HasSubstr("piece 1")));
  EXPECT_THAT(out_, AllOf(HasSubstr(output_ + ": steps 3 to 4"),
                          HasSubstr("/job:worker/task:0")));
  EXPECT_THAT(err_, IsEmpty());
}

TEST_F(TraceCommandTest, WritesWhatThereIsAndNamesTheRest) {
  trace_.mutable_tasks(0)->set_missing("it was lost");
  EXPECT_EQ(Run({}), kExitFailed);
  EXPECT_THAT(Output(), HasSubstr("piece 1"));
  EXPECT_THAT(err_, HasSubstr("lacks\n  /job:worker/task:0: it was lost"));
}

TEST_F(TraceCommandTest, DoesNotWaitForever) {
  trace_.set_state(TraceResponse::RECORDING);
  EXPECT_EQ(Run({"--wait=1us"}), kExitDone) << err_;
  EXPECT_THAT(asked_, ElementsAre("BEGIN 20", "LOOK", "FINISH", "LOOK",
                                  "FETCH worker 0", "FETCH worker 1", "DROP"));
}

TEST_F(TraceCommandTest, SaysWhyThereIsNone) {
  refusal_ = absl::AlreadyExistsError("another trace is being recorded");
  EXPECT_EQ(Run({}), kExitFailed);
  EXPECT_THAT(err_, AllOf(HasSubstr("holdfast trace: "),
                          HasSubstr("another trace is being recorded")));
  EXPECT_EQ(Output(), "");
  EXPECT_THAT(asked_, ElementsAre("BEGIN 20"));
}

TEST_F(TraceCommandTest, WrongFlags) {
  EXPECT_EQ(Run({"--steps=0"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--steps=0: must be from 1 to 10000"));
  EXPECT_EQ(Run({"--wait=0"}), kExitUsage);
  output_ = "/nowhere/trace.json";
  EXPECT_EQ(Run({}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--output=/nowhere/trace.json: No such file"));
  EXPECT_THAT(asked_, IsEmpty());
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "cli/set.h"

#include <string>
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

class SetTest : public ::testing::Test {
 protected:
  SetTest() {
    ps_.set_learning_rate.Do([](int, const auto& request, auto* response) {
      response->set_generation(3);
      response->set_step(request.has_at_step() ? request.at_step() : 1230);
      return absl::OkStatus();
    });
  }

  // Returns the exit code. The output is in out_ and err_.
  int Run(std::vector<std::string> args) {
    args.push_back("--ps=" + ps_.address());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = SetCommand(args);
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return code;
  }

  FakePs ps_;
  std::string out_;
  std::string err_;
};

TEST_F(SetTest, TellsFromWhichStepOnItHolds) {
  EXPECT_EQ(Run({"learning_rate_factor=0.1"}), kExitDone) << err_;
  EXPECT_EQ(out_,
            "The learning rates are multiplied by 0.1 from step 1230 on.\n");
  EXPECT_THAT(err_, IsEmpty());
  ASSERT_THAT(ps_.set_learning_rate.requests(), SizeIs(1));
  const auto request = ps_.set_learning_rate.requests()[0];
  EXPECT_EQ(request.factor(), 0.1f);
  EXPECT_FALSE(request.has_at_step());
}

TEST_F(SetTest, AtAStep) {
  EXPECT_EQ(Run({"learning_rate_factor=0", "--at_step=20000"}), kExitDone)
      << err_;
  EXPECT_EQ(out_,
            "The learning rates are multiplied by 0 from step 20000 on.\n");
  EXPECT_EQ(ps_.set_learning_rate.requests().at(0).at_step(), 20000u);
}

TEST_F(SetTest, WhatIsRefusedIsTold) {
  ps_.set_learning_rate.Do([](int, const auto&, auto*) {
    return absl::FailedPreconditionError("step 5 is over already");
  });
  EXPECT_EQ(Run({"learning_rate_factor=2", "--at_step=5"}), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("step 5 is over already"));
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(ps_.set_learning_rate.num_calls(), 1);
}

TEST_F(SetTest, AnAnswerThatDoesNotComeLeavesItOpen) {
  ps_.set_learning_rate.Do(
      [this](int, const auto&, auto*) { return ps_.Mute(); });
  EXPECT_EQ(Run({"learning_rate_factor=2", "--timeout=500ms"}), kExitFailed);
  EXPECT_THAT(err_,
              AllOf(HasSubstr("it is not known whether the factor was set"),
                    HasSubstr("check with `holdfast status`")));
}

TEST_F(SetTest, OnlyTheFactorCanBeSet) {
  for (const char* word : {"learning_rate=0.1", "steps=5", "factor"}) {
    EXPECT_EQ(Run({word}), kExitUsage) << word;
    EXPECT_THAT(err_, HasSubstr("only learning_rate_factor can be set; "
                                "to change something else, edit"));
  }
  EXPECT_EQ(ps_.set_learning_rate.num_calls(), 0);
}

TEST_F(SetTest, WrongValues) {
  for (const char* value : {"-1", "nan", "inf", "1e7", "a tenth", ""}) {
    EXPECT_EQ(Run({absl::StrCat("learning_rate_factor=", value)}), kExitUsage);
    EXPECT_THAT(err_, HasSubstr("must be a number from 0 to 1000000")) << value;
  }
  EXPECT_EQ(Run({"learning_rate_factor"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("as learning_rate_factor=0.1"));
  EXPECT_EQ(Run({"--at_step=5"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("the setting is required, before the flags"));
  EXPECT_EQ(Run({"learning_rate_factor=1", "--at_step=-5"}), kExitUsage);
  EXPECT_THAT(err_, HasSubstr("--at_step=-5"));
  EXPECT_EQ(ps_.set_learning_rate.num_calls(), 0);
}

}  // namespace
}  // namespace holdfast

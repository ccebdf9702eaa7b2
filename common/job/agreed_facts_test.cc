// SPDX-License-Identifier: Apache-2.0
#include "common/job/agreed_facts.h"

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

AgreedFacts Facts(
    std::initializer_list<std::pair<std::string, std::string>> facts) {
  AgreedFacts result;
  for (const auto& [name, value] : facts) result[name] = value;
  return result;
}

proto::Declaration Job(const AgreedFacts& facts) {
  proto::Declaration job;
  *job.mutable_agreed() = facts;
  return job;
}

absl::Status Check(const AgreedFacts& facts, const proto::Declaration& job) {
  return CheckAgreed("/job:worker/task:1", facts, job);
}

TEST(AgreedFactsTest, OnlyOtherValuesAreRefused_R12) {
  const proto::Declaration job = Job(Facts({{"dataset length", "60000"}}));
  EXPECT_TRUE(Check({}, job).ok());
  EXPECT_TRUE(Check(Facts({{"dataset length", "60000"}}), job).ok());
  EXPECT_TRUE(Check(Facts({{"batch size", "32"}}), job).ok());
  const absl::Status status =
      Check(Facts({{"a", "1"}, {"dataset length", "50000"}, {"z", "2"}}), job);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(status.message(),
            "/job:worker/task:1 has dataset length 50000, the job has 60000: "
            "it must be the same in every worker and after each restart, for "
            "example from a fixed seed");
}

TEST(AgreedFactsTest, TheFirstNameIsTold) {
  const proto::Declaration job = Job(Facts({{"b", "1"}, {"a", "1"}}));
  EXPECT_EQ(Check(Facts({{"b", "2"}, {"a", "2"}}), job)
                .message()
                .find("/job:worker/task:1 has a 2, the job has 1: "),
            0u);
}

TEST(AgreedFactsTest, AJobWithCheckpointsHasAnotherWayOut) {
  proto::Declaration job = Job(Facts({{"a", ""}}));
  job.mutable_checkpoints();
  const std::string text(Check(Facts({{"a", "1"}}), job).message());
  EXPECT_NE(text.find("1, the job has \"\": "), text.npos) << text;
  EXPECT_NE(text.find("train in another checkpoint directory"), text.npos)
      << text;
}

TEST(AgreedFactsTest, NothingUnprintableIsShown) {
  const proto::Declaration job = Job(Facts({{"\x1b[2J", "\n"}}));
  const std::string text(Check(Facts({{"\x1b[2J",
                                       "Gr\xc3\xb6\xc3\x9f"
                                       "e"}}),
                               job)
                             .message());
  EXPECT_EQ(text.find("/job:worker/task:1 has \\x1b[2J Gr\xc3\xb6\xc3\x9f"
                      "e, "
                      "the job has \\n: "),
            0u)
      << text;
}

TEST(AgreedFactsTest, AJobHasALimit) {
  AgreedFacts facts;
  for (size_t i = 0; i < kMaxAgreedFacts; ++i) facts[absl::StrCat(i)] = "1";
  const proto::Declaration job = Job(facts);
  EXPECT_TRUE(Check(facts, job).ok());
  const absl::Status status = Check(Facts({{"one more", "1"}}), job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("at most 10000"), std::string::npos)
      << status;
}

TEST(AgreedFactsTest, FactsAreAddedOnce) {
  AgreedFacts all = Facts({{"a", "1"}});
  EXPECT_FALSE(HasFacts(all, Facts({{"b", "2"}})));
  EXPECT_FALSE(HasFacts(all, Facts({{"a", "2"}})));
  AddFacts(Facts({{"a", "2"}, {"b", "2"}}), &all);
  EXPECT_TRUE(HasFacts(all, Facts({{"a", "1"}, {"b", "2"}})));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/job/declaration_change.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

proto::Declaration Parse(const std::string& text) {
  proto::Declaration declaration;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(text, &declaration));
  return declaration;
}

constexpr char kStands[] = R"pb(
  variables {
    name: "w"
    shape: 3
    initializer { given { sha256: "old" } }
  }
  optimizers {
    learning_rate: 0.5
    sgd {}
  }
  consistency { synchronous { total_num_replicas: 2 } }
  total_steps: 5
)pb";

TEST(FirstChangeTest, IsNamedFromOldToNew) {
  const proto::Declaration stands = Parse(kStands);
  for (const Declarer declarer : {Declarer::kChief, Declarer::kOther}) {
    EXPECT_EQ(FirstChange(stands, stands, declarer), "");
    proto::Declaration other = stands;
    other.mutable_optimizers(0)->set_learning_rate(0.25);
    other.set_total_steps(6);
    EXPECT_EQ(FirstChange(stands, other, declarer),
              "optimizers[0].learning_rate: 0.5 -> 0.25");
    other = stands;
    other.mutable_variables(0)->set_name("v");
    EXPECT_EQ(FirstChange(stands, other, declarer),
              "variables[0].name: \"w\" -> \"v\"");
    other = stands;
    other.mutable_optimizers(0)->mutable_sgd();
    other.mutable_consistency()->mutable_asynchronous();
    EXPECT_THAT(FirstChange(stands, other, declarer),
                HasSubstr("consistency."));
    other = stands;
    other.add_variables()->set_name("more");
    EXPECT_THAT(FirstChange(stands, other, declarer),
                HasSubstr("added: variables[1]"));
  }
}

TEST(FirstChangeTest, OfOthersWhatTheyLeaveOutAndTheFirstValuesDoNotCount) {
  const proto::Declaration stands = Parse(kStands);
  proto::Declaration other = stands;
  other.mutable_consistency()
      ->mutable_synchronous()
      ->clear_total_num_replicas();
  EXPECT_EQ(FirstChange(stands, other, Declarer::kOther), "");
  EXPECT_NE(FirstChange(stands, other, Declarer::kChief), "");
  other = stands;
  other.mutable_variables(0)
      ->mutable_initializer()
      ->mutable_given()
      ->clear_sha256();
  EXPECT_EQ(FirstChange(stands, other, Declarer::kOther), "");
  EXPECT_NE(FirstChange(stands, other, Declarer::kChief), "");
}

TEST(WaysOutOfChangeTest, TellOfADirectoryWhereThereIsOne) {
  proto::Declaration stands = Parse(kStands);
  EXPECT_THAT(WaysOutOfChange(stands), AllOf(HasSubstr("start all workers"),
                                             Not(HasSubstr("--warm_start"))));
  stands.mutable_checkpoints();
  EXPECT_THAT(WaysOutOfChange(stands),
              AllOf(HasSubstr("another checkpoint directory"),
                    HasSubstr("--warm_start")));
}

// Old checkpoints have no job file, and its digest ensures that workers have
// the same one.
TEST(FirstChangeTest, TheJobFileDoesNotCount) {
  const proto::Declaration stands = Parse(kStands);
  proto::Declaration other = stands;
  other.mutable_job()->set_job_file("a job");
  for (const Declarer declarer : {Declarer::kChief, Declarer::kOther}) {
    EXPECT_EQ(FirstChange(stands, other, declarer), "");
    EXPECT_EQ(FirstChange(other, stands, declarer), "");
  }
}

TEST(FirstChangeTest, FieldsOfAnotherVersionAreNoChange) {
  proto::Declaration declared;
  declared.set_seed(1);
  proto::Declaration other = declared;
  other.GetReflection()->MutableUnknownFields(&other)->AddVarint(12345, 6);
  EXPECT_EQ(FirstChange(declared, other, Declarer::kChief), "");
  EXPECT_EQ(FirstChange(other, declared, Declarer::kOther), "");
  other.set_seed(2);
  EXPECT_EQ(FirstChange(declared, other, Declarer::kChief), "seed: 1 -> 2");
}

}  // namespace
}  // namespace holdfast

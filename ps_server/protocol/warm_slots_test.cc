// SPDX-License-Identifier: Apache-2.0
#include "ps_server/protocol/warm_slots.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message))
      << text;
  return message;
}

// "a" and "b" of optimizer 0, "c" of optimizer 1, and variables without any.
proto::Declaration Of(const std::string& optimizer0,
                      const std::string& optimizer1 = "sgd {}") {
  proto::Declaration declaration = Parse<proto::Declaration>(R"(
      variables { name: "a" shape: 3 dtype: FLOAT32 }
      variables { name: "b" shape: 2 shape: 3 dtype: FLOAT32 }
      variables { name: "c" dtype: FLOAT32 optimizer: 1 }
      variables { name: "frozen" dtype: FLOAT32 trainable: false }
      variables { name: "mean" dtype: FLOAT32 moving_average {} }
      consistency { synchronous {} })");
  *declaration.add_optimizers() = Parse<proto::Optimizer>(optimizer0);
  *declaration.add_optimizers() = Parse<proto::Optimizer>(optimizer1);
  return declaration;
}

// After 7 steps, 5 of which changed something.
proto::Manifest SavedBy(const proto::Declaration& declaration) {
  proto::Manifest manifest;
  *manifest.mutable_declaration() = declaration;
  manifest.mutable_position()->set_step(7);
  manifest.mutable_position()->set_updates(5);
  return manifest;
}

TEST(WarmSlotsTest, ThoseOfTheSameKindAreTakenOver) {
  const auto plan = PlanWarmSlots(
      Of("learning_rate: 1 momentum { momentum: 0.5 }", "adagrad {}"),
      SavedBy(Of("momentum { momentum: 0.9 nesterov: true }", "ftrl {}")));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->taken, ElementsAre("a", "b"));
  EXPECT_THAT(plan->anew, ElementsAre("c"));
  EXPECT_THAT(plan->updates_before, ElementsAre(0, 0));
}

TEST(WarmSlotsTest, ARuleWithoutSlotsHasNoneToTake) {
  const auto plan = PlanWarmSlots(Of("sgd {}"), SavedBy(Of("sgd {}")));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->taken, IsEmpty());
  EXPECT_THAT(plan->anew, IsEmpty());
}

// Each form has two slots, but with different meanings.
TEST(WarmSlotsTest, RmsPropsSlotsAreThoseOfItsForm) {
  const std::string centered = "rmsprop { centered: true }";
  const std::string momentum = "rmsprop { momentum: 0.5 }";
  const std::string pytorch =
      "rmsprop { momentum: 0.5 epsilon_form: EPSILON_PYTORCH }";
  for (const std::string& now : {centered, momentum, pytorch}) {
    for (const std::string& saved : {centered, momentum, pytorch}) {
      const auto plan = PlanWarmSlots(Of(now), SavedBy(Of(saved)));
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->taken.empty(), now != saved) << now << " " << saved;
    }
  }
}

TEST(WarmSlotsTest, OtherShapesAndOtherVariablesBeginAnew) {
  proto::Manifest from = SavedBy(Of("momentum {}", "momentum {}"));
  from.mutable_declaration()->mutable_variables(0)->set_shape(0, 4);
  from.mutable_declaration()->mutable_variables(1)->set_trainable(false);
  from.mutable_declaration()->mutable_variables(2)->set_name("d");
  const auto plan = PlanWarmSlots(Of("momentum {}", "momentum {}"), from);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->taken, IsEmpty());
  EXPECT_THAT(plan->anew, ElementsAre("a", "b", "c"));
}

TEST(WarmSlotsTest, UpdatesAreThoseThatTheSlotsHaveSeen) {
  const proto::Declaration declaration = Of("adam {}", "adamw {}");
  proto::Manifest from = SavedBy(declaration);
  auto plan = PlanWarmSlots(declaration, from);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->updates_before, ElementsAre(5, 5));
  // A job that had a warm start of its own.
  from.mutable_position()->add_updates_before(100);
  from.mutable_position()->add_updates_before(200);
  plan = PlanWarmSlots(declaration, from);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->updates_before, ElementsAre(105, 205));
  // Each push of an asynchronous job is an update.
  from.mutable_declaration()->mutable_consistency()->mutable_asynchronous();
  from.mutable_position()->set_updates(0);
  plan = PlanWarmSlots(declaration, from);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->updates_before, ElementsAre(107, 207));
}

TEST(WarmSlotsTest, AnOptimizerMayBeginAnewAsAWhole) {
  const auto plan = PlanWarmSlots(Of("adam {}", "adam {}"),
                                  SavedBy(Of("momentum {}", "adam {}")));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->taken, ElementsAre("c"));
  EXPECT_THAT(plan->anew, ElementsAre("a", "b"));
  EXPECT_THAT(plan->updates_before, ElementsAre(0, 5));
}

TEST(WarmSlotsTest, OneNumberOfUpdatesCannotStandForTwo) {
  proto::Manifest from = SavedBy(Of("adam {}"));
  from.mutable_declaration()->mutable_variables(1)->set_name("other");
  const auto plan = PlanWarmSlots(Of("adam {}"), from);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(plan.status().message()),
      AllOf(HasSubstr("variable \"a\" would begin with 5 updates"),
            HasSubstr("\"b\" with 0"), HasSubstr("--warm_start_slots")));
  // Before the first update everything is as at the beginning.
  from.mutable_position()->clear_updates();
  EXPECT_TRUE(PlanWarmSlots(Of("adam {}"), from).ok());
}

TEST(WarmSlotsTest, TablesAreTakenOverAsVariablesAre) {
  const auto with_tables = [](const std::string& optimizer,
                              const std::string& tables) {
    proto::Declaration declaration = Of(optimizer, "adagrad {}");
    declaration.MergeFrom(Parse<proto::Declaration>(tables));
    return declaration;
  };
  const std::string tables = R"(
      tables { name: "s" row_length: 2 }
      tables { name: "t" row_length: 2 optimizer: 1 }
      tables { name: "u" row_length: 2 optimizer: 1 row_wise: true })";
  const proto::Manifest from = SavedBy(with_tables("adam {}", tables));
  auto plan = PlanWarmSlots(with_tables("adam {}", tables), from);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->taken, ElementsAre("a", "b", "c", "s", "t", "u"));
  EXPECT_THAT(plan->updates_before, ElementsAre(5, 0));
  // With other row lengths, or another kind of accumulator.
  plan = PlanWarmSlots(with_tables("adagrad {}",
                                   R"(tables { name: "s" row_length: 2 }
                     tables { name: "t" row_length: 3 optimizer: 1 }
                     tables { name: "u" row_length: 2 optimizer: 1 })"),
                       from);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->taken, ElementsAre("c"));
  EXPECT_THAT(plan->anew, ElementsAre("a", "b", "s", "t", "u"));
  EXPECT_THAT(
      PlanWarmSlots(
          with_tables("adam {}", R"(tables { name: "s" row_length: 3 })"), from)
          .status()
          .message(),
      AllOf(HasSubstr("variable \"a\" would begin with 5 updates"),
            HasSubstr("table \"s\" with 0")));
}

}  // namespace
}  // namespace holdfast

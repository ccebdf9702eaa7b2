// SPDX-License-Identifier: Apache-2.0

// First values that workers give: what the coordinator asks for, and which
// workers it asks (docs/protocol/recovery.md, "First values").
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/given_values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/coordinator/testing/coordinator_testing.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// The first values of "b" are given.
proto::Declaration WithGiven(float first = 1) {
  proto::Declaration declaration = MakeDeclaration();
  *declaration.mutable_variables(1)->mutable_initializer()->mutable_given() =
      GivenDigests({first, 2, 3});
  return declaration;
}

class CoordinatorValuesTest : public CoordinatorTest {
 protected:
  // All have joined, and the job is declared.
  void StartDeclared() {
    for (const TaskId& task : AllTasks()) Join(task);
    const auto declared = Declare(WithGiven());
    ASSERT_TRUE(declared.status().ok()) << declared.status();
  }
  // The shard lacks values of "b".
  void Want(uint32_t ps) {
    proto::RestoreResponse response;
    response.set_pending(true);
    response.set_wants_values_of("b");
    PuppetLinks::Answer(links_->restores, ps, absl::OkStatus(), response);
  }
  // The call of a worker that has given values of generations up to
  // `given_through`.
  Answer<proto::GetPlacementResponse> AskGiving(uint64_t given_through) {
    proto::GetPlacementRequest request;
    *request.mutable_sender() = SenderOf(Worker(1));
    request.set_wait_ms(30000);
    request.set_values_given_through(given_through);
    return Ask(request);
  }
};

TEST_F(CoordinatorValuesTest, TheJobStartsOnceEveryShardHasAll_V1) {
  Make();
  StartDeclared();
  const auto other = GetPlacement(30000);
  Want(0);
  PuppetLinks::Answer(links_->restores, 1);
  Tick();
  EXPECT_EQ(state().phase(), proto::STARTING);
  EXPECT_FALSE(other.came());
  ASSERT_EQ(PuppetLinks::To(links_->restores), std::vector<uint32_t>{0});
  Want(0);
  Tick();
  EXPECT_EQ(state().phase(), proto::STARTING);
  PuppetLinks::Answer(links_->restores, 0);
  EXPECT_EQ(state().phase(), proto::TRAINING);
  ASSERT_TRUE(other.came());
  EXPECT_TRUE(other->ready());
  EXPECT_FALSE(other->values_wanted());
}

TEST_F(CoordinatorValuesTest, WhoeverHasValuesIsAskedAsSoonAsAShardWantsThem) {
  Make();
  StartDeclared();
  const auto early = AskGiving(0);
  const auto without = GetPlacement(30000);
  EXPECT_FALSE(early.came());
  Want(1);
  ASSERT_TRUE(early.came());
  EXPECT_FALSE(early->ready());
  EXPECT_TRUE(early->values_wanted());
  EXPECT_EQ(early->generation(), 1u);
  EXPECT_TRUE(early->declaration().variables(1).initializer().has_given());
  const auto late = AskGiving(0);
  ASSERT_TRUE(late.came());
  EXPECT_TRUE(late->values_wanted());
  // Workers without values are not asked, nor those that have given theirs.
  const auto after = AskGiving(1);
  Tick();
  Want(1);
  EXPECT_FALSE(after.came());
  EXPECT_FALSE(without.came());
  Tick();
  PuppetLinks::AnswerAll(links_->restores);
  ASSERT_TRUE(after.came());
  EXPECT_TRUE(after->ready());
}

TEST_F(CoordinatorValuesTest, ANewGenerationAsksAgain_V3) {
  MakeWithArchive();
  StartDeclared();
  Want(0);
  Want(1);
  const auto given = AskGiving(1);
  EXPECT_FALSE(given.came());
  // Ps 1 dies, and comes back.
  Leave(Ps(1));
  Join(Ps(1), 2);
  EXPECT_EQ(generation(), Generation(2));
  EXPECT_FALSE(given.came());
  links_->restores.clear();
  Advance(options_.resend_after + absl::Seconds(3));
  Tick();
  Want(1);
  ASSERT_TRUE(given.came());
  EXPECT_TRUE(given->values_wanted());
  EXPECT_EQ(given->generation(), 2u);
}

TEST_F(CoordinatorValuesTest, WhatIsWaitedForIsNamed) {
  Make();
  StartDeclared();
  Want(0);
  PuppetLinks::Answer(links_->restores, 1);
  EXPECT_EQ(GetPlacement(0)->waiting_for(),
            "a worker that gives the first values of variable \"b\" at "
            "/job:ps/task:0");
  Pass(options_.start_timeout + absl::Seconds(1), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(),
              HasSubstr("the job did not start within 1m: waited for a worker "
                        "that gives the first values of variable \"b\" at "
                        "/job:ps/task:0"));
}

TEST_F(CoordinatorValuesTest, TheTimeOfTheDiskIsNotTheWorkers) {
  Make();
  options_.warm_start = "/warm";
  archive_ = std::make_unique<PuppetArchive>();
  Begin();
  StartDeclared();
  const auto read = [&](uint64_t done) {
    proto::RestoreResponse response;
    response.set_pending(true);
    response.mutable_progress()->set_bytes_done(done);
    response.mutable_progress()->set_bytes_total(10);
    for (const uint32_t ps : {0, 1}) {
      PuppetLinks::Answer(links_->restores, ps, absl::OkStatus(), response);
    }
  };
  for (uint64_t done = 1; done <= 3; ++done) {
    read(done);
    Pass(options_.start_timeout / 2, AllTasks());
  }
  Want(0);
  Want(1);
  Pass(options_.start_timeout - absl::Seconds(1), AllTasks());
  EXPECT_EQ(state().phase(), proto::STARTING);
  Pass(absl::Seconds(2), AllTasks());
  EXPECT_EQ(state().phase(), proto::FAILED);
  EXPECT_THAT(state().reason(), HasSubstr("the job did not start within 1m"));
}

TEST_F(CoordinatorValuesTest, OtherFirstValuesAreRefusedByName) {
  Make();
  StartDeclared();
  EXPECT_TRUE(Declare(WithGiven(), Worker(1)).status().ok());
  EXPECT_TRUE(Fails(Declare(WithGiven(5), Worker(1)).status(), kExists,
                    {"/job:worker/task:1 has other first values of variable "
                     "\"b\" than were declared before (by SHA-256)"}));
  // Other differences are named as usual.
  proto::Declaration other = WithGiven(5);
  other.mutable_variables(1)->set_trainable(false);
  EXPECT_TRUE(Fails(Declare(other, Worker(1)).status(), kExists,
                    {"declares a different job than was declared before"}));
}

TEST_F(CoordinatorValuesTest, DigestsFitTheShape) {
  Make();
  for (const TaskId& task : AllTasks()) Join(task);
  proto::Declaration declaration = WithGiven();
  declaration.mutable_variables(1)
      ->mutable_initializer()
      ->mutable_given()
      ->clear_sha256();
  EXPECT_TRUE(Fails(Declare(declaration).status(), kInvalid,
                    {"variable \"b\": given: 0 digests, must be 1"}));
}

}  // namespace
}  // namespace holdfast

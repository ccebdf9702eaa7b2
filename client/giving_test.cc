// SPDX-License-Identifier: Apache-2.0

// First values on their way from a client to the shards.
#include "client/giving.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/client.h"
#include "client/testing/generation_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Passed to the Await of handles that are done; the transport fails the test
// for any wait.
constexpr absl::Time kNow = absl::InfinitePast();

// "b" is given: 3, 4, 5, 6.
class GivingTest : public GenerationTest {
 protected:
  GivingTest() {
    Client::Options options;
    options.task = {kWorkerJob, 1};
    options.ps_names = PsNames(2);
    client_ = std::make_unique<Client>(std::move(options), &transport_);
    Hear(2);
  }

  void Hear(uint64_t generation) {
    SessionNews news;
    news.sender = SenderOf(generation);
    news.state.set_phase(proto::STARTING);
    client_->Hear(news);
  }
  static proto::GetPlacementResponse Wanted(uint64_t generation) {
    proto::GetPlacementResponse response;
    response.set_generation(generation);
    response.set_values_wanted(true);
    *response.mutable_declaration() = PlacementOf(2, false).declaration();
    response.mutable_declaration()
        ->mutable_variables(1)
        ->mutable_initializer()
        ->mutable_given();
    return response;
  }
  // The cluster wants values, and starts to get them.
  std::unique_ptr<Giving> StartGive() {
    variables_ = client_->StartAwaitVariables(0);
    transport_.Take(rpc::kGetPlacement).Answer(Wanted(2));
    EXPECT_TRUE(variables_->done());
    EXPECT_EQ(*variables_->Await(kNow), Client::Variables::kWanted);
    auto giving = variables_->StartGive([this](size_t variable) {
      EXPECT_EQ(variable, 1);
      return absl::MakeConstSpan(b_);
    });
    EXPECT_TRUE(giving.ok()) << giving.status();
    return *std::move(giving);
  }
  // The shard answers the pending call; `size` 0: it has everything.
  void Want(uint32_t ps, uint64_t begin, uint64_t size) {
    proto::GiveResponse response;
    response.set_generation(2);
    if (size > 0) {
      proto::ReadRange& range = *response.add_wanted();
      range.set_variable("b");
      range.set_begin(begin);
      range.set_size(size);
    }
    transport_.Take(rpc::kGive, ps).Answer(response);
  }

  std::vector<float> b_ = {3, 4, 5, 6};
  std::unique_ptr<Client> client_;
  std::unique_ptr<Client::VariablesRequest> variables_;
};

TEST_F(GivingTest, EachShardIsGivenWhatItWantsUntilItHasAll) {
  const std::unique_ptr<Giving> giving = StartGive();
  EXPECT_THAT(transport_.names(), ElementsAre("Give", "Give"));
  {
    auto first = transport_.Take(rpc::kGive, 0);
    EXPECT_THAT(first.request.tensors, IsEmpty());
    EXPECT_EQ(first.request.message.sender().generation(), 2);
    proto::GiveResponse response;
    for (const uint64_t begin : {0, 2}) {
      proto::ReadRange& range = *response.add_wanted();
      range.set_variable("b");
      range.set_begin(begin);
      range.set_size(2);
    }
    first.Answer(response);
  }
  Want(1, 0, 0);
  EXPECT_FALSE(giving->done());
  {
    auto second = transport_.Take(rpc::kGive, 0);
    ASSERT_THAT(second.request.tensors, SizeIs(2));
    EXPECT_EQ(second.request.tensors[1].variable, "b");
    EXPECT_EQ(second.request.tensors[1].begin, 2);
    EXPECT_THAT(FloatsOf(second.request.tensors[0]), ElementsAre(3, 4));
    EXPECT_THAT(FloatsOf(second.request.tensors[1]), ElementsAre(5, 6));
    second.Answer(proto::GiveResponse());
  }
  ASSERT_TRUE(giving->done());
  EXPECT_EQ(giving->Await(kNow), absl::OkStatus());

  // No worker is asked twice in a generation.
  variables_ = client_->StartAwaitVariables(giving->generation());
  auto asked = transport_.Take(rpc::kGetPlacement);
  EXPECT_EQ(asked.request.values_given_through(), 2);
  asked.Answer(Wanted(2));
  EXPECT_FALSE(variables_->done());
  transport_.Pass(absl::Seconds(10));
  transport_.Take(rpc::kGetPlacement).Answer(PlacementOf(2, false));
  ASSERT_TRUE(variables_->done());
  EXPECT_EQ(*variables_->Await(kNow), Client::Variables::kReady);
}

TEST_F(GivingTest, AClientWithoutValuesWaitsForOthers) {
  auto variables = client_->StartAwaitVariables();
  auto asked = transport_.Take(rpc::kGetPlacement);
  EXPECT_FALSE(asked.request.has_values_given_through());
  asked.Answer(Wanted(2));
  EXPECT_FALSE(variables->done());
}

TEST_F(GivingTest, ValuesWantedInAnotherGenerationAreAskedForAgain) {
  auto variables = client_->StartAwaitVariables(0);
  transport_.Take(rpc::kGetPlacement).Answer(Wanted(3));
  EXPECT_FALSE(variables->done());
}

TEST_F(GivingTest, AShardsRefusalIsTheError) {
  const std::unique_ptr<Giving> giving = StartGive();
  Want(0, 0, 4);
  transport_.Take(rpc::kGive, 0)
      .Answer(absl::InvalidArgumentError("first values of variable \"b\""));
  ASSERT_TRUE(giving->done());
  EXPECT_EQ(giving->Await(kNow),
            absl::InvalidArgumentError("ps 0: first values of variable \"b\""));
}

TEST_F(GivingTest, AShardThatRestoresYetIsAskedAgain) {
  const std::unique_ptr<Giving> giving = StartGive();
  Want(1, 0, 0);
  transport_.Take(rpc::kGive, 0)
      .Answer(absl::UnavailableError("not in generation 2 yet"));
  EXPECT_FALSE(giving->done());
  transport_.Pass(absl::Seconds(10));
  Want(0, 0, 0);
  EXPECT_TRUE(giving->done());
}

TEST_F(GivingTest, ANewGenerationEndsIt) {
  const std::unique_ptr<Giving> giving = StartGive();
  Want(0, 0, 4);
  EXPECT_FALSE(giving->done());
  Hear(3);
  ASSERT_TRUE(giving->done());
  EXPECT_EQ(giving->Await(kNow), absl::OkStatus());
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(GivingTest, AShardThatWantsWhatIsNotGivenIsWrong) {
  for (const bool other_variable : {false, true}) {
    const std::unique_ptr<Giving> giving = StartGive();
    proto::GiveResponse response;
    response.add_wanted()->set_variable(other_variable ? "a" : "b");
    response.mutable_wanted(0)->set_begin(3);
    response.mutable_wanted(0)->set_size(2);
    transport_.Take(rpc::kGive, 0).Answer(response);
    ASSERT_TRUE(giving->done());
    const absl::Status status = giving->Await(kNow);
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("ps 0: it wants first values"));
  }
}

TEST_F(GivingTest, ValuesOfAnotherLengthAreNotSent) {
  variables_ = client_->StartAwaitVariables(0);
  transport_.Take(rpc::kGetPlacement).Answer(Wanted(2));
  ASSERT_EQ(*variables_->Await(kNow), Client::Variables::kWanted);
  b_.pop_back();
  const auto giving =
      variables_->StartGive([this](size_t) { return absl::MakeConstSpan(b_); });
  EXPECT_TRUE(absl::IsInvalidArgument(giving.status()));
  EXPECT_THAT(giving.status().message(), HasSubstr("variable \"b\": 3"));
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(GivingTest, AReaderHasNothingToGive) {
  Client::Options options;
  options.ps_names = PsNames(2);
  Client reader(std::move(options), &transport_);
  const auto variables = reader.StartAwaitVariables(0);
  ASSERT_TRUE(variables->done());
  EXPECT_TRUE(absl::IsFailedPrecondition(variables->Await(kNow).status()));
}

}  // namespace
}  // namespace holdfast::client

// SPDX-License-Identifier: Apache-2.0
#include "client/linking.h"

#include <memory>

#include "absl/status/status.h"
#include "client/context.h"
#include "client/neighbors.h"
#include "client/rpc.h"
#include "client/testing/fake_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LinkingTest : public ::testing::Test {
 protected:
  std::shared_ptr<Context> MakeContext() {
    Context::Options options;
    options.ps_names = {"ps 0", "ps 1"};
    return std::make_shared<Context>(std::move(options), &transport_);
  }

  FakeTransport transport_;
  Neighbors neighbors_{{"ps 0", "ps 1"}};
};

TEST_F(LinkingTest, WithoutNeighborsNobodyIsAsked) {
  Linking linking(MakeContext());
  linking.LinkAll(absl::InfiniteFuture());
  EXPECT_THAT(transport_.names(), IsEmpty());
}

TEST_F(LinkingTest, ALinkThatIsLostIsAskedForOnceInASecond) {
  transport_.set_neighbors(&neighbors_);
  Linking linking(MakeContext());
  neighbors_.Lose(1);
  neighbors_.Lose(1);
  EXPECT_THAT(transport_.names(), ElementsAre("Link"));
  auto asked = transport_.Take(rpc::kLink, 1);
  EXPECT_FALSE(asked.request.boot_id().empty());
  proto::LinkResponse refusal;
  refusal.set_refusal("it does not want to");
  asked.Answer(refusal);
  neighbors_.Lose(1);
  EXPECT_THAT(transport_.names(), IsEmpty());
  transport_.Pass(absl::Seconds(1));
  neighbors_.Lose(1);
  transport_.Take(rpc::kLink, 1)
      .Answer(absl::UnimplementedError("an older ps"));
  transport_.Pass(absl::Seconds(1));
  neighbors_.Lose(1);
  EXPECT_THAT(transport_.names(), ElementsAre("Link"));
}

TEST_F(LinkingTest, NobodyIsAskedWhenTheClientIsGone) {
  transport_.set_neighbors(&neighbors_);
  auto linking = std::make_unique<Linking>(MakeContext());
  neighbors_.Lose(0);
  linking.reset();
  neighbors_.Lose(0);
  EXPECT_THAT(transport_.names(), IsEmpty());
}

}  // namespace
}  // namespace holdfast::client

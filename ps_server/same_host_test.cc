// SPDX-License-Identifier: Apache-2.0
#include "ps_server/same_host.h"

#include <string>

#include "common/base/clock.h"
#include "common/shared_memory/arena.h"
#include "common/shared_memory/link_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard.pb.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class SameHostTest : public testing::Test {
 protected:
  SameHostTest() {
    options_.name = "/job:ps/task:0";
    options_.clock = &clock_;
  }
  const SteadyClock clock_;
  SameHostOptions options_;
};

TEST_F(SameHostTest, IsOffWhenToldSo) {
  options_.enabled = false;
  const SameHost same_host = StartSameHost(options_);
  EXPECT_EQ(same_host.arena, nullptr);
  EXPECT_EQ(same_host.neighbors, nullptr);
  EXPECT_THAT(same_host.why_not, HasSubstr("--same_host=off"));
}

TEST_F(SameHostTest, GoesOnWithoutASocket) {
  options_.directory = "/no/such/directory";
  const SameHost same_host = StartSameHost(options_);
  EXPECT_EQ(same_host.arena, nullptr);
  EXPECT_EQ(same_host.neighbors, nullptr);
  EXPECT_NE(same_host.why_not, "");
}

TEST_F(SameHostTest, OffersLinksWhereItCan) {
  const SameHost same_host = StartSameHost(options_);
  if (!SharedArena::HugePagesWork()) {
    EXPECT_THAT(same_host.why_not, HasSubstr("huge pages"));
    return;
  }
  ASSERT_NE(same_host.neighbors, nullptr) << same_host.why_not;
  ASSERT_NE(same_host.arena, nullptr);
  proto::LinkRequest request;
  request.mutable_sender()->mutable_task()->set_job("worker");
  request.set_boot_id(BootId());
  EXPECT_EQ(same_host.neighbors->Link(request).refusal(), "");
}

}  // namespace
}  // namespace holdfast

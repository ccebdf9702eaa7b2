// SPDX-License-Identifier: Apache-2.0
#include "tests/rpc_threads/rpc_threads.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

TEST(RpcThreadsTest, WithoutAWordNothingChanges) {
  unsetenv("HOLDFAST_TEST_RPC_THREADS");
  EXPECT_EQ(RpcThreadsUnderTest(), 1);
  EXPECT_THAT(WithRpcThreads({"ps_server/ps_server"}),
              ElementsAre("ps_server/ps_server"));
}

TEST(RpcThreadsTest, ThePsGetTheFlag) {
  setenv("HOLDFAST_TEST_RPC_THREADS", "4", 1);
  EXPECT_EQ(RpcThreadsUnderTest(), 4);
  EXPECT_THAT(WithRpcThreads({"ps_server/ps_server", "-a"}),
              ElementsAre("ps_server/ps_server", "-a", "--rpc_threads=4"));
  EXPECT_THAT(
      WithRpcThreads({"cli/holdfast", "local"}),
      ElementsAre("cli/holdfast", "local", "--ps_flags=--rpc_threads=4"));
  EXPECT_THAT(
      WithRpcThreads({"cli/holdfast", "bench", "wire", "--ps_flags=-b", "-c"}),
      ElementsAre("cli/holdfast", "bench", "wire",
                  "--ps_flags=-b --rpc_threads=4", "-c"));
  EXPECT_THAT(WithRpcThreads({"cli/holdfast", "bench", "step"}),
              ElementsAre("cli/holdfast", "bench", "step",
                          "--local_flags=--ps_flags=--rpc_threads=4"));
  EXPECT_THAT(WithRpcThreads({"cli/holdfast", "status"}),
              ElementsAre("cli/holdfast", "status"));
  EXPECT_THAT(WithRpcThreads({"worker/ps_worker"}),
              ElementsAre("worker/ps_worker"));
}

}  // namespace
}  // namespace holdfast

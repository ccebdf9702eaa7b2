// SPDX-License-Identifier: Apache-2.0

// A process that is forked from one that uses the C API.

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "client/c_api/holdfast.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"
#include "tests/c_api/calls.h"

// Called by LeakSanitizer, if it is linked. In a forked child it would report
// the memory of the parent's threads as leaked.
static bool is_forked_child = false;
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace holdfast {
namespace {

TEST_F(CApiClusterTest, AForkedChildHasNoHandlesAndEnds) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), Synchronous(5));
  holdfast_loop* loop = nullptr;
  ASSERT_OK(Call(holdfast_loop_start, cluster, nullptr, size_t{0}, &loop));
  holdfast_turn turn;
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  const Options worker = Worker(0);
  const auto options = worker.Get();
  const pid_t child = fork();
  if (child == 0) {
    is_forked_child = true;
    alarm(20);
    int wrong = CallAllWith(cluster, loop, nullptr) != nullptr;
    Caught error;
    const Result result = error(holdfast_leave(cluster, nullptr, -1, error));
    if (result.message.find("forked from") == std::string::npos) wrong += 2;
    holdfast_cluster* another = nullptr;
    if (holdfast_connect(options.data(), options.size(), &another, nullptr) !=
        HOLDFAST_BAD_HANDLE) {
      wrong += 4;
    }
    holdfast_values* values = nullptr;
    if (holdfast_load_checkpoint("common/checkpoint/testdata/golden", &values,
                                 nullptr) != HOLDFAST_BAD_HANDLE) {
      wrong += 8;
    }
    std::exit(wrong);  // With all destructors and handlers.
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // The loop of the parent is not affected.
  ASSERT_OK(Call(holdfast_loop_contribute, loop, uint64_t{0}, 0.0, 1.f));
  ASSERT_OK(Call(holdfast_loop_next, loop, int64_t{-1}, &turn));
  EXPECT_EQ(turn.step, 1);
  holdfast_close(cluster);
  holdfast_loop_free(loop);
}

}  // namespace
}  // namespace holdfast

#include <ctime>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/exploration/explorer.h"
#include "tests/exploration/jobs.h"

namespace holdfast::exploration {
namespace {

void GoThrough(const Job& job, Budget budget) {
  if (const char* b = getenv("BUDGET")) sscanf(b, "%d,%d,%d,%d,%d", &budget.orders,&budget.messages,&budget.crashes,&budget.expiries,&budget.disk);
  const clock_t begun = clock();
  const Explored explored = Explore(job, budget);
  std::printf("%s: %s; %.1f s\n", job.name.c_str(), explored.ToString().c_str(),
              double(clock() - begun) / CLOCKS_PER_SEC);
  fflush(stdout);
  EXPECT_EQ(explored.failure, "");
}

TEST(ExplorationTest, Synchronous) { GoThrough(Synchronous(2), {0}); }
TEST(ExplorationTest, Backup) { GoThrough(Backup(2), {0}); }
TEST(ExplorationTest, ByTicket) { GoThrough(ByTicket(4), {0}); }
TEST(ExplorationTest, Continue) { GoThrough(Continue(4), {0}); }
TEST(ExplorationTest, Asynchronous) { GoThrough(Asynchronous(4, 1), {0}); }
TEST(ExplorationTest, Asynchronous2) { GoThrough(Asynchronous(4, 2), {0}); }
TEST(ExplorationTest, SynchronousW) { GoThrough(WithoutArchive(Synchronous(2)), {0}); }
TEST(ExplorationTest, AsynchronousW) { GoThrough(WithoutArchive(Asynchronous(4, 1)), {0}); }

}  // namespace
}  // namespace holdfast::exploration

#ifndef HOLDFAST_TESTS_FAULTS_LEAKS_H_
#define HOLDFAST_TESTS_FAULTS_LEAKS_H_

#include <cstdint>
#include <string>

namespace holdfast {

// An asynchronous job of two ps and two workers, all on this host, so that
// tensors pass through shared memory. Worker 0 and ps 0 are killed in turn, at
// any moment, and started again; ps 1 and worker 1 live on, and must hold no
// more at the end than when they had seen a few deaths.
struct LeakOptions {
  std::string folder;
  // At least so many kills, and steps.
  uint64_t kills = 6;
  uint64_t steps = 0;
  // Whether the job has embedding tables (rows_job.h), of which one grows by
  // some rows with each step: by a MiB in some ten thousand.
  bool tables = false;
};

struct LeakReport {
  // For people.
  std::string table;
  // Empty: nothing has leaked.
  std::string failure;
};

LeakReport LookForLeaks(const LeakOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_LEAKS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_LEAKS_H_
#define HOLDFAST_TESTS_FAULTS_LEAKS_H_

#include <cstdint>
#include <string>

namespace holdfast {

// An asynchronous job of two ps and two workers, all on this host, so that
// tensors pass through shared memory. Worker 0 and ps 0 are killed in turn, at
// arbitrary moments, and started again; ps 1 and worker 1 live on, and must
// hold no more resources at the end than after the first few deaths.
struct LeakOptions {
  std::string folder;
  // The minimum numbers of kills and steps.
  uint64_t kills = 6;
  uint64_t steps = 0;
  // Whether the job has embedding tables (rows_job.h). One of them grows by
  // some rows with each step: by 1 MiB in some ten thousand steps.
  bool tables = false;
};

struct LeakReport {
  // A table for people.
  std::string table;
  // The reason for a failure; empty if nothing has leaked.
  std::string failure;
};

LeakReport LookForLeaks(const LeakOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_LEAKS_H_

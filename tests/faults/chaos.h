// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_CHAOS_H_
#define HOLDFAST_TESTS_FAULTS_CHAOS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast {

// Jobs of real processes, each of which is hit by one fault, and their
// outcomes.
//
// Seed and round number determine everything about a round: what is hit, how,
// in which kind of job, and when, in terms of the job's progress. 18 rounds hit
// every target in every way; 720 rounds do so at every moment and in every kind
// of job.
//
// A round is survived if every task exits by itself with 0 (except a task that
// was hit at the end of the job and has no peer left to ask), and the last
// checkpoint is right. In a synchronous job by step, the checkpoint has the
// digest of an undisturbed run. In other jobs each push and each example counts
// once or, if the job goes on without lost workers, each step (OnesModel); with
// embedding tables, each push counts once in each of its rows (rows_job.h).
struct ChaosOptions {
  // Holds one folder per round. Folders of rounds that were not survived are
  // kept.
  std::string folder;
  uint64_t seed = 1;
  uint64_t first_round = 0;
  uint64_t rounds = 18;
  // The number of jobs that run at a time.
  int parallel = 2;
  // Whether the jobs are encrypted.
  bool tls = false;
};

struct ChaosReport {
  // A table for people: results by target and fault, by moment and by kind of
  // job. A fault is "in time" if at least one of its targets was still running.
  std::string table;
  // One entry per round that was not survived: its description, the reason and
  // the logs.
  std::vector<std::string> failures;
};

// Prints the outcome of each round on standard output.
ChaosReport RunChaos(const ChaosOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_CHAOS_H_

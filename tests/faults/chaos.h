#ifndef HOLDFAST_TESTS_FAULTS_CHAOS_H_
#define HOLDFAST_TESTS_FAULTS_CHAOS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast {

// Jobs of real processes that are hit once each, and what became of them.
//
// Round r of a seed is always the same: what is hit, how, in which kind of job,
// and when, in terms of the job's progress. 18 rounds hit every target in every
// way; 720 do so at every moment and in every kind of job.
//
// A round is survived when every task ends by itself with 0 (but one that was
// hit at the end, and has nobody left to ask), and the last checkpoint is
// right: synchronous by step, it has the digest of a run that was left in
// peace; otherwise each push and each example counts once, or, where the job
// goes on without lost workers, each step (OnesModel); with embedding tables,
// each push in each of its rows (rows_job.h).
struct ChaosOptions {
  // For the rounds' folders; those of rounds that were not survived stay.
  std::string folder;
  uint64_t seed = 1;
  uint64_t first_round = 0;
  uint64_t rounds = 18;
  // At a time.
  int parallel = 2;
  // Whether the jobs are encrypted.
  bool tls = false;
};

struct ChaosReport {
  // For people: by what was hit and how, by moment, by kind of job. In time:
  // something that was to be hit was still running.
  std::string table;
  // Of each round that was not survived: which it is, why, and the logs.
  std::vector<std::string> failures;
};

// Says on standard output how each round ends.
ChaosReport RunChaos(const ChaosOptions& options);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_CHAOS_H_

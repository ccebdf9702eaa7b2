// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_FAULTS_ROWS_JOB_H_
#define HOLDFAST_TESTS_FAULTS_ROWS_JOB_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

// Jobs with embedding tables (docs/protocol/tables.md), which rows_worker
// trains: a variable "dense" and the tables below. The batch number alone
// determines which rows a batch uses.
//
// Jobs by step **compute**: gradients depend on the rows' values and on batch,
// id and element, so each wrong read changes everything after it. Jobs by
// ticket **count**: all gradients are the same, and values and counts show how
// often each push has counted (CheckRows in outcome.h).

// The path of the program, for a test whose BUILD rule lists it as `data`.
inline constexpr char kRowsWorker[] = "tests/faults/rows_worker";

// Indices of the tables in the declaration.
inline constexpr size_t kCountedTable = 0;
// Rows are created by their second push, are removed 16 to 19 steps after their
// last push, and are transferred as INT8 and BFLOAT16.
inline constexpr size_t kAdmittedTable = 1;
// At most one row per bucket; trained with Adagrad.
inline constexpr size_t kCappedTable = 2;
inline constexpr size_t kRowsTables = 3;
inline constexpr uint64_t kRowsExpireAfter = 16;
// Long enough that an expired row is not removed at once.
inline constexpr uint64_t kRowsSweepPeriod = kRowsExpireAfter / 4;

// Each element of a row's gradient in a job that counts, and what a push
// subtracts with SGD. INT8 represents it exactly: as the greatest number of the
// type, it is not rounded up.
inline constexpr float kRowsUnit = 127;

// The number of examples in a batch.
inline constexpr uint64_t kRowsBatch = 5;

struct RowsJob {
  // The consistency of the job, as text.
  std::string consistency;
  bool by_ticket = false;
  uint64_t steps = 1;
  // The number of steps from one checkpoint to the next.
  uint64_t save_every = 7;
};

// Returns the declaration, as text.
std::string RowsDeclaration(const RowsJob& job);

// Rows of each table that every batch uses.
std::vector<uint64_t> RowsOfAll();
// Rows of "counted" and "capped" that only this batch uses.
std::vector<uint64_t> RowsOfOne(size_t table, uint64_t batch);
// All rows of a batch; for "admitted", also some rows of the batches before it.
std::vector<uint64_t> RowsOf(size_t table, uint64_t batch);

// The gradients [ids, row_length], at `values`, in a job that computes.
std::vector<float> RowGradients(absl::Span<const uint64_t> ids, uint64_t batch,
                                absl::Span<const float> values);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_ROWS_JOB_H_

#ifndef HOLDFAST_TESTS_FAULTS_ROWS_JOB_H_
#define HOLDFAST_TESTS_FAULTS_ROWS_JOB_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace holdfast {

// Jobs with embedding tables (docs/protocol/tables.md), which rows_worker
// trains: a variable "dense" and the tables below. Which rows a batch uses
// follows from its number alone.
//
// Jobs by step **compute**: gradients follow from the rows' values and from
// batch, id and element, so each wrong read changes all that comes after it.
// Jobs by ticket **count**: all gradients are the same, and values and counts
// tell how often each push has counted (CheckRows in outcome.h).

// Where the program is, for a test whose BUILD rule lists it as `data`.
inline constexpr char kRowsWorker[] = "tests/faults/rows_worker";

// Tables, by their index in the declaration.
inline constexpr size_t kCountedTable = 0;
// Rows are made by the second push, are removed 16 to 19 steps after the last
// one, and travel as INT8 and BFLOAT16.
inline constexpr size_t kAdmittedTable = 1;
// One row for each bucket, by Adagrad.
inline constexpr size_t kCappedTable = 2;
inline constexpr size_t kRowsTables = 3;
inline constexpr uint64_t kRowsExpireAfter = 16;
// So long that a row is not swept at once.
inline constexpr uint64_t kRowsSweepPeriod = kRowsExpireAfter / 4;

// Each element of a row's gradient where a job counts: what a push takes off by
// SGD. INT8 has it exactly: as the greatest number there, it is not rounded up.
inline constexpr float kRowsUnit = 127;

// Examples of a batch.
inline constexpr uint64_t kRowsBatch = 5;

struct RowsJob {
  // As text.
  std::string consistency;
  bool by_ticket = false;
  uint64_t steps = 1;
  // From one checkpoint to the next.
  uint64_t save_every = 7;
};

// The declaration, as text.
std::string RowsDeclaration(const RowsJob& job);

// Rows that every batch uses, of each table.
std::vector<uint64_t> RowsOfAll();
// Rows that no batch but this one uses, of "counted" and "capped".
std::vector<uint64_t> RowsOfOne(size_t table, uint64_t batch);
// All rows of a batch; of "admitted" also some of batches before it.
std::vector<uint64_t> RowsOf(size_t table, uint64_t batch);

// The gradient of a job that computes, [ids, row_length], at `values`.
std::vector<float> RowGradients(absl::Span<const uint64_t> ids, uint64_t batch,
                                absl::Span<const float> values);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_FAULTS_ROWS_JOB_H_

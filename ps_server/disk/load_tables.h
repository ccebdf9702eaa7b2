// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_DISK_LOAD_TABLES_H_
#define HOLDFAST_PS_SERVER_DISK_LOAD_TABLES_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/checkpoint/data_file.h"
#include "common/job/ids.h"
#include "ps_server/table/embedding_table.h"

namespace holdfast {

// What to do while a checkpoint is read.
struct Reading {
  // Called from time to time; an error ends the reading.
  absl::FunctionRef<absl::Status()> go_on;
  // In bytes; `done` counts those that have been read.
  std::atomic<uint64_t>* total;
  std::atomic<uint64_t>* done;
};

// Loads the rows and candidates of the table's buckets into `table`, which must
// be empty, and sets its version to that of the checkpoint in `folder`. Errors:
// FAILED_PRECONDITION when the checkpoint lacks the table, or has it with rows
// of another length, or when the rows do not fit in the table's memory; those
// of CheckpointReader::ReadRows, and of EmbeddingTable::Load.
absl::Status ResumeTable(CheckpointReader* reader, const std::string& folder,
                         const Reading& reading, EmbeddingTable* table);

// Whether the checkpoint has a table of the declared name and row length.
bool HasTable(const CheckpointReader& reader,
              const proto::EmbeddingTable& declared);

// For a new job: loads the rows, without candidates, of a table for which
// HasTable is true. They get step 0, count 0, and the slots of the checkpoint
// or first ones. From a bucket with more rows than max_rows allows, the most
// recently touched are taken and, among rows of one step, those with the
// highest ids.
// Errors: as ResumeTable.
absl::Status WarmStartTable(CheckpointReader* reader, const std::string& folder,
                            bool with_slots, const Reading& reading,
                            EmbeddingTable* table);

// The number of bytes that either of the functions above reads.
uint64_t BytesToLoad(const CheckpointReader& reader,
                     const EmbeddingTable& table);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_LOAD_TABLES_H_

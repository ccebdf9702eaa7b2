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

// How the reading of a checkpoint is watched.
struct Reading {
  // Called from time to time; an error ends the reading.
  absl::FunctionRef<absl::Status()> go_on;
  // The number of bytes to read, and the number of bytes that have been read.
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
// HasTable is true. The rows get step 0, count 0, and their slots in the
// checkpoint if `with_slots`, otherwise first slots. If a bucket has more rows
// than max_rows allows, the rows that were touched most recently are loaded
// and, among rows of the same step, those with the highest ids.
// Errors: as ResumeTable.
absl::Status WarmStartTable(CheckpointReader* reader, const std::string& folder,
                            bool with_slots, const Reading& reading,
                            EmbeddingTable* table);

// The number of bytes that ResumeTable or WarmStartTable reads.
uint64_t BytesToLoad(const CheckpointReader& reader,
                     const EmbeddingTable& table);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_LOAD_TABLES_H_

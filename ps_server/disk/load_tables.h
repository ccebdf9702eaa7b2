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

// What a reader of a checkpoint does beside reading.
struct Reading {
  // Asked now and then whether to go on.
  absl::FunctionRef<absl::Status()> go_on;
  // In bytes; `done` counts what has been read.
  std::atomic<uint64_t>* total;
  std::atomic<uint64_t>* done;
};

// Loads the rows and candidates of the table's buckets into the table, which is
// empty, and sets its version to that of the checkpoint, which lies in
// `folder`. Errors: FAILED_PRECONDITION when the checkpoint lacks the table, or
// has it with other rows, or when they do not fit in the table's memory; those
// of CheckpointReader::ReadRows, and of EmbeddingTable::Load.
absl::Status ResumeTable(CheckpointReader* reader, const std::string& folder,
                         const Reading& reading, EmbeddingTable* table);

// Whether the checkpoint has a table of that name whose rows have as many
// values.
bool HasTable(const CheckpointReader& reader,
              const proto::EmbeddingTable& declared);

// For a new job: loads the rows, without candidates, of a table for which
// HasTable holds. They have step 0 and count 0, and the slots of the checkpoint
// or first ones. Of a bucket with more rows than max_rows allows, those are
// taken that were touched last, of one step those of the highest ids.
// Errors: as above.
absl::Status WarmStartTable(CheckpointReader* reader, const std::string& folder,
                            bool with_slots, const Reading& reading,
                            EmbeddingTable* table);

// Bytes that either of them reads.
uint64_t BytesToLoad(const CheckpointReader& reader,
                     const EmbeddingTable& table);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_DISK_LOAD_TABLES_H_

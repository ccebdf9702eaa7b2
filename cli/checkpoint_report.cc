// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_report.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/units.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/tensor/digest.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/shape.h"
#include "common/tensor/table_digest.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<proto::CheckpointName>;

bool Contains(const Names& names, const std::string& folder) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) {
    return FolderName(name) == folder;
  });
}

uint64_t DataBytes(const proto::Manifest& manifest) {
  uint64_t bytes = 0;
  for (const proto::DataFile& file : manifest.files()) bytes += file.size();
  return bytes;
}

// Total size of the files in a folder, which a job may be changing.
uint64_t FolderBytes(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const uint64_t size = entry->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

// When the checkpoint was completed or, if it is not complete, its folder was
// last changed.
std::string TimeWritten(const std::string& folder) {
  std::error_code error;
  auto time = fs::last_write_time(folder + "/MANIFEST", error);
  if (error) time = fs::last_write_time(folder, error);
  if (error) return "";
  // Before C++20, std::filesystem has a clock of its own.
  const auto age = fs::file_time_type::clock::now() - time;
  return absl::FormatTime(
      "%Y-%m-%d %H:%M:%S",
      DateNow() -
          absl::FromChrono(
              std::chrono::duration_cast<std::chrono::nanoseconds>(age)),
      absl::LocalTimeZone());
}

// The checkpoints that have a folder or are in the journal.
absl::StatusOr<Names> AllNames(const CheckpointDirectory& directory,
                               const proto::Journal& journal) {
  auto names = directory.List();
  if (!names.ok()) return names.status();
  for (const proto::CheckpointName& name : journal.checkpoints()) {
    if (!Contains(*names, FolderName(name))) names->push_back(name);
  }
  return names;
}

std::string RestartLine(const absl::StatusOr<proto::Journal>& journal,
                        const std::string& used) {
  if (absl::IsNotFound(journal.status())) {
    return "There is no journal: no job goes on from here.";
  }
  if (!journal.ok()) return "The journal is damaged: no job starts here.";
  if (journal->finished()) {
    return "The job is finished: a restart does not train any further.";
  }
  if (journal->checkpoints().empty()) {
    return "There is no durable checkpoint: a restart begins with the first "
           "values.";
  }
  if (used.empty()) {
    return "All checkpoints of the journal are damaged: a restart fails.";
  }
  return absl::StrCat("A restart goes on from ", used, ".");
}

// Such as "/job:worker/task:1".
std::string TaskString(const proto::TaskId& task) {
  return absl::StrCat("/job:", task.job(), "/task:", task.index());
}

std::string PushesString(const proto::PushCounts& pushes) {
  return absl::StrCat(pushes.accepted(), " accepted, ", pushes.stale(),
                      " stale, ", pushes.duplicate(), " duplicate, ",
                      pushes.fenced(), " fenced, ", pushes.aborted(),
                      " aborted; ", pushes.not_finite(),
                      " of the accepted not finite");
}

class Lines {
 public:
  explicit Lines(std::ostream& out) : out_(out) {}
  void Add(absl::string_view name, absl::string_view value) {
    out_ << absl::StreamFormat("%-12s %s\n", name, value);
  }

 private:
  std::ostream& out_;
};

void PrintPosition(const proto::Position& position, bool by_ticket,
                   Lines* lines) {
  lines->Add("step", absl::StrCat(position.step()));
  lines->Add("updates", absl::StrCat(position.updates()));
  if (position.loss_scale() > 0) {
    lines->Add("loss scale",
               absl::StrCat(position.loss_scale(), ", for ",
                            position.steps_at_loss_scale(), " steps"));
  }
  if (by_ticket) {
    std::string tickets = absl::StrCat("next ", position.next_ticket());
    if (!position.returned_tickets().empty()) {
      absl::StrAppend(&tickets, ", to be handed out again ",
                      absl::StrJoin(position.returned_tickets(), " "));
    }
    lines->Add("tickets", tickets);
  }
  lines->Add("examples", absl::StrCat(position.examples()));
  lines->Add("pushes", PushesString(position.pushes()));
  for (const proto::WorkerCounts& worker : position.workers()) {
    lines->Add("worker",
               absl::StrCat(TaskString(worker.worker()), ": ", worker.pushes(),
                            " pushes, ", worker.examples(), " examples"));
  }
}

absl::StatusOr<std::string> DigestOf(CheckpointReader* reader) {
  std::vector<const proto::Variable*> variables;
  for (const auto& variable : reader->manifest().declaration().variables()) {
    variables.push_back(&variable);
  }
  std::sort(variables.begin(), variables.end(),
            [](const auto* a, const auto* b) { return a->name() < b->name(); });
  constexpr uint64_t kChunk = 4 * kCheckpointBlockBytes / sizeof(float);
  std::vector<float> chunk;
  VariablesDigest digest;
  for (const proto::Variable* variable : variables) {
    digest.Begin(*variable);
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable->shape()));
    const uint64_t size = elements;
    for (uint64_t begin = 0; begin < size; begin += kChunk) {
      chunk.resize(std::min(kChunk, size - begin));
      HOLDFAST_RETURN_IF_ERROR(
          reader->Read(variable->name(), 0, begin, absl::MakeSpan(chunk)));
      digest.Add(chunk);
    }
  }
  return digest.HexDigest();
}

absl::StatusOr<std::string> DigestOf(CheckpointReader* reader,
                                     const proto::EmbeddingTable& table) {
  std::vector<std::string> digests;
  auto digest = std::make_unique<RowsDigest>();
  const auto end_buckets_before = [&](uint32_t bucket) {
    while (digests.size() < bucket) {
      digests.push_back(digest->HexDigest());
      digest = std::make_unique<RowsDigest>();
    }
  };
  const absl::Status read =
      reader->ReadRows(table.name(), {}, [&](const StoredRow& row) {
        end_buckets_before(row.bucket);
        if (!row.is_candidate) {
          digest->Add(row.id, row.floats.first(table.row_length()));
        }
        return absl::OkStatus();
      });
  if (!read.ok()) return read;
  end_buckets_before(kRowBuckets);
  return DigestOfTable(table, digests);
}

uint64_t RowsOfTables(const CheckpointReader& reader) {
  uint64_t rows = 0;
  for (const auto& table : reader.manifest().declaration().tables()) {
    rows += reader.CountRows(table.name(), {}).rows;
  }
  return rows;
}

bool HasTables(const CheckpointReader& reader) {
  return !reader.manifest().declaration().tables().empty();
}

// Describes which rows of tables the checkpoint's own files contain.
std::string KindOf(const proto::Manifest& manifest) {
  if (manifest.chain().empty()) return "all rows";
  return absl::StrCat("changes since ", manifest.previous().step());
}

// Maps the folder of each checkpoint that another one needs to the newest
// checkpoint that needs it.
std::map<std::string, std::string> NeededBy(
    const CheckpointDirectory& directory, const Names& kept) {
  std::map<std::string, std::string> needed_by;
  for (const proto::CheckpointName& name : kept) {
    // A damaged checkpoint needs nothing; the list says that it is damaged.
    const auto manifest = directory.ReadManifest(name);
    if (!manifest.ok()) continue;
    for (const proto::ChainLink& link : manifest->chain()) {
      needed_by[FolderName(link.checkpoint())] = FolderName(name);
    }
  }
  return needed_by;
}

}  // namespace

absl::StatusOr<proto::Journal> JournalOf(const CheckpointDirectory& directory) {
  auto journal = directory.ReadJournal();
  if (absl::IsNotFound(journal.status())) {
    return absl::NotFoundError(
        absl::StrCat(directory.path(),
                     ": is not the checkpoint directory of a job, which has a "
                     "JOURNAL; give the --checkpoint_dir of the ps (`holdfast "
                     "local`: RUN_DIR/checkpoints)"));
  }
  return journal;
}

absl::Status ListCheckpoints(const CheckpointDirectory& directory,
                             std::ostream& out) {
  const absl::StatusOr<proto::Journal> journal = JournalOf(directory);
  const proto::Journal known = journal.ok() ? *journal : proto::Journal();
  const Names durable(known.checkpoints().begin(), known.checkpoints().end());
  HOLDFAST_ASSIGN_OR_RETURN(const auto names, AllNames(directory, known));

  struct Row {
    std::string folder;
    proto::CheckpointName name;
    absl::Status status;
    // Rows of tables; absent if it has none.
    std::optional<uint64_t> rows;
    std::string kind;
  };
  std::vector<Row> rows;
  std::string used;
  bool any_tables = false;
  for (const proto::CheckpointName& name : names) {
    const auto reader = CheckpointReader::Open(directory, name);
    Row& row = rows.emplace_back();
    row.folder = FolderName(name);
    row.name = name;
    row.status = reader.status();
    if (reader.ok() && HasTables(**reader)) {
      row.rows = RowsOfTables(**reader);
      row.kind = KindOf((*reader)->manifest());
    }
    any_tables = any_tables || row.rows.has_value();
  }
  // A restart uses the newest durable checkpoint that is not damaged.
  for (const proto::CheckpointName& name : durable) {
    for (const Row& row : rows) {
      if (row.folder == FolderName(name) && row.status.ok()) used = row.folder;
    }
  }

  // Columns that most jobs do not need.
  const auto table_columns = [any_tables](const std::string& rows,
                                          const std::string& kind) {
    return any_tables ? absl::StrFormat(" %12s  %-20s", rows, kind) : "";
  };
  const std::map<std::string, std::string> needed_by =
      NeededBy(directory, durable);
  if (!rows.empty()) {
    out << absl::StreamFormat(
        "%-22s %10s %5s %10s%s  %-19s  %s\n", "checkpoint", "step", "gen",
        "size", table_columns("rows", "kind"), "written", "state");
  }
  for (const Row& row : rows) {
    const std::string path = directory.Folder(row.name);
    std::string state;
    if (absl::IsNotFound(row.status)) {
      state = Contains(durable, row.folder) ? "missing" : "not complete";
    } else if (!row.status.ok()) {
      state = absl::StrCat("damaged: ", row.status.message());
    } else if (!journal.ok()) {
      state = "complete";
    } else if (!Contains(durable, row.folder)) {
      const auto needed = needed_by.find(row.folder);
      state = needed == needed_by.end()
                  ? "complete, not in the journal"
                  : absl::StrCat("needed by ", needed->second);
    } else {
      state = row.folder == used ? "durable, the newest" : "durable";
    }
    out << absl::StreamFormat(
        "%-22s %10d %5d %10s%s  %-19s  %s\n", row.folder, row.name.step(),
        row.name.generation(), BytesText(FolderBytes(path)),
        table_columns(row.rows.has_value() ? absl::StrCat(*row.rows) : "",
                      row.kind),
        TimeWritten(path), state);
  }
  if (journal.ok()) {
    out << "Generation " << journal->generation() << ". ";
  }
  out << RestartLine(journal, used) << "\n";
  return journal.status();
}

absl::Status InspectCheckpoint(const CheckpointDirectory& directory,
                               const proto::CheckpointName& name,
                               std::ostream& out) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                            CheckpointReader::Open(directory, name));
  const proto::Manifest& manifest = reader->manifest();
  const proto::Declaration& declaration = manifest.declaration();
  HOLDFAST_ASSIGN_OR_RETURN(const auto digest, DigestOf(reader.get()));

  Lines lines(out);
  lines.Add("checkpoint", FolderName(name));
  lines.Add("finished", manifest.finished() ? "yes" : "no");
  lines.Add("saved by", absl::StrCat(manifest.files_size(), " ps"));
  lines.Add("size", BytesText(DataBytes(manifest)));
  if (!declaration.tables().empty()) lines.Add("tables", KindOf(manifest));
  for (const proto::ChainLink& link : manifest.chain()) {
    lines.Add("needs", absl::StrCat(FolderName(link.checkpoint()), ", ",
                                    BytesText(link.bytes())));
  }
  PrintPosition(manifest.position(), declaration.examples() == proto::BY_TICKET,
                &lines);
  lines.Add("consistency", declaration.consistency().ShortDebugString());
  for (int i = 0; i < declaration.optimizers_size(); ++i) {
    lines.Add(absl::StrCat("optimizer ", i),
              declaration.optimizers(i).ShortDebugString());
  }
  for (const proto::Variable& variable : declaration.variables()) {
    const uint32_t slots = reader->num_slots(variable.name());
    const std::string rule =
        variable.has_moving_average()
            ? absl::StrCat("moving average ",
                           variable.moving_average().momentum())
            : absl::StrCat("optimizer ", variable.optimizer());
    lines.Add("variable",
              absl::StrCat(variable.name(), " ",
                           proto::DataType_Name(variable.dtype()), " ",
                           ShapeString(variable.shape()), ", ", rule, ", ",
                           slots, slots == 1 ? " slot" : " slots"));
  }
  for (const proto::EmbeddingTable& table : declaration.tables()) {
    const StoredCounts counts = reader->CountRows(table.name(), {});
    HOLDFAST_ASSIGN_OR_RETURN(const auto of_table,
                              DigestOf(reader.get(), table));
    lines.Add(
        "table",
        absl::StrCat(table.name(), " FLOAT32 [*,", table.row_length(),
                     "], optimizer ", table.optimizer(), ", ", counts.rows,
                     " rows, ", counts.candidates, " candidates, ",
                     BytesText(counts.bytes), ", digest ", of_table));
  }
  lines.Add("digest", digest);
  return absl::OkStatus();
}

absl::Status VerifyCheckpoints(const CheckpointDirectory& directory,
                               const std::optional<proto::CheckpointName>& name,
                               std::ostream& out) {
  int damaged = 0;
  Names names;
  Names needed;
  if (name.has_value()) {
    names = needed = {*name};
  } else {
    const absl::StatusOr<proto::Journal> journal = JournalOf(directory);
    if (!journal.ok()) {
      if (!absl::IsDataLoss(journal.status())) return journal.status();
      out << journal.status().message() << "\n";
      ++damaged;
    } else {
      needed.assign(journal->checkpoints().begin(),
                    journal->checkpoints().end());
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        auto all,
        AllNames(directory, journal.ok() ? *journal : proto::Journal()));
    names = std::move(all);
  }
  for (const proto::CheckpointName& each : names) {
    const std::string folder = FolderName(each);
    const auto reader = CheckpointReader::Open(directory, each);
    const absl::Status status =
        reader.ok() ? (*reader)->Verify() : reader.status();
    if (status.ok()) {
      out << folder << ": whole, "
          << BytesText(DataBytes((*reader)->manifest()));
      if (HasTables(**reader)) {
        out << ", " << RowsOfTables(**reader) << " rows of tables";
      }
      out << "\n";
    } else if (absl::IsNotFound(status) && !Contains(needed, folder)) {
      out << folder << ": not complete\n";
    } else if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
      out << folder << ": " << status.message() << "\n";
      ++damaged;
    } else {
      return status;
    }
  }
  if (damaged == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(directory.path(), ": ", damaged,
                                          damaged == 1 ? " is" : " are",
                                          " damaged or missing"));
}

}  // namespace holdfast

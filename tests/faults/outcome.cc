// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/outcome.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/tensor/digest.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/shape.h"
#include "tests/faults/rows_job.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

// A row of an embedding table, or a candidate.
struct Row {
  bool is_candidate;
  uint64_t id;
  uint64_t step;
  uint32_t count;
  // Values and slots.
  std::vector<float> floats;
};

struct End {
  std::vector<proto::Variable> variables;
  std::vector<std::vector<float>> values;
  // Indexed by table; rows are in the order of buckets and ids.
  std::vector<std::vector<Row>> rows;
  proto::Position position;
};

absl::StatusOr<End> ReadAll(CheckpointReader* reader) {
  const proto::Manifest& manifest = reader->manifest();
  End end;
  end.position = manifest.position();
  for (const proto::Variable& variable : manifest.declaration().variables()) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    std::vector<float> values(elements);
    HOLDFAST_RETURN_IF_ERROR(reader->Read(variable.name(), /*slot=*/0,
                                          /*begin=*/0, absl::MakeSpan(values)));
    end.variables.push_back(variable);
    end.values.push_back(std::move(values));
  }
  for (const auto& table : manifest.declaration().tables()) {
    std::vector<Row>& rows = end.rows.emplace_back();
    const absl::Status read =
        reader->ReadRows(table.name(), {}, [&](const StoredRow& row) {
          rows.push_back({row.is_candidate,
                          row.id,
                          row.step,
                          row.count,
                          {row.floats.begin(), row.floats.end()}});
          return absl::OkStatus();
        });
    if (!read.ok()) return read;
  }
  return end;
}

absl::StatusOr<End> ReadEnd(const std::string& checkpoint_dir, uint64_t steps) {
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto directory,
      CheckpointDirectory::OpenToRead(checkpoint_dir, PosixFileSystem()));
  HOLDFAST_ASSIGN_OR_RETURN(const auto journal, directory.ReadJournal());
  if (!journal.finished() || journal.checkpoints().empty()) {
    return absl::DataLossError("the journal does not say that the job is done");
  }
  const proto::CheckpointName& last = *journal.checkpoints().rbegin();
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader,
                            CheckpointReader::Open(directory, last));
  const uint64_t reached = reader->manifest().position().step();
  if (last.step() != steps || reached != steps) {
    return absl::DataLossError(
        absl::StrCat("the end is at step ", last.step(), ", not at ", steps));
  }
  return ReadAll(reader.get());
}

std::string DigestOfItsVariables(const End& end) {
  return DigestOfVariables(
      end.variables, std::vector<absl::Span<const float>>(end.values.begin(),
                                                          end.values.end()));
}

std::string DigestOf(const End& end) {
  const std::string variables = DigestOfItsVariables(end);
  if (end.rows.empty()) return variables;
  Sha256 all;
  all.Update(variables);
  for (const std::vector<Row>& rows : end.rows) {
    all.Update(absl::StrCat(rows.size()));
    for (const Row& row : rows) {
      all.Update(absl::StrCat(" ", row.is_candidate, " ", row.id, " ", row.step,
                              " ", row.count, " "));
      all.Update(row.floats.data(), row.floats.size() * sizeof(float));
    }
  }
  return all.HexDigest();
}

// Checks that all elements are `expected`.
absl::Status CheckCounts(const std::string& name,
                         absl::Span<const float> counts, float expected) {
  uint64_t wrong = 0;
  std::string first;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == expected) continue;
    if (wrong++ < 5) absl::StrAppend(&first, " [", i, "] = ", counts[i]);
  }
  if (wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(wrong, " of ", counts.size(),
                                          " elements of \"", name,
                                          "\" are not ", expected, ":", first));
}

// Checks the rows of one table after `pushes` pushes of a job that counts.
class RowsCheck {
 public:
  RowsCheck(size_t table, const std::vector<Row>& rows, uint64_t pushes)
      : table_(table), rows_(rows), pushes_(pushes) {
    for (const uint64_t id : RowsOfAll()) of_all_.insert(id);
    for (uint64_t batch = 0; batch < pushes; ++batch) {
      for (const uint64_t id : RowsOfOne(table, batch)) of_one_.insert(id);
    }
  }

  absl::Status Run() {
    for (const Row& row : rows_) {
      const std::string wrong = WhatIsWrong(row);
      if (!wrong.empty()) {
        Note(absl::StrCat("row ", row.id, " (candidate: ", row.is_candidate,
                          ", step ", row.step, ", count ", row.count,
                          "): ", wrong));
      }
      if (of_all_.count(row.id) > 0) {
        ++found_of_all_;
      } else if (row.is_candidate) {
        ++found_candidates_;
      } else {
        ++found_others_;
        buckets_.insert(BucketOfRow(row.id));
      }
    }
    CheckSet();
    if (wrong_ == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(wrong_, " mistakes in table ", table_, ": ", first_));
  }

 private:
  void Note(const std::string& wrong) {
    if (wrong_++ < 5) absl::StrAppend(&first_, wrong, "; ");
  }

  // Checks which rows exist.
  void CheckSet() {
    if (found_of_all_ != of_all_.size()) {
      Note("a row that every push had is missing");
    }
    switch (table_) {
      case kCountedTable:
        if (found_others_ != of_one_.size()) {
          Note(absl::StrCat("of ", of_one_.size(), " other rows there are ",
                            found_others_));
        }
        break;
      case kAdmittedTable:
        if (found_others_ == 0) Note("no other row was created");
        if (found_candidates_ == 0) Note("there is no candidate");
        break;
      case kCappedTable: {
        std::set<uint32_t> used;
        for (const uint64_t id : of_one_) used.insert(BucketOfRow(id));
        if (found_others_ != used.size() || buckets_ != used) {
          Note(absl::StrCat("of ", used.size(), " buckets with one row each ",
                            buckets_.size(), " have ", found_others_));
        }
        break;
      }
    }
  }

  std::string WhatIsWrong(const Row& row) const {
    const bool of_all = of_all_.count(row.id) > 0;
    if (of_all && row.count != pushes_) return "every push had it";
    if (table_ == kAdmittedTable) return WhatIsWrongAsAdmitted(row);
    if (row.is_candidate) return "there are no candidates here";
    if (!of_all && of_one_.count(row.id) == 0) return "no push had it";
    if (!of_all && row.count != 1) return "one push had it";
    if (table_ == kCountedTable) {
      return Differ(row, 0, 4, -kRowsUnit * row.count, 0);
    }
    // Adagrad with a constant g: after n updates the accumulator is n g^2, and
    // update n has subtracted g / sqrt(n g^2).
    float taken = 0;
    for (uint32_t n = 1; n <= row.count; ++n) taken += 1 / std::sqrt(n);
    const std::string wrong = Differ(row, 0, 2, -taken, 1e-4f * taken);
    if (!wrong.empty()) return wrong;
    return Differ(row, 2, 4, kRowsUnit * kRowsUnit * row.count, 0);
  }

  std::string WhatIsWrongAsAdmitted(const Row& row) const {
    if (row.step + kRowsExpireAfter + kRowsSweepPeriod - 1 <= pushes_) {
      return "it has expired";
    }
    if (row.is_candidate != (row.count < 2)) return "two pushes make a row";
    if (row.is_candidate) return "";
    // The gradient of the first push was dropped.
    return Differ(row, 0, 3, -kRowsUnit * (row.count - 1), 0);
  }

  static std::string Differ(const Row& row, size_t begin, size_t end,
                            float expected, float tolerance) {
    for (size_t i = begin; i < end; ++i) {
      if (i < row.floats.size() &&
          std::abs(row.floats[i] - expected) <= tolerance) {
        continue;
      }
      return absl::StrCat("element ", i, " is ",
                          i < row.floats.size() ? row.floats[i] : NAN, ", not ",
                          expected);
    }
    return "";
  }

  const size_t table_;
  const std::vector<Row>& rows_;
  const uint64_t pushes_;
  std::set<uint64_t> of_all_;
  std::set<uint64_t> of_one_;
  uint64_t found_of_all_ = 0;
  // Rows that are neither of those.
  uint64_t found_others_ = 0;
  uint64_t found_candidates_ = 0;
  std::set<uint32_t> buckets_;
  uint64_t wrong_ = 0;
  std::string first_;
};

absl::Status CheckBooked(const End& end, uint64_t pushes, uint64_t examples) {
  const uint64_t booked = end.position.pushes().accepted();
  if (booked == pushes && end.position.examples() == examples) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(booked, " pushes and ", end.position.examples(),
                   " examples are booked, not ", pushes, " and ", examples));
}

}  // namespace

absl::StatusOr<std::string> DigestAtEnd(const std::string& checkpoint_dir,
                                        const std::string& result_file,
                                        uint64_t steps) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto end, ReadEnd(checkpoint_dir, steps));
  if (std::filesystem::exists(result_file)) {
    const std::string variables = DigestOfItsVariables(end);
    const std::string told = StringIn(ReadResult(result_file), "digest");
    if (told != variables) {
      return absl::DataLossError(
          absl::StrCat("the digest of the last checkpoint's variables is ",
                       variables, ", the result's ", told));
    }
  }
  return DigestOf(end);
}

absl::StatusOr<std::string> DigestOfCheckpoint(const std::string& folder) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::OpenFolder(
                                                   folder, PosixFileSystem()));
  HOLDFAST_ASSIGN_OR_RETURN(const auto all, ReadAll(reader.get()));
  return DigestOf(all);
}

absl::Status CheckOnes(const std::string& checkpoint_dir, uint64_t pushes,
                       uint64_t positions) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto end, ReadEnd(checkpoint_dir, pushes));
  if (end.values.size() != 2 || end.values[1].size() != positions) {
    return absl::DataLossError("this is not a checkpoint of OnesModel");
  }
  absl::Status status = CheckCounts("pushes", end.values[0], pushes);
  if (status.ok()) status = CheckCounts("seen", end.values[1], 1);
  if (!status.ok()) return status;
  return CheckBooked(end, pushes, positions);
}

absl::Status CheckSteps(const std::string& checkpoint_dir, uint64_t steps) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto end, ReadEnd(checkpoint_dir, steps));
  return CheckCounts("pushes", end.values[0], steps);
}

absl::Status CheckRows(const std::string& checkpoint_dir, uint64_t pushes) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto end, ReadEnd(checkpoint_dir, pushes));
  if (end.values.size() != 1 || end.rows.size() != kRowsTables) {
    return absl::DataLossError("this is not a checkpoint of rows_worker");
  }
  absl::Status status = CheckCounts("dense", end.values[0], pushes);
  for (size_t table = 0; status.ok() && table < kRowsTables; ++table) {
    status = RowsCheck(table, end.rows[table], pushes).Run();
  }
  if (!status.ok()) return status;
  return CheckBooked(end, pushes, pushes * kRowsBatch);
}

}  // namespace holdfast

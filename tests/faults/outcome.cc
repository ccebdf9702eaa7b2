#include "tests/faults/outcome.h"

#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/digest.h"
#include "common/shape.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

struct End {
  std::vector<proto::Variable> variables;
  std::vector<std::vector<float>> values;
  proto::Position position;
};

absl::StatusOr<End> ReadAll(CheckpointReader* reader) {
  const proto::Manifest& manifest = reader->manifest();
  End end;
  end.position = manifest.position();
  for (const proto::Variable& variable : manifest.declaration().variables()) {
    const auto elements = NumElements(variable.shape());
    if (!elements.ok()) return elements.status();
    std::vector<float> values(*elements);
    const absl::Status read = reader->Read(variable.name(), /*slot=*/0,
                                           /*begin=*/0, absl::MakeSpan(values));
    if (!read.ok()) return read;
    end.variables.push_back(variable);
    end.values.push_back(std::move(values));
  }
  return end;
}

absl::StatusOr<End> ReadEnd(const std::string& checkpoint_dir, uint64_t steps) {
  const auto directory =
      CheckpointDirectory::OpenToRead(checkpoint_dir, PosixFileSystem());
  if (!directory.ok()) return directory.status();
  const auto journal = directory->ReadJournal();
  if (!journal.ok()) return journal.status();
  if (!journal->finished() || journal->checkpoints().empty()) {
    return absl::DataLossError("the journal does not say that the job is done");
  }
  const proto::CheckpointName& last = *journal->checkpoints().rbegin();
  const auto reader = CheckpointReader::Open(*directory, last);
  if (!reader.ok()) return reader.status();
  const uint64_t reached = (*reader)->manifest().position().step();
  if (last.step() != steps || reached != steps) {
    return absl::DataLossError(
        absl::StrCat("the end is at step ", last.step(), ", not at ", steps));
  }
  return ReadAll(reader->get());
}

std::string DigestOf(const End& end) {
  return DigestOfVariables(
      end.variables, std::vector<absl::Span<const float>>(end.values.begin(),
                                                          end.values.end()));
}

// Tests that all elements are `expected`.
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

}  // namespace

absl::StatusOr<std::string> DigestAtEnd(const std::string& checkpoint_dir,
                                        const std::string& result_file,
                                        uint64_t steps) {
  const auto end = ReadEnd(checkpoint_dir, steps);
  if (!end.ok()) return end.status();
  const std::string digest = DigestOf(*end);
  if (std::filesystem::exists(result_file)) {
    const std::string told = StringIn(ReadResult(result_file), "digest");
    if (told != digest) {
      return absl::DataLossError(absl::StrCat(
          "the last checkpoint's digest is ", digest, ", the result's ", told));
    }
  }
  return digest;
}

absl::StatusOr<std::string> DigestOfCheckpoint(const std::string& folder) {
  const auto reader = CheckpointReader::OpenFolder(folder, PosixFileSystem());
  if (!reader.ok()) return reader.status();
  const auto all = ReadAll(reader->get());
  if (!all.ok()) return all.status();
  return DigestOf(*all);
}

absl::Status CheckOnes(const std::string& checkpoint_dir, uint64_t pushes,
                       uint64_t positions) {
  const auto end = ReadEnd(checkpoint_dir, pushes);
  if (!end.ok()) return end.status();
  if (end->values.size() != 2 || end->values[1].size() != positions) {
    return absl::DataLossError("this is no checkpoint of OnesModel");
  }
  absl::Status status = CheckCounts("pushes", end->values[0], pushes);
  if (status.ok()) status = CheckCounts("seen", end->values[1], 1);
  if (!status.ok()) return status;
  const uint64_t booked = end->position.pushes().accepted();
  if (booked != pushes || end->position.examples() != positions) {
    return absl::DataLossError(
        absl::StrCat(booked, " pushes and ", end->position.examples(),
                     " examples are booked, not ", pushes, " and ", positions));
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(const std::string& checkpoint_dir, uint64_t steps) {
  const auto end = ReadEnd(checkpoint_dir, steps);
  if (!end.ok()) return end.status();
  return CheckCounts("pushes", end->values[0], steps);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/data/libsvm_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/find_files.h"
#include "common/data/id_hash.h"
#include "common/data/parse_number.h"

namespace holdfast {
namespace {

// The number of bytes between progress reports.
constexpr int64_t kTellBytes = 4 << 20;
constexpr size_t kMaxLineTold = 60;

std::string Quote(absl::string_view text) {
  return absl::StrCat("\"", EscapedText(text.substr(0, kMaxLineTold)),
                      text.size() > kMaxLineTold ? "..." : "", "\"");
}

absl::Status LineError(const std::string& path, int64_t line,
                       absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot read libsvm file \"", path, "\": line ", line, ": ", what));
}

absl::Status FeatureError(absl::string_view part) {
  return absl::InvalidArgumentError(absl::StrCat(
      Quote(part),
      " is not a feature, \"index:value\", with a whole number from 0 to below "
      "2^64 and a number in the range of float32"));
}

// The line that begins at `offset`, without the line end.
absl::string_view LineAt(absl::Span<const uint8_t> bytes, int64_t offset) {
  const char* const begin =
      reinterpret_cast<const char*>(bytes.data()) + offset;
  const size_t left = bytes.size() - offset;
  const void* const end = std::memchr(begin, '\n', left);
  return {begin, end == nullptr ? left : static_cast<const char*>(end) - begin};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> LibsvmDataset::Open(
    const proto::Libsvm& config, const Options& options) {
  const absl::StatusOr<std::vector<std::string>> paths =
      FindFiles({config.files().begin(), config.files().end()});
  if (!paths.ok()) return paths.status();
  std::unique_ptr<LibsvmDataset> dataset(new LibsvmDataset(config, options));
  dataset->spec_.shape = {0};
  dataset->spec_.id_fields = {{"features", 1, kNumbersAsIds}};
  dataset->spec_.id_values = true;
  dataset->spec_.num_targets = dataset->targets_ ? 1 : 0;
  Sha256 sha;
  sha.Update("lines of libsvm\n");
  for (const std::string& path : *paths) {
    HOLDFAST_RETURN_IF_ERROR(dataset->ReadFile(path, options.reading, &sha));
  }
  HOLDFAST_RETURN_IF_ERROR(dataset->Finish(paths->front(), sha));
  return dataset;
}

absl::Status LibsvmDataset::ReadFile(const std::string& path,
                                     const ReadingOptions& options,
                                     Sha256* sha) {
  HOLDFAST_ASSIGN_OR_RETURN(auto read, ReadFileBytes(path, "libsvm", options));
  files_.push_back({path, std::move(read), num_examples()});
  const FileBytes& file = files_.back().file;
  const int64_t size = file.bytes.size();
  (file.mapped ? footprint_.mapped : footprint_.memory) += size;
  if (options.progress != nullptr) {
    options.progress->Begin(absl::StrCat("\"", path, "\""), size);
  }
  int64_t told = 0;
  int64_t told_examples = num_examples();
  int64_t line = 1;
  for (int64_t offset = 0; offset < size; ++line) {
    const absl::string_view text = LineAt(file.bytes, offset);
    absl::Status status = TakeLine(text, offset, line, sha);
    if (!status.ok()) {
      // A line that contradicts another is not skipped, because either of the
      // two may be wrong.
      const bool fits_no_other = absl::IsFailedPrecondition(status);
      status = LineError(path, line, status.message());
      if (!skip_bad_rows_ || fits_no_other) return status;
      skipped_.Add(status);
    }
    offset += static_cast<int64_t>(text.size()) + 1;
    if (options.progress != nullptr && offset - told >= kTellBytes) {
      options.progress->Add(
          offset - std::exchange(told, offset),
          num_examples() - std::exchange(told_examples, num_examples()));
    }
  }
  return absl::OkStatus();
}

absl::Status LibsvmDataset::TakeLine(absl::string_view text, int64_t offset,
                                     int64_t line, Sha256* sha) {
  LibsvmLine parts(text);
  if (parts.text().empty()) return absl::OkStatus();
  int64_t ids = 0;
  uint64_t index = 0;
  float value = 0;
  LibsvmLine::Result result;
  while ((result = parts.Next(&index, &value)) ==
         LibsvmLine::Result::kFeature) {
    ++ids;
  }
  if (result == LibsvmLine::Result::kFault) return FeatureError(parts.part());
  if (targets_) {
    const absl::StatusOr<float> target = Target(parts.label());
    if (!target.ok()) return target.status();
  } else if (!unlabeled_) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto label, Class(parts.label()));
    HOLDFAST_RETURN_IF_ERROR(TakeLabel(label, line));
  }
  int64_t& max_ids = spec_.id_fields[0].max_ids;
  max_ids = std::max(max_ids, ids);
  offsets_.push_back(offset);
  const uint64_t size = parts.text().size();
  sha->Update(&size, sizeof(size));
  sha->Update(parts.text());
  return absl::OkStatus();
}

absl::Status LibsvmDataset::TakeLabel(int32_t label, int64_t line) {
  const bool is_minus_one = label < 0;
  const bool is_other = !is_minus_one && label != 1;
  const Place& against = is_minus_one ? other_than_sign_ : minus_one_;
  if ((is_minus_one || is_other) && against.line > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the label ", label,
        " contradicts that in "
        "line ",
        against.line, " of \"", against.path,
        "\": labels are -1 and 1, or whole numbers from 0; a number to be "
        "predicted needs `targets: true`"));
  }
  const std::string& path = files_.back().path;
  if (is_minus_one && minus_one_.line == 0) minus_one_ = {path, line};
  if (is_other && other_than_sign_.line == 0) other_than_sign_ = {path, line};
  if (std::max(label, 0) > greatest_label_) {
    greatest_label_ = std::max(label, 0);
    greatest_label_place_ = absl::StrCat("label ", greatest_label_, " in line ",
                                         line, " of \"", path, "\"");
  }
  return absl::OkStatus();
}

absl::Status LibsvmDataset::Finish(const std::string& first_path,
                                   const Sha256& sha) {
  if (offsets_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read libsvm file \"", first_path, "\"",
        files_.size() > 1 ? absl::StrCat(" and ", files_.size() - 1, " more")
                          : "",
        ": there are no examples",
        skipped_.count() > 0
            ? absl::StrCat(" without errors; the first error: ",
                           skipped_.because().front())
            : ""));
  }
  if (!unlabeled_ && !targets_) spec_.num_classes = greatest_label_ + 1;
  offsets_.shrink_to_fit();
  footprint_.memory += static_cast<int64_t>(offsets_.size() * sizeof(int64_t));
  digest_ = sha.HexDigest();
  return absl::OkStatus();
}

absl::StatusOr<int32_t> LibsvmDataset::Class(absl::string_view text) const {
  double number = 0;
  if (!ParseFinite(text, &number) || number != std::floor(number) ||
      number < -1 || number >= std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        text.empty() ? "the label is missing: a line must begin with it"
                     : absl::StrCat("the label ", Quote(text),
                                    " is not a class: labels are whole numbers "
                                    "from 0, or -1 and 1; a number to be "
                                    "predicted needs `targets: true`"));
  }
  return static_cast<int32_t>(number);
}

absl::StatusOr<float> LibsvmDataset::Target(absl::string_view text) const {
  double number = 0;
  const bool is_number = ParseFinite(text, &number);
  const float target = static_cast<float>(number);
  if (is_number && std::isfinite(target)) return target;
  return absl::InvalidArgumentError(
      text.empty() ? "the target is missing: a line must begin with it"
                   : absl::StrCat("the target ", Quote(text),
                                  " is not a number in the range of float32"));
}

absl::Status LibsvmDataset::Read(int64_t index, const ExampleMemory& to) const {
  // The last file whose first example is not after `index`.
  const auto behind = std::upper_bound(
      files_.begin(), files_.end(), index,
      [](int64_t example, const File& file) { return example < file.first; });
  const File& file = *std::prev(behind);
  // The line was valid when the file was opened, so it must have changed.
  const auto changed = [&file] {
    return absl::DataLossError(
        absl::StrCat("\"", file.path,
                     "\" was changed while it was read; to change data under "
                     "a running job write another file and rename it"));
  };
  LibsvmLine parts(LineAt(file.file.bytes, offsets_[index]));
  if (targets_) {
    const absl::StatusOr<float> target = Target(parts.label());
    if (!target.ok()) return changed();
    to.targets[0] = *target;
  } else if (!unlabeled_) {
    const absl::StatusOr<int32_t> label = Class(parts.label());
    if (!label.ok() || *label > greatest_label_) return changed();
    *to.label = std::max(*label, 0);
  }
  const uint32_t max_ids = static_cast<uint32_t>(spec_.max_ids());
  uint32_t count = 0;
  while (true) {
    uint64_t id = 0;
    float value = 0;
    const LibsvmLine::Result result = parts.Next(&id, &value);
    if (result == LibsvmLine::Result::kEnd) break;
    if (result == LibsvmLine::Result::kFault || count == max_ids) {
      return changed();
    }
    to.ids[count] = id;
    to.id_values[count++] = value;
  }
  to.id_counts[0] = count;
  return absl::OkStatus();
}

}  // namespace holdfast

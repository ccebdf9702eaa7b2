// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_schema.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/portable_math.h"
#include "common/base/printable_text.h"
#include "common/base/status_macros.h"
#include "common/data/id_hash.h"
#include "common/data/parse_number.h"
#include "common/tensor/shape.h"

namespace holdfast {
namespace {

using ColumnKind = proto::CsvColumn::KindCase;

constexpr int64_t kMostInputs = 10'000'000;
constexpr size_t kNamesTold = 20;

// Whether `name` matches `pattern`, in which * stands for any characters.
bool Matches(absl::string_view pattern, absl::string_view name) {
  size_t star = absl::string_view::npos;
  size_t p = 0, n = 0, after_star = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string Quote(absl::string_view text) {
  constexpr size_t kTold = 60;
  const bool is_long = text.size() > kTold;
  return absl::StrCat("\"", EscapedText(text.substr(0, kTold)),
                      is_long ? "..." : "", "\"");
}

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool IsInput(ColumnKind kind) {
  return kind == ColumnKind::kNumber || kind == ColumnKind::kCategory;
}

}  // namespace

double CsvLog1p(double number) { return PortableLog1p(std::max(number, 0.0)); }

absl::StatusOr<CsvSchema> CsvSchema::Create(
    const proto::Csv& config, absl::Span<const absl::string_view> header,
    absl::Span<const std::string> names) {
  CsvSchema schema;
  const bool has_header = !config.has_header() || config.header();
  schema.has_names_ = has_header || !names.empty();
  if (!names.empty() && names.size() != header.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the row has ", header.size(), " cells instead of ",
                     names.size(), ", ", names.front(), " to ", names.back()));
  }
  for (size_t i = 0; i < header.size(); ++i) {
    schema.names_.push_back(!names.empty() ? names[i]
                            : has_header   ? std::string(header[i])
                                           : absl::StrCat(i));
  }
  schema.missing_.assign(config.missing().begin(), config.missing().end());
  std::vector<bool> used(header.size());
  for (const proto::CsvColumn& column : config.columns()) {
    HOLDFAST_RETURN_IF_ERROR(
        schema.AddColumn(column, schema.has_names_, &used));
  }
  schema.spec_.shape.assign(config.shape().begin(), config.shape().end());
  HOLDFAST_RETURN_IF_ERROR(schema.PlaceUses());
  return schema;
}

absl::Status CsvSchema::PlaceUses() {
  // Inputs, labels, targets, weights, ids: the order of the kinds' numbers.
  std::stable_sort(uses_.begin(), uses_.end(), [](const Use& a, const Use& b) {
    const auto rank = [](const Use& use) {
      return IsInput(use.kind) ? 0 : int{use.kind};
    };
    return rank(a) < rank(b);
  });
  int64_t inputs = 0;
  int64_t ids = 0;
  for (Use& use : uses_) {
    use.cell = cells_++;
    if (IsInput(use.kind)) {
      use.input = inputs;
      inputs += use.width;
      ++first_answer_;
      if (inputs > kMostInputs) return TooManyInputs();
    }
    if (use.kind == ColumnKind::kIds) {
      cells_ += 2 * use.max_ids - (use.counted ? 0 : 1);
      use.input = ids;
      ids += use.max_ids;
      spec_.id_fields.push_back(
          {FieldName(use.column), use.max_ids, use.origin});
      if (ids > kMostInputs) return TooManyIds();
    } else {
      ++first_ids_;
    }
    if (use.kind == ColumnKind::kTarget) ++spec_.num_targets;
    if (use.kind == ColumnKind::kWeight) spec_.weighted = true;
    if (use.kind == ColumnKind::kLabel) has_label_ = true;
    if (use.kind == ColumnKind::kLabel && !use.values.empty()) {
      spec_.num_classes = use.values.size();
    }
  }
  if (spec_.shape.empty()) spec_.shape = {inputs};
  if (spec_.input_size() == inputs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data: the shape ", ShapeString(spec_.shape), " takes ",
                   spec_.input_size(), " numbers; the columns make ", inputs));
}

absl::Status CsvSchema::TooManyInputs() const {
  const Use& widest = *std::max_element(
      uses_.begin(), uses_.end(),
      [](const Use& a, const Use& b) { return a.width < b.width; });
  return Error(
      widest,
      absl::StrCat(
          "an example has more than ", kMostInputs, " inputs, ", widest.width,
          " of them from this column: a category has one for each of its "
          "values; declare columns of so many values as `ids`, for a model "
          "with an embedding table"));
}

absl::Status CsvSchema::TooManyIds() const {
  const Use& widest = *std::max_element(
      uses_.begin(), uses_.end(),
      [](const Use& a, const Use& b) { return a.max_ids < b.max_ids; });
  return Error(widest,
               absl::StrCat("an example may have more than ", kMostInputs,
                            " ids, the sum of `max_ids` over all columns; this "
                            "one has the largest, ",
                            widest.max_ids, ": reduce it"));
}

absl::StatusOr<std::vector<int64_t>> FindCsvColumns(
    const proto::CsvColumn& column, absl::Span<const std::string> names,
    bool header) {
  const int64_t columns = names.size();
  std::vector<int64_t> found;
  for (const std::string& pattern : column.name()) {
    const size_t before = found.size();
    for (int64_t i = 0; header && i < columns; ++i) {
      if (Matches(pattern, names[i])) found.push_back(i);
    }
    if (found.size() > before) continue;
    const size_t told = std::min(names.size(), kNamesTold);
    return absl::InvalidArgumentError(
        absl::StrCat("there is no column ", Quote(pattern), "; there are ",
                     absl::StrJoin(names.first(told), ", "),
                     told < names.size() ? ", ..." : ""));
  }
  for (const proto::CsvColumn::Range& range : column.range()) {
    const int64_t first = range.first();
    const int64_t last = range.has_last() ? range.last() : first;
    if (last >= columns) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no column ", last,
                       ", counted from 0: a row "
                       "has ",
                       columns, " cells; is the delimiter right?"));
    }
    for (int64_t i = first; i <= last; ++i) found.push_back(i);
  }
  return found;
}

CsvSchema::Use CsvSchema::UseOf(const proto::CsvColumn& column) const {
  Use use;
  use.kind = column.kind_case();
  const auto names = [&use](const auto& values) {
    for (const std::string& value : values) {
      use.values.emplace(value, static_cast<int32_t>(use.values.size()));
    }
  };
  switch (column.kind_case()) {
    case ColumnKind::kNumber: {
      const proto::CsvColumn::Number& number = column.number();
      use.width = 1;
      use.mean = number.mean();
      if (number.has_stddev()) use.stddev = number.stddev();
      if (number.has_missing()) use.missing = number.missing();
      use.log1p = number.log1p();
      break;
    }
    case ColumnKind::kCategory: {
      const proto::CsvColumn::Category& category = column.category();
      names(category.values());
      use.count = use.values.empty() ? int64_t{category.count()}
                                     : static_cast<int64_t>(use.values.size());
      use.other = category.other();
      use.width = use.count + (use.other == proto::CsvColumn::OWN ? 1 : 0);
      break;
    }
    case ColumnKind::kLabel:
      names(column.label().values());
      use.count = use.values.empty()
                      ? int64_t{std::numeric_limits<int32_t>::max()}
                      : static_cast<int64_t>(use.values.size());
      break;
    case ColumnKind::kIds: {
      const proto::CsvColumn::Ids& ids = column.ids();
      use.ids_are_numbers = ids.numbers();
      if (!ids.separator().empty()) use.separator = ids.separator()[0];
      if (ids.has_max_ids()) use.max_ids = ids.max_ids();
      use.other = ids.missing();
      use.counted = use.max_ids > 1 || use.other == proto::CsvColumn::NONE;
      break;
    }
    case ColumnKind::kTarget:
    case ColumnKind::kWeight:
    case ColumnKind::KIND_NOT_SET:
      break;
  }
  return use;
}

absl::Status CsvSchema::AddColumn(const proto::CsvColumn& column, bool header,
                                  std::vector<bool>* used) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto found,
                            FindCsvColumns(column, names_, header));
  const Use use = UseOf(column);
  if (found.size() > 1 &&
      (use.kind == ColumnKind::kLabel || use.kind == ColumnKind::kWeight)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an example has one ",
                     use.kind == ColumnKind::kLabel ? "label" : "weight",
                     ", but the columns ", Quote(names_[found[0]]), " and ",
                     Quote(names_[found[1]]), " both give one"));
  }
  for (const int64_t place : found) {
    if ((*used)[place]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "column ", Quote(names_[place]), " is named twice in the job file"));
    }
    (*used)[place] = true;
    uses_.push_back(use);
    uses_.back().column = place;
    if (use.kind == ColumnKind::kIds) {
      const std::string group = column.ids().group().empty()
                                    ? FieldName(place)
                                    : column.ids().group();
      uses_.back().seed = IdSeed(group);
      uses_.back().origin =
          use.ids_are_numbers ? kNumbersAsIds : HashedIdOrigin(group);
    }
  }
  return absl::OkStatus();
}

std::string CsvSchema::FieldName(int64_t column) const {
  return has_names_ ? names_[column] : absl::StrCat("column ", column);
}

absl::Status CsvSchema::Error(const Use& use, absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat("column ", Quote(names_[use.column]), ": ", what));
}

bool CsvSchema::IsMissing(absl::string_view text) const {
  return text.empty() ||
         std::find(missing_.begin(), missing_.end(), text) != missing_.end();
}

float CsvSchema::Packed(const Use& use, double value) {
  if (use.log1p) value = CsvLog1p(value);
  return static_cast<float>((value - use.mean) / use.stddev);
}

std::optional<double> CsvSchema::Number(const Use& use,
                                        absl::string_view text) const {
  double value = 0;
  if (ParseFinite(text, &value)) {
    // A number is valid only if it is not one of the user's marks of missing
    // values, such as -999.
    if (missing_.empty() || !IsMissing(text)) return value;
  }
  return IsMissing(text) ? use.missing : std::nullopt;
}

absl::Status CsvSchema::RefuseNumber(const Use& use,
                                     absl::string_view text) const {
  const std::optional<double> value = Number(use, text);
  if (!value.has_value() && IsMissing(text)) {
    return Error(use,
                 use.kind == ColumnKind::kNumber
                     ? "the value is missing; set a substitute with "
                       "`number { missing: ... }`, or leave such rows out "
                       "with `skip_bad_rows: true`"
                     : "the value is missing, so there is nothing to learn; "
                       "leave such rows out with `skip_bad_rows: true`");
  }
  if (!value.has_value()) {
    return Error(use, absl::StrCat(Quote(text),
                                   " is not a finite number; if it marks a "
                                   "missing one, add it to `missing`"));
  }
  if (!std::isfinite(Packed(use, *value))) {
    return Error(use,
                 absl::StrCat(Quote(text), " is beyond the range of float32"));
  }
  return Error(use, absl::StrCat("the weight ", Quote(text), " is below 0"));
}

std::optional<int32_t> CsvSchema::Category(const Use& use,
                                           absl::string_view text) const {
  int64_t value = -1;
  const bool is_missing = IsMissing(text);
  if (!is_missing && !use.values.empty()) {
    const auto found = use.values.find(text);
    if (found != use.values.end()) return found->second;
  } else if (!is_missing && ParseWhole(text, &value) && value >= 0 &&
             value < use.count) {
    return static_cast<int32_t>(value);
  }
  switch (use.other) {
    case proto::CsvColumn::NONE:
      return -1;
    case proto::CsvColumn::OWN:
      return static_cast<int32_t>(use.count);
    default:
      return std::nullopt;
  }
}

absl::Status CsvSchema::RefuseCategory(const Use& use,
                                       absl::string_view text) const {
  const bool is_missing = IsMissing(text);
  return Error(
      use,
      absl::StrCat(
          is_missing ? "the value is missing" : Quote(text),
          is_missing ? ""
          : use.values.empty()
              ? absl::StrCat(" is not a whole number from 0 to ", use.count - 1)
              : absl::StrCat(" is none of the ", use.count, " values"),
          "; set how to treat it with `category { other: ... }`, or leave "
          "such rows out with `skip_bad_rows: true`"));
}

std::optional<int32_t> CsvSchema::Label(const Use& use,
                                        absl::string_view text) const {
  if (!use.values.empty()) {
    const auto found = use.values.find(text);
    if (found != use.values.end()) return found->second;
    return std::nullopt;
  }
  int64_t value = -1;
  if (!ParseWhole(text, &value) || value < 0 || value >= use.count) {
    return std::nullopt;
  }
  return static_cast<int32_t>(value);
}

absl::Status CsvSchema::RefuseLabel(const Use& use,
                                    absl::string_view text) const {
  if (!use.values.empty()) {
    return Error(
        use, absl::StrCat("the label ", Quote(text), " is none of the ",
                          use.count, " classes of `label { values: ... }`"));
  }
  return Error(
      use, absl::StrCat("the label ", Quote(text),
                        " is not a class: classes are whole numbers from 0, or "
                        "the names in `label { values: ... }`; a number to be "
                        "predicted is a `target`"));
}

CsvSchema::IdFault CsvSchema::PackIds(const Use& use, absl::string_view text,
                                      uint32_t* cells) const {
  uint32_t* const ids = cells + (use.counted ? 1 : 0);
  int64_t count = 0;
  const auto add = [&](uint64_t id) {
    ids[2 * count] = static_cast<uint32_t>(id);
    ids[2 * count + 1] = static_cast<uint32_t>(id >> 32);
    ++count;
  };
  while (!text.empty()) {
    absl::string_view part = text;
    text = {};
    if (use.separator.has_value()) {
      const size_t end = part.find(*use.separator);
      if (end != absl::string_view::npos) text = part.substr(end + 1);
      part = absl::StripAsciiWhitespace(part.substr(0, end));
    }
    if (IsMissing(part)) continue;
    if (count == use.max_ids) return IdFault::kTooMany;
    uint64_t id = 0;
    if (!use.ids_are_numbers) {
      id = IdHash(use.seed, part);
    } else if (!ParseWhole(part, &id)) {
      return IdFault::kNoNumber;
    }
    add(id);
  }
  if (count == 0) {
    if (use.other == proto::CsvColumn::REFUSE) return IdFault::kMissing;
    if (use.other == proto::CsvColumn::OWN) add(IdHash(use.seed, ""));
  }
  if (use.counted) *cells = static_cast<uint32_t>(count);
  std::fill(ids + 2 * count, ids + 2 * use.max_ids, 0);
  return IdFault::kNone;
}

absl::Status CsvSchema::RefuseIds(const Use& use,
                                  absl::string_view text) const {
  std::vector<uint32_t> ignored(1 + 2 * use.max_ids);
  switch (PackIds(use, text, ignored.data())) {
    case IdFault::kNoNumber:
      return Error(
          use, absl::StrCat(Quote(text), " is not a whole number from 0 to ",
                            std::numeric_limits<uint64_t>::max(),
                            "; without `numbers` an id may be any text"));
    case IdFault::kTooMany:
      return Error(use, absl::StrCat("there are more than ", use.max_ids,
                                     use.max_ids == 1 ? " id" : " ids", " in ",
                                     Quote(text), "; raise max_ids"));
    case IdFault::kMissing:
    case IdFault::kNone:
      break;
  }
  return Error(use,
               "the id is missing; set how to treat it with `ids { missing: "
               "... }`, or leave such rows out with `skip_bad_rows: true`");
}

bool CsvSchema::PackCell(const Use& use, absl::string_view text,
                         uint32_t* cell) const {
  if (use.kind == ColumnKind::kIds) {
    return PackIds(use, text, cell) == IdFault::kNone;
  }
  if (use.kind == ColumnKind::kCategory || use.kind == ColumnKind::kLabel) {
    const std::optional<int32_t> place =
        use.kind == ColumnKind::kLabel ? Label(use, text) : Category(use, text);
    if (place.has_value()) *cell = static_cast<uint32_t>(*place);
    return place.has_value();
  }
  const std::optional<double> value = Number(use, text);
  if (!value.has_value()) return false;
  const float number = Packed(use, *value);
  *cell = BitsOf(number);
  return std::isfinite(number) &&
         !(use.kind == ColumnKind::kWeight && number < 0);
}

absl::Status CsvSchema::Refuse(const Use& use, absl::string_view text) const {
  switch (use.kind) {
    case ColumnKind::kLabel:
      return RefuseLabel(use, text);
    case ColumnKind::kCategory:
      return RefuseCategory(use, text);
    case ColumnKind::kIds:
      return RefuseIds(use, text);
    default:
      return RefuseNumber(use, text);
  }
}

absl::Status CsvSchema::Pack(absl::Span<const absl::string_view> row,
                             absl::Span<uint32_t> cells) const {
  for (const Use& use : uses_) {
    const absl::string_view text = row[use.column];
    if (!PackCell(use, text, &cells[use.cell])) return Refuse(use, text);
  }
  return absl::OkStatus();
}

void CsvSchema::Unpack(const uint32_t* cells, const ExampleMemory& to) const {
  float* const input = to.input.data();
  for (int64_t i = 0; i < first_answer_; ++i) {
    const Use& use = uses_[i];
    if (use.kind == ColumnKind::kNumber) {
      input[use.input] = FloatOf(cells[i]);
      continue;
    }
    std::fill_n(input + use.input, use.width, 0.0f);
    const int32_t place = static_cast<int32_t>(cells[i]);
    if (place >= 0) input[use.input + place] = 1;
  }
  const uint32_t* answer = cells + first_answer_;
  if (has_label_) *to.label = static_cast<int32_t>(*answer++);
  for (int64_t i = 0; i < spec_.num_targets; ++i) {
    to.targets[i] = FloatOf(*answer++);
  }
  if (spec_.weighted) *to.weight = FloatOf(*answer);
  const int64_t uses = uses_.size();
  for (int64_t i = first_ids_; i < uses; ++i) {
    const Use& use = uses_[i];
    const uint32_t* stored = cells + use.cell;
    const uint32_t count = use.counted ? *stored++ : 1;
    to.id_counts[i - first_ids_] = count;
    uint64_t* const ids = &to.ids[use.input];
    for (uint32_t k = 0; k < count; ++k) {
      ids[k] = stored[2 * k] | uint64_t{stored[2 * k + 1]} << 32;
    }
  }
}

int32_t CsvSchema::LabelOf(const uint32_t* cells) const {
  return has_label_ ? static_cast<int32_t>(cells[first_answer_]) : -1;
}

}  // namespace holdfast

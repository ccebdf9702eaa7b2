// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_CSV_SCHEMA_H_
#define HOLDFAST_COMMON_DATA_CSV_SCHEMA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/data/example_source.h"
#include "proto/job.pb.h"

namespace holdfast {

// The columns that `column` refers to, in its order, in a file whose columns
// have these names. Without `header` columns are known only by their positions.
// Errors: INVALID_ARGUMENT for a column that does not exist.
absl::StatusOr<std::vector<int64_t>> FindCsvColumns(
    const proto::CsvColumn& column, absl::Span<const std::string> names,
    bool header);

// The value that replaces `number` if CsvColumn.Number.log1p is set: log(1 +
// max(number, 0)).
double CsvLog1p(double number);

// The columns of a CSV file as a model uses them: how rows of the file become
// rows of 32-bit cells (row_store.h), and how these become examples.
//
// The cells of a row: the inputs in their order, a number as a float, and a
// category as its index among the column's inputs, or -1; then the label as an
// int32 or the targets as floats, then the weight as a float, then the ids by
// field: if their number may vary, that number in a cell, and for each possible
// id two cells, the lower half first; unused ones are 0.
//
// Immutable, thus thread-safe.
class CsvSchema {
 public:
  // `header` has the names of the columns or, if config.header is false, the
  // first row. `names` are the column names of a format whose files have no
  // header; empty if it has none.
  // Errors: INVALID_ARGUMENT when a column of `config` does not exist or is
  // used twice, the shape does not fit the inputs, or the numbers of columns
  // and names differ.
  static absl::StatusOr<CsvSchema> Create(
      const proto::Csv& config, absl::Span<const absl::string_view> header,
      absl::Span<const std::string> names = {});

  // The number of columns in a row of the file.
  int64_t columns() const { return names_.size(); }
  // "age", or "3" if columns have no names; for messages.
  const std::string& name(int64_t column) const { return names_[column]; }
  // What an example consists of. Lacks the number of classes if labels are
  // integers.
  const ExampleSpec& spec() const { return spec_; }
  // The number of cells in a row of the store.
  int64_t cells() const { return cells_; }

  // Converts a row of the file into one of the store.
  // Errors: INVALID_ARGUMENT, with the column.
  absl::Status Pack(absl::Span<const absl::string_view> row,
                    absl::Span<uint32_t> cells) const;

  // Converts a row of the store into an example.
  void Unpack(const uint32_t* cells, const ExampleMemory& to) const;
  // The label in a row of the store; -1 if there are no labels.
  int32_t LabelOf(const uint32_t* cells) const;

 private:
  using Places = absl::flat_hash_map<std::string, int32_t>;
  // A column that is used, and how.
  struct Use {
    proto::CsvColumn::KindCase kind = proto::CsvColumn::KIND_NOT_SET;
    int64_t column = 0;
    // The first cell in a row of the store.
    int64_t cell = 0;
    // The index of the column's first input, and the number of its inputs.
    int64_t input = 0;
    int64_t width = 0;
    // For numbers.
    double mean = 0;
    double stddev = 1;
    std::optional<double> missing;
    // For categories and labels: the names, unless they are integers below
    // `count`.
    Places values;
    int64_t count = 0;
    // What to do with a value that is not among `values`, or with ids that are
    // missing.
    proto::CsvColumn::Other other = proto::CsvColumn::REFUSE;
    // For numbers.
    bool log1p = false;
    // For ids: the seed of their hash, unless they are numbers;
    // IdField::origin; what separates ids in a cell; the maximum number of ids
    // in a cell; and whether their number is stored (`counted`). `input` is the
    // index of the column's first id among the ids of an example.
    uint64_t seed = 0;
    bool ids_are_numbers = false;
    std::string origin;
    std::optional<char> separator;
    int64_t max_ids = 1;
    bool counted = false;
  };
  // The reason why a cell of ids does not fit.
  enum class IdFault { kNone, kMissing, kNoNumber, kTooMany };

  absl::Status AddColumn(const proto::CsvColumn& column, bool header,
                         std::vector<bool>* used);
  Use UseOf(const proto::CsvColumn& column) const;
  // Assigns the uses their positions in a row of the store and in an example.
  absl::Status PlaceUses();
  // Errors that name the column with the largest part in them.
  absl::Status TooManyInputs() const;
  absl::Status TooManyIds() const;
  // The name for an IdField: without a header "column 3".
  std::string FieldName(int64_t column) const;
  absl::Status Error(const Use& use, absl::string_view what) const;
  bool IsMissing(absl::string_view text) const;
  // The value of a cell, or its substitute if it is missing; a number is
  // returned before mean and stddev are applied. Nullopt if the cell does not
  // fit.
  std::optional<double> Number(const Use& use, absl::string_view text) const;
  std::optional<int32_t> Category(const Use& use, absl::string_view text) const;
  std::optional<int32_t> Label(const Use& use, absl::string_view text) const;
  // A number as it is stored; not finite if it is outside the range of float32.
  static float Packed(const Use& use, double value);
  // Returns false if the text does not fit; Refuse then returns the reason.
  // They are separate so that rows that fit do not cost an absl::Status per
  // cell.
  bool PackCell(const Use& use, absl::string_view text, uint32_t* cell) const;
  IdFault PackIds(const Use& use, absl::string_view text,
                  uint32_t* cells) const;
  absl::Status Refuse(const Use& use, absl::string_view text) const;
  absl::Status RefuseNumber(const Use& use, absl::string_view text) const;
  absl::Status RefuseCategory(const Use& use, absl::string_view text) const;
  absl::Status RefuseLabel(const Use& use, absl::string_view text) const;
  absl::Status RefuseIds(const Use& use, absl::string_view text) const;

  std::vector<std::string> names_;
  bool has_names_ = false;
  std::vector<std::string> missing_;
  ExampleSpec spec_;
  int64_t cells_ = 0;
  // Inputs in their order, then label or targets, then the weight, then ids.
  std::vector<Use> uses_;
  int64_t first_answer_ = 0;
  int64_t first_ids_ = 0;
  bool has_label_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CSV_SCHEMA_H_

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

// The columns that `column` means in a file whose columns have these names, in
// its order. Without `header` they are known by their places alone.
// Errors: INVALID_ARGUMENT for one that is not there.
absl::StatusOr<std::vector<int64_t>> FindCsvColumns(
    const proto::CsvColumn& column, absl::Span<const std::string> names,
    bool header);

// What stands in place of a number where CsvColumn.Number.log1p is set:
// log(1 + max(number, 0)).
double CsvLog1p(double number);

// What the columns of a CSV file are to a model, found in a file: how its rows
// become rows of 32-bit cells (row_store.h), and these become examples.
//
// Cells of a row: those of the inputs in their order, a float for a number and
// for a category its place among the inputs that are its own, or -1; then the
// label as an int32 or the targets as floats, then the weight as a float, then
// the ids by field: where their number may vary, that number in a cell, and for
// each id that there may be, two cells, the lower half first; those that are
// not used are 0.
//
// Immutable, thus thread-safe.
class CsvSchema {
 public:
  // `header` has the names of the columns, or, where config.header is false,
  // the first row. `names`: those of a format whose files have no header;
  // empty: there are none. Errors: INVALID_ARGUMENT when a column of `config`
  // is not there or is used twice, the shape is not that of the inputs, or
  // there are not as many columns as names.
  static absl::StatusOr<CsvSchema> Create(
      const proto::Csv& config, absl::Span<const absl::string_view> header,
      absl::Span<const std::string> names = {});

  // In a row of the file.
  int64_t columns() const { return names_.size(); }
  // "age", or "3" where they have none; for messages.
  const std::string& name(int64_t column) const { return names_[column]; }
  // Without the number of classes, where labels are integers.
  const ExampleSpec& spec() const { return spec_; }
  // In a row of the store.
  int64_t cells() const { return cells_; }

  // Writes the row of the store. Errors: INVALID_ARGUMENT, with the column.
  absl::Status Pack(absl::Span<const absl::string_view> row,
                    absl::Span<uint32_t> cells) const;

  // The example of a row of the store.
  void Unpack(const uint32_t* cells, const ExampleMemory& to) const;
  // Of a row of the store; -1 where there are no labels.
  int32_t LabelOf(const uint32_t* cells) const;

 private:
  using Places = absl::flat_hash_map<std::string, int32_t>;
  // A column that is used, and what for.
  struct Use {
    proto::CsvColumn::KindCase kind = proto::CsvColumn::KIND_NOT_SET;
    int64_t column = 0;
    // Of the row in the store.
    int64_t cell = 0;
    // Among the inputs: the first, and how many.
    int64_t input = 0;
    int64_t width = 0;
    // Of numbers.
    double mean = 0;
    double stddev = 1;
    std::optional<double> missing;
    // Of categories and labels: the names, unless they are integers below
    // `count`.
    Places values;
    int64_t count = 0;
    // Also of ids, where missing.
    proto::CsvColumn::Other other = proto::CsvColumn::REFUSE;
    // Of numbers.
    bool log1p = false;
    // Of ids: what they are hashed with, unless they are numbers; what
    // separates them in a cell, and how many there may be; whether their number
    // is stored; IdField::origin. `input` is the first one's place among the
    // ids of an example.
    uint64_t seed = 0;
    bool ids_are_numbers = false;
    std::string origin;
    std::optional<char> separator;
    int64_t max_ids = 1;
    bool counted = false;
  };
  // Why a cell of ids does not fit.
  enum class IdFault { kNone, kMissing, kNoNumber, kTooMany };

  absl::Status AddColumn(const proto::CsvColumn& column, bool header,
                         std::vector<bool>* used);
  Use UseOf(const proto::CsvColumn& column) const;
  // Gives the uses their places in a row of the store and in an example.
  absl::Status PlaceUses();
  // As IdField has it: without a header "column 3".
  std::string FieldName(int64_t column) const;
  absl::Status Error(const Use& use, absl::string_view what) const;
  bool IsMissing(absl::string_view text) const;
  // What is written in a cell, or what stands for it where it is missing; of
  // numbers before mean and stddev. None: it does not fit.
  std::optional<double> Number(const Use& use, absl::string_view text) const;
  std::optional<int32_t> Category(const Use& use, absl::string_view text) const;
  std::optional<int32_t> Label(const Use& use, absl::string_view text) const;
  // A number as it is stored; not finite where it is beyond float32.
  static float Packed(const Use& use, double value);
  // Returns false where the text does not fit, for a reason that Refuse tells.
  // Apart, so that rows that do fit cost no absl::Status for each cell.
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

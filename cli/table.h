// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_TABLE_H_
#define HOLDFAST_CLI_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace holdfast {

// Lines of aligned columns. Thread-compatible.
class Table {
 public:
  struct Column {
    std::string title;
    // True for numbers, false for words.
    bool right_aligned = false;
    // Minimum width in characters; the column grows to its widest cell.
    size_t least_width = 0;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Adds a row. `cells`: one per column; an empty cell stands for an unknown
  // value.
  void Add(std::vector<std::string> cells) {
    rows_.push_back(std::move(cells));
  }

  // The titles and the rows, with columns two spaces apart. Columns without any
  // known value are left out, and unknown values are shown as "-".
  std::vector<std::string> Lines() const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TABLE_H_

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
    // Numbers are; words are not.
    bool right_aligned = false;
    // Of characters; it gets wider where a cell is.
    size_t least_width = 0;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // `cells`, printable, by column; an empty one is not known.
  void Add(std::vector<std::string> cells) {
    rows_.push_back(std::move(cells));
  }

  // The titles and the rows, columns two spaces apart. A column of which
  // nothing is known in any row is left out, and "-" stands for a cell that is
  // not known.
  std::vector<std::string> Lines() const;

 private:
  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLI_TABLE_H_

// SPDX-License-Identifier: Apache-2.0
#include "common/data/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/data/csv_blocks.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Rows = std::vector<std::vector<std::string>>;

std::string Write(const std::string& content) {
  const std::string path = testing::TempDir() + "/test.csv";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

// All rows up to the end or the error, with the lines at which they begin.
absl::Status ReadAll(const std::string& content, Rows* rows,
                     std::vector<int64_t>* lines = nullptr,
                     char delimiter = ',') {
  const auto reader = CsvReader::Open(Write(content), delimiter);
  if (!reader.ok()) return reader.status();
  std::vector<absl::string_view> cells;
  while (true) {
    const auto more = (*reader)->Next(&cells);
    if (!more.ok()) return more.status();
    if (!*more) return absl::OkStatus();
    rows->emplace_back(cells.begin(), cells.end());
    if (lines != nullptr) lines->push_back((*reader)->line());
  }
}

Rows RowsOf(const std::string& content, char delimiter = ',') {
  Rows rows;
  const absl::Status status = ReadAll(content, &rows, nullptr, delimiter);
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

TEST(CsvReaderTest, ReadsRows) {
  const Rows two = {{"a", "b"}, {"1", "2"}};
  EXPECT_EQ(RowsOf("a,b\n1,2\n"), two);
  EXPECT_EQ(RowsOf("a,b\n1,2"), two);
  EXPECT_EQ(RowsOf("a,b\r\n1,2\r\n"), two);
  EXPECT_EQ(RowsOf("\xef\xbb\xbf"
                   "a,b\n\n  \n1,2\n\n"),
            two);
  EXPECT_EQ(RowsOf(" a\t, b \n1 ,2"), two);
  EXPECT_EQ(RowsOf("a\tb\n1\t2\n", '\t'), two);
  EXPECT_EQ(RowsOf("\"a\"\tb\n1\t\"2\"\n", '\t'), two);
  EXPECT_EQ(RowsOf("\t\n", '\t'), Rows{});
  EXPECT_EQ(RowsOf("1\t\t3\n", '\t'), (Rows{{"1", "", "3"}}));
  EXPECT_EQ(RowsOf(",\n"), (Rows{{"", ""}}));
  EXPECT_EQ(RowsOf("a,,\n"), (Rows{{"a", "", ""}}));
  EXPECT_EQ(RowsOf(""), Rows{});
  EXPECT_EQ(RowsOf("5'10\",b\n"), (Rows{{"5'10\"", "b"}}));
}

TEST(CsvReaderTest, ReadsQuotedCells) {
  EXPECT_EQ(RowsOf("\"a,b\",\"c\nd\"\r\n"), (Rows{{"a,b", "c\nd"}}));
  EXPECT_EQ(RowsOf("\"say \"\"hi\"\"\",\"\"\"\"\n"),
            (Rows{{"say \"hi\"", "\""}}));
  EXPECT_EQ(RowsOf(" \" a \" ,x\n"), (Rows{{" a ", "x"}}));
  EXPECT_EQ(RowsOf("\"\",x"), (Rows{{"", "x"}}));
  EXPECT_EQ(RowsOf("x,\"\""), (Rows{{"x", ""}}));
}

TEST(CsvReaderTest, CountsLines) {
  Rows rows;
  std::vector<int64_t> lines;
  ASSERT_TRUE(ReadAll("a\n\n\"b\n\nc\"\nd\n", &rows, &lines).ok());
  EXPECT_THAT(lines, ElementsAre(1, 3, 6));
}

TEST(CsvReaderTest, SaysWhatIsWrong) {
  const auto error = [](const std::string& content) {
    Rows rows;
    const absl::Status status = ReadAll(content, &rows);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error("a,b\n1,\"2\n3,4\n"),
              HasSubstr("line 2: the quote that opens cell 2 is never closed"));
  EXPECT_THAT(error("a,b\n\"1\"x,2\n"),
              HasSubstr("line 2: cell 1 continues after its closing quote"));
  EXPECT_THAT(error(std::string(CsvBlocks::kMaxRowBytes + 10, 'x')),
              HasSubstr("line 1: the row is longer than 16777216 bytes"));
}

// Rows of random lengths, at random positions of the buffer, checked against a
// writer that quotes.
TEST(CsvReaderTest, ReadsWhatIsWritten) {
  std::mt19937 random(5);
  const std::string alphabet = "ab,\"\n\r x";
  Rows rows;
  std::string content;
  while (content.size() < (3u << 20)) {
    std::vector<std::string>& row = rows.emplace_back();
    // Occasionally longer than the reader's buffer.
    const int longest = random() % 5000 == 0 ? 2000000 : 20;
    for (int cell = 0; cell < 3; ++cell) {
      std::string& text = row.emplace_back("k");
      for (int i = random() % longest; i > 0; --i) {
        text += alphabet[random() % alphabet.size()];
      }
      text += "k";
      std::string quoted = "\"";
      for (const char c : text) {
        quoted += c;
        if (c == '"') quoted += c;
      }
      const bool needed = text.find_first_of(",\"\n\r") != std::string::npos;
      absl::StrAppend(&content, cell > 0 ? "," : "",
                      needed || random() % 4 == 0 ? quoted + "\"" : text);
    }
    content += random() % 2 == 0 ? "\n" : "\r\n";
  }
  EXPECT_EQ(RowsOf(content), rows);
}

// Random bytes give rows or an error.
TEST(CsvReaderTest, TakesAnyBytes) {
  std::mt19937 random(6);
  const std::string alphabet = std::string("a1,\"\n\r \t\0\xff", 10);
  int wrong = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string content;
    for (int size = random() % 40; size > 0; --size) {
      content += alphabet[random() % alphabet.size()];
    }
    Rows rows;
    wrong += ReadAll(content, &rows).ok() ? 0 : 1;
    for (const auto& row : rows) EXPECT_FALSE(row.empty());
  }
  EXPECT_GT(wrong, 100);
  EXPECT_LT(wrong, 1900);
}

}  // namespace
}  // namespace holdfast

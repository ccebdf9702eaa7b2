// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/table_rows.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kLast = ~uint64_t{0};

// Two ps have saved rows with 2 values and 2 slots each, and a candidate.
class TableRowsTest : public ::testing::Test {
 protected:
  TableRowsTest() {
    TestSave save;
    save.name = TestName(1, 10);
    save.num_ps = 2;
    for (const uint64_t id :
         {kLast, uint64_t{5}, uint64_t{0}, uint64_t{1000}}) {
      save.entries[id] = TestRowOf(id, 3);
    }
    save.entries[7] = {4, 1, {}};
    EXPECT_EQ(SaveTestTable(directory_, save), absl::OkStatus());
    auto reader = CheckpointReader::Open(directory_, save.name);
    EXPECT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
  }

  absl::Status ReadValues(const std::vector<uint64_t>& ids,
                          std::vector<float>* values) {
    values->assign(2 * ids.size(), -1);
    return ReadRowValues(
        [&](CheckpointReader::VisitRow visit) {
          return reader_->ReadRows("user", {}, visit);
        },
        ids, /*row_length=*/2, absl::MakeSpan(*values));
  }

  FaultyFileSystem disk_;
  const CheckpointDirectory directory_ =
      *CheckpointDirectory::Open("dir", &disk_);
  std::unique_ptr<CheckpointReader> reader_;
};

TEST_F(TableRowsTest, IdsRiseAndCandidatesAreLeftOut) {
  const auto ids = ReadRowIds(reader_.get(), "user");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(*ids, ElementsAre(0, 5, 1000, kLast));
}

TEST_F(TableRowsTest, ValuesAreInTheOrderOfTheIdsThatAreAskedFor) {
  std::vector<float> values;
  for (const std::vector<uint64_t>& ids :
       {std::vector<uint64_t>{0, 5, 1000, kLast}, {5, kLast}, {1000}}) {
    ASSERT_EQ(ReadValues(ids, &values), absl::OkStatus());
    std::vector<float> expected;
    for (const uint64_t id : ids) {
      const std::vector<float> floats = TestRowOf(id, 3).floats;
      expected.insert(expected.end(), floats.begin(), floats.begin() + 2);
    }
    EXPECT_EQ(values, expected);
  }
  EXPECT_EQ(ReadValues({}, &values), absl::OkStatus());
  EXPECT_THAT(values, IsEmpty());
}

TEST_F(TableRowsTest, ErrorsOfTheReaderAreReturned) {
  const auto failing = [](CheckpointReader::VisitRow) {
    return absl::DataLossError("damaged");
  };
  std::vector<float> values(2);
  EXPECT_EQ(ReadRowValues(failing, {0}, 2, absl::MakeSpan(values)),
            absl::DataLossError("damaged"));
}

}  // namespace
}  // namespace holdfast

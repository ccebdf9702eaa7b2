// SPDX-License-Identifier: Apache-2.0

// Rows of a checkpoint through the C API, without a cluster.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c_api/holdfast.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/c_api/c_api_testing.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

// A checkpoint of step 10 with the rows of ids 0 to 19 and candidates, and one
// of step 20 with what has changed.
class CheckpointRowsTest : public ::testing::Test {
 protected:
  CheckpointRowsTest() {
    fs::remove_all(folder_);
    const auto directory =
        CheckpointDirectory::Open(folder_, PosixFileSystem());
    EXPECT_TRUE(directory.ok()) << directory.status();
    TestSave base;
    base.name = TestName(1, 10);
    base.num_ps = 2;
    for (uint64_t id = 0; id < 20; ++id) base.entries[id] = TestRowOf(id, 3);
    for (uint64_t id = 20; id < 30; ++id) base.entries[id] = {4, 1, {}};
    TestSave delta = base;
    delta.name = TestName(1, 20);
    delta.num_ps = 1;
    delta.entries[7] = TestRowOf(7, 19);
    delta.entries[kLast] = TestRowOf(kLast, 12);
    delta.entries.erase(3);
    AddRemoved(base.entries, delta.entries, &delta);
    delta.previous = base.name;
    delta.chain = {base.name};
    delta.writes_changes = delta.lists_removed = {0};
    proto::Journal journal;
    for (const TestSave* save : {&base, &delta}) {
      EXPECT_EQ(SaveTestTable(*directory, *save), absl::OkStatus());
      *journal.add_checkpoints() = save->name;
    }
    EXPECT_EQ(directory->WriteJournal(journal), absl::OkStatus());
    entries_ = delta.entries;
  }
  ~CheckpointRowsTest() override { holdfast_values_free(values_); }

  void Load() {
    ASSERT_OK(Call(holdfast_load_checkpoint, folder_.c_str(), &values_));
  }
  Result Read(size_t table, std::vector<uint64_t>* ids,
              std::vector<float>* rows) {
    return Call(holdfast_values_read_table, values_, table, ids->data(),
                rows->data(), ids->size());
  }

  static constexpr uint64_t kLast = ~uint64_t{0};
  const std::string folder_ = absl::StrCat(
      ::testing::TempDir(), "/",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
  TestEntries entries_;
  holdfast_values* values_ = nullptr;
};

TEST_F(CheckpointRowsTest, TheTablesAreTold) {
  Load();
  size_t count = 0;
  EXPECT_OK(Call(holdfast_values_get_num_tables, values_, &count));
  EXPECT_EQ(count, 1);
  holdfast_table table;
  EXPECT_OK(Call(holdfast_values_get_table, values_, size_t{0}, &table));
  EXPECT_STREQ(table.name, "user");
  EXPECT_EQ(table.row_length, 2);
  EXPECT_OK(Call(holdfast_values_get_num_rows, values_, size_t{0}, &count));
  EXPECT_EQ(count, 20);
  for (const Result& result :
       {Call(holdfast_values_get_table, values_, size_t{1}, &table),
        Call(holdfast_values_get_num_rows, values_, size_t{1}, &count)}) {
    EXPECT_EQ(result.kind, HOLDFAST_INVALID);
    EXPECT_EQ(result.message, "there is no table 1, only 1");
  }
}

TEST_F(CheckpointRowsTest, RowsOfADeltaAreMerged) {
  Load();
  std::vector<uint64_t> ids(20);
  std::vector<float> rows(40);
  // From another working directory, too.
  const fs::path before = fs::current_path();
  fs::current_path("/");
  EXPECT_OK(Read(0, &ids, &rows));
  fs::current_path(before);
  std::vector<uint64_t> expected_ids;
  std::vector<float> expected;
  for (const auto& [id, entry] : entries_) {
    if (!entry.is_row()) continue;
    expected_ids.push_back(id);
    expected.insert(expected.end(), entry.floats.begin(),
                    entry.floats.begin() + 2);
  }
  EXPECT_EQ(ids, expected_ids);
  EXPECT_EQ(ids.back(), kLast);
  EXPECT_EQ(rows, expected);
}

TEST_F(CheckpointRowsTest, WrongArgumentsAreTold) {
  Load();
  std::vector<uint64_t> ids(19);
  std::vector<float> rows(40);
  const Result fewer = Read(0, &ids, &rows);
  EXPECT_EQ(fewer.kind, HOLDFAST_INVALID);
  EXPECT_EQ(fewer.message, "table \"user\" has 20 rows, not 19");
  EXPECT_EQ(Read(1, &ids, &rows).message, "there is no table 1, only 1");
  EXPECT_EQ(Call(holdfast_values_read_table, values_, size_t{0}, ids.data(),
                 nullptr, size_t{20})
                .message,
            "rows is NULL");
  EXPECT_EQ(Call(holdfast_values_get_num_tables, values_, nullptr).message,
            "count is NULL");
  holdfast_values_free(values_);
  EXPECT_EQ(Read(0, &ids, &rows).kind, HOLDFAST_BAD_HANDLE);
}

TEST_F(CheckpointRowsTest, DamageAndAbsenceAreTold) {
  Load();
  std::vector<uint64_t> ids(20, 1);
  std::vector<float> rows(40);
  const std::string file = absl::StrCat(
      folder_, "/", FolderName(TestName(1, 10)), "/ps-0000-of-0002");
  // In the middle of the rows, which follow the variables.
  const auto size = static_cast<std::streamoff>(fs::file_size(file));
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes(size, '\0');
  stream.read(bytes.data(), size);
  const float* const values = entries_.at(0).floats.data();
  const size_t at = bytes.find(
      std::string(reinterpret_cast<const char*>(values), 4 * sizeof(float)));
  ASSERT_NE(at, std::string::npos);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(static_cast<char>(bytes[at] ^ 1));
  stream.close();
  const Result damaged = Read(0, &ids, &rows);
  EXPECT_EQ(damaged.kind, HOLDFAST_DAMAGED);
  EXPECT_THAT(damaged.message, HasSubstr("ps-0000-of-0002"));
  EXPECT_EQ(ids, std::vector<uint64_t>(20, 1));

  fs::remove_all(absl::StrCat(folder_, "/", FolderName(TestName(1, 20))));
  const Result absent = Read(0, &ids, &rows);
  EXPECT_EQ(absent.kind, HOLDFAST_NOT_FOUND);
  EXPECT_THAT(absent.message, HasSubstr("g0001-step00000020"));
}

class PulledValuesTest : public CApiClusterTest {};

TEST_F(PulledValuesTest, HaveNoTables) {
  Start(/*num_ps=*/1, /*num_workers=*/1);
  holdfast_cluster* const cluster = Ready(Worker(0), R"(
    tables { name: "t" row_length: 2 max_rows_per_push: 3
             initializer { zeros {} } }
    optimizers { learning_rate: 1 sgd {} } total_steps: 1
    consistency { synchronous {} })");
  holdfast_values* values = nullptr;
  ASSERT_OK(Call(holdfast_pull, cluster, uint64_t{0}, &values));
  EXPECT_OK(Call(holdfast_values_wait, values, int64_t{-1}));
  size_t count = 1;
  EXPECT_OK(Call(holdfast_values_get_count, values, &count));
  EXPECT_EQ(count, 0);
  count = 1;
  EXPECT_OK(Call(holdfast_values_get_num_tables, values, &count));
  EXPECT_EQ(count, 0);
  holdfast_values_free(values);
  holdfast_close(cluster);
}

}  // namespace
}  // namespace holdfast

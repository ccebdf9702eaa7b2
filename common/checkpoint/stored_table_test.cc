// SPDX-License-Identifier: Apache-2.0

// Rows of embedding tables in data files: they are read as written, whichever
// file has them, and damaged or inconsistent files are detected.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/encoding.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// Bytes after an index: its offset, length and checksum, and the magic.
constexpr size_t kTrailer = 24;

class StoredTableTest : public ::testing::Test {
 protected:
  absl::Status Save(const std::vector<TestTable>& tables, uint32_t num_ps) {
    return SaveTestCheckpoint(directory_, name_, SmallVariables(), num_ps, 7,
                              tables);
  }
  absl::StatusOr<TestState> Load() {
    return LoadTestCheckpoint(directory_, name_);
  }
  std::string FirstFile() {
    return absl::StrCat(directory_.Folder(name_), "/ps-0000-of-0002");
  }

  // Changes the index of the first of two files, as if the file had been
  // written so: all checksums are valid.
  void ChangeIndex(
      const std::function<void(proto::DataFileIndex* index)>& change) {
    std::string file = disk_.Contents(FirstFile());
    const size_t trailer = file.size() - kTrailer;
    const uint64_t offset = Fixed64At(file.data() + trailer);
    proto::DataFileIndex index;
    ASSERT_TRUE(index.ParseFromString(file.substr(offset, trailer - offset)));
    change(&index);
    const std::string encoded = *EncodeMessage(index);
    file.resize(offset);
    file += encoded;
    AppendFixed64(offset, &file);
    AppendFixed32(encoded.size(), &file);
    AppendFixed32(Crc32c(encoded), &file);
    file += "HFdata01";
    disk_.SetContents(FirstFile(), file);
    proto::Manifest manifest = manifest_;
    manifest.mutable_files(0)->set_size(file.size());
    manifest.mutable_files(0)->set_index_crc32c(Crc32c(encoded));
    ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  }

  // A writer whose checkpoint has table "t", whose rows have one float32.
  std::unique_ptr<DataFileWriter> Writer() {
    auto writer = DataFileWriter::Create(directory_, name_, 0, 1);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  // Finishes the file, and reads all rows.
  absl::Status ReadAllOf(DataFileWriter* writer) {
    auto file = writer->Finish();
    EXPECT_TRUE(file.ok()) << file.status();
    proto::Manifest manifest = TestManifest(name_, {}, {{"t", 1}});
    *manifest.add_files() = *file;
    EXPECT_TRUE(directory_.WriteManifest(manifest).ok());
    return Load().status();
  }

  FaultyFileSystem disk_;
  const CheckpointDirectory directory_ =
      *CheckpointDirectory::Open("dir", &disk_);
  const proto::CheckpointName name_ = TestName(1, 100);
  proto::Manifest manifest_;
};

// A row of table "t", with one float32.
std::string RowOf(uint64_t id) {
  std::string bytes;
  AppendFixed64(id, &bytes);
  AppendFixed64(uint64_t{1} << 24 | 1, &bytes);
  AppendFixed32(0x3f800000, &bytes);
  return bytes;
}

TEST_F(StoredTableTest, WhatIsSavedIsReadWhoeverSavedWhichPart) {
  std::vector<TestTable> tables = SmallTables();
  // Rows that cross the ends of blocks.
  tables.push_back({"wide", 300, 2, 1000, 10});
  for (const uint32_t num_ps : {1, 2, 3}) {
    ASSERT_TRUE(Save(tables, num_ps).ok());
    const auto state = Load();
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(*state, MakeTestState(SmallVariables(), 7, tables));
    const auto reader = CheckpointReader::Open(directory_, name_);
    EXPECT_TRUE((*reader)->Verify().ok());
  }
}

TEST_F(StoredTableTest, SomeBucketsAreReadAndCounted) {
  ASSERT_TRUE(Save(SmallTables(), 2).ok());
  const auto reader = CheckpointReader::Open(directory_, name_);
  EXPECT_EQ((*reader)->floats_per_row("user"), 4u);
  EXPECT_EQ((*reader)->floats_per_row("nobody"), 3u);
  EXPECT_EQ((*reader)->FindTable("user")->row_length(), 2u);
  EXPECT_EQ((*reader)->FindTable("other"), nullptr);
  EXPECT_EQ((*reader)->CountRows("nobody", {}).bytes, 0u);
  const StoredCounts all = (*reader)->CountRows("user", {});
  EXPECT_EQ(all.rows, 40u);
  EXPECT_EQ(all.candidates, 8u);
  EXPECT_EQ(all.bytes, 40u * (16 + 16) + 8 * 16);
  // The middle third of the buckets, from both files.
  const BucketRange buckets = BucketsOfPs(1, 3);
  uint64_t rows = 0;
  uint64_t candidates = 0;
  uint32_t before = 0;
  ASSERT_TRUE((*reader)
                  ->ReadRows("user", buckets,
                             [&](const StoredRow& row) {
                               EXPECT_EQ(row.bucket, BucketOfRow(row.id));
                               EXPECT_TRUE(buckets.Contains(row.bucket));
                               EXPECT_LE(before, row.bucket);
                               before = row.bucket;
                               ++(row.is_candidate ? candidates : rows);
                               return absl::OkStatus();
                             })
                  .ok());
  const StoredCounts third = (*reader)->CountRows("user", buckets);
  EXPECT_EQ(third.rows, rows);
  EXPECT_EQ(third.candidates, candidates);
  uint64_t expected = 0;
  for (uint64_t id = 0; id < 40; ++id) {
    expected += buckets.Contains(BucketOfRow(id));
  }
  EXPECT_EQ(rows, expected);
  EXPECT_EQ((*reader)
                ->ReadRows("other", {},
                           [](const StoredRow&) { return absl::OkStatus(); })
                .code(),
            absl::StatusCode::kNotFound);
}

TEST_F(StoredTableTest, AVisitEndsTheReading) {
  ASSERT_TRUE(Save(SmallTables(), 2).ok());
  const auto reader = CheckpointReader::Open(directory_, name_);
  int visits = 0;
  const auto read = [&](const absl::Status& status) {
    return (*reader)->ReadRows("user", {}, [&](const StoredRow&) {
      ++visits;
      return status;
    });
  };
  EXPECT_EQ(read(absl::AbortedError("enough")), absl::AbortedError("enough"));
  EXPECT_EQ(visits, 1);
  const absl::Status damaged = read(absl::DataLossError("is odd"));
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("/ps-0000-of-0002: table \"user\", "
                                           "bucket "));
  EXPECT_THAT(damaged.message(), HasSubstr(": is odd"));
}

TEST_F(StoredTableTest, EveryByteCounts) {
  ASSERT_TRUE(Save(SmallTables(), 2).ok());
  const std::string contents = disk_.Contents(FirstFile());
  const size_t index = Fixed64At(&contents[contents.size() - kTrailer]);
  int named = 0;
  for (size_t i = 0; i < contents.size(); i += i < index ? 1 : 301) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = contents;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      disk_.SetContents(FirstFile(), damaged);
      const absl::Status status = Load().status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss)
          << "byte " << i << " flipped by " << flip << ": " << status;
      EXPECT_THAT(status.message(), HasSubstr(FirstFile()));
      named += absl::StrContains(status.message(), "of table \"user\"");
    }
  }
  // All bytes of the half of the rows that this file has.
  EXPECT_GT(named, 3 * 15 * 32);
}

TEST_F(StoredTableTest, EveryLengthCounts) {
  ASSERT_TRUE(Save(SmallTables(), 2).ok());
  const std::string contents = disk_.Contents(FirstFile());
  for (size_t size = 0; size < contents.size();
       size += size < 2000 ? 1 : 1009) {
    std::string cut = contents.substr(0, size);
    disk_.SetContents(FirstFile(), cut);
    EXPECT_EQ(Load().status().code(), absl::StatusCode::kDataLoss) << size;
    cut.resize(contents.size(), '\0');
    disk_.SetContents(FirstFile(), cut);
    EXPECT_EQ(Load().status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST_F(StoredTableTest, IndexHasToFit) {
  ASSERT_TRUE(Save(SmallTables(), 2).ok());
  manifest_ = *directory_.ReadManifest(name_);
  const std::string contents = disk_.Contents(FirstFile());
  ChangeIndex([](auto*) {});
  EXPECT_TRUE(Load().ok());
  const auto expect_refused =
      [&](const std::string& text,
          const std::function<void(proto::DataFileIndex*)>& change) {
        disk_.SetContents(FirstFile(), contents);
        ChangeIndex(change);
        const absl::Status status = Load().status();
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
        EXPECT_THAT(status.message(), HasSubstr(text));
      };
  const auto expect_rows_refused =
      [&](const std::string& text,
          const std::function<void(proto::StoredRows*)>& change) {
        expect_refused(text, [&](proto::DataFileIndex* index) {
          change(index->mutable_rows(0));
        });
      };
  expect_rows_refused("or the table is not declared",
                      [](auto* r) { r->set_table("other"); });
  expect_rows_refused("do not fit, or",
                      [](auto* r) { r->set_offset(r->offset() + 4); });
  expect_rows_refused("cannot have 1 float32",
                      [](auto* r) { r->set_floats_per_row(1); });
  expect_rows_refused("cannot have 4294967295 float32",
                      [](auto* r) { r->set_floats_per_row(~0u); });
  expect_rows_refused("", [](auto* r) { r->set_floats_per_row(5); });
  expect_rows_refused("cannot cover 8192 buckets from bucket 4294967295 on",
                      [](auto* r) { r->set_first_bucket(~0u); });
  expect_rows_refused("cannot cover 8192 buckets from bucket 8193 on",
                      [](auto* r) { r->set_first_bucket(8193); });
  expect_rows_refused("between 0 and 1",
                      [](auto* r) { r->set_first_bucket(1); });
  expect_rows_refused("between 8191 and 8192", [](auto* r) {
    r->mutable_rows()->RemoveLast();
    r->mutable_candidates()->RemoveLast();
  });
  expect_rows_refused("cannot cover 8193 buckets",
                      [](auto* r) { r->add_rows(0); });
  expect_rows_refused("do not fit in the file",
                      [](auto* r) { r->set_rows(3, ~uint64_t{0}); });
  expect_rows_refused("do not fit in the file",
                      [](auto* r) { r->set_candidates(3, ~uint64_t{0} / 16); });
  expect_rows_refused("rows of table \"nobody\" at byte", [](auto* r) {
    *std::find_if(r->mutable_rows()->begin(), r->mutable_rows()->end(),
                  [](uint64_t rows) { return rows > 0; }) -= 1;
  });
  expect_rows_refused("checksums of 0 blocks, not 1",
                      [](auto* r) { r->clear_block_crc32c(); });
  expect_rows_refused("checksums of 2 blocks, not 1",
                      [](auto* r) { r->add_block_crc32c(0); });
  // According to the index, the row belongs to another bucket.
  expect_rows_refused("belongs to bucket", [](auto* r) {
    const auto full =
        std::find_if(r->mutable_rows()->begin(), r->mutable_rows()->end(),
                     [](uint64_t rows) { return rows > 0; });
    std::swap(*full, *(full + 1));
  });
  expect_refused("rows of table \"nobody\" at byte", [](auto* index) {
    index->mutable_rows()->DeleteSubrange(0, 1);
  });
}

TEST_F(StoredTableTest, RowsThatCannotBe) {
  // Two ids of one bucket.
  uint64_t first = 0;
  uint64_t second = 1;
  while (BucketOfRow(second) != BucketOfRow(first)) ++second;
  const uint32_t bucket = BucketOfRow(first);
  const auto read = [&](const std::string& rows) {
    const auto writer = Writer();
    EXPECT_TRUE(writer->BeginRows({"t", 1, {}}).ok());
    for (uint32_t b = 0; b < kRowBuckets; ++b) {
      const std::string bytes = b == bucket ? rows : "";
      EXPECT_TRUE(writer->AppendBucket({bytes.size() / 20}, bytes).ok());
    }
    return ReadAllOf(writer.get());
  };
  EXPECT_TRUE(read(RowOf(first) + RowOf(second)).ok());
  EXPECT_THAT(
      read(RowOf(second) + RowOf(first)).message(),
      HasSubstr(absl::StrCat("/ps-0000-of-0001: table \"t\", bucket ", bucket,
                             ": row ", first, " comes after row ", second)));
  EXPECT_THAT(read(RowOf(first) + RowOf(first)).message(),
              HasSubstr("comes after row"));
  EXPECT_THAT(read(RowOf(first + 1)).message(), HasSubstr("belongs to bucket"));
}

TEST_F(StoredTableTest, WhatIsWrittenWrongly) {
  {
    const auto writer = Writer();
    ASSERT_TRUE(writer->BeginRows({"t", 1, {3, 5}}).ok());
    ASSERT_TRUE(writer->AppendBucket({}, "").ok());
    EXPECT_THAT(writer->Finish().status().message(),
                HasSubstr("the extent lacks 1 buckets"));
  }
  {
    const auto writer = Writer();
    ASSERT_TRUE(writer->BeginRows({"t", 1, {3, 4}}).ok());
    EXPECT_THAT(
        writer->AppendBucket({2, 1}, std::string(20, '\0')).message(),
        HasSubstr("20 bytes of 2 rows, 1 candidates and 0 removed ids of table "
                  "\"t\""));
  }
  {
    const auto writer = Writer();
    ASSERT_TRUE(writer->BeginRows({"t", 1, {3, 4}}).ok());
    ASSERT_TRUE(writer->AppendBucket({}, "").ok());
    EXPECT_THAT(writer->AppendBucket({}, "").message(),
                HasSubstr("all buckets are there already"));
  }
  const auto writer = Writer();
  ASSERT_TRUE(writer->BeginRows({"t", 1, {3, 3}}).ok());
  EXPECT_THAT(writer->Begin("v", 0, 0, 0).message(),
              HasSubstr("variables come before tables"));
  EXPECT_FALSE(writer->Finish().ok());
}

}  // namespace
}  // namespace holdfast

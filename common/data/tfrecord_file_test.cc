// SPDX-License-Identifier: Apache-2.0
#include "common/data/tfrecord_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/tfrecord_frame.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Write(const std::string& name, const std::string& content) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::string File(const std::vector<std::string>& records) {
  std::string file;
  for (const std::string& record : records) AppendTfRecord(record, &file);
  return file;
}

// All records that Next() returns; a damaged one is marked with "!".
std::vector<std::string> RecordsOf(const std::string& path,
                                   absl::Status* error = nullptr) {
  auto reader = TfRecordReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  std::vector<std::string> records;
  TfRecordReader::Record record;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok()) {
      if (error != nullptr) *error = more.status();
      return records;
    }
    if (!*more) return records;
    records.push_back(absl::StrCat(record.data, record.intact ? "" : "!"));
  }
}

absl::Status ErrorOf(const std::string& content) {
  absl::Status error;
  RecordsOf(Write("wrong.tfrecord", content), &error);
  return error;
}

TEST(TfRecordFileTest, WritesAndReadsRecords) {
  const std::string path =
      Write("plain.tfrecord", File({"one", "", std::string(1000, 'x')}));
  EXPECT_THAT(RecordsOf(path), ElementsAre("one", "", std::string(1000, 'x')));
  EXPECT_THAT(RecordsOf(Write("empty.tfrecord", "")), ElementsAre());
}

// The checksums come from a bitwise CRC-32C, masked in Python.
TEST(TfRecordFileTest, RecordsHaveTheBytesOfTheFormat) {
  EXPECT_EQ(File({"ab"}), std::string("\x02\0\0\0\0\0\0\0\x78\x27\x0b\x34"
                                      "ab\x1c\xb0\xf0\xf4",
                                      18));
}

TEST(TfRecordFileTest, ReadsGzip) {
  const std::string path = testing::TempDir() + "/packed.tfrecord";
  const std::string file = File({"one", std::string(3 << 20, 'x'), "three"});
  const gzFile packed = gzopen(path.c_str(), "wb");
  gzwrite(packed, file.data(), file.size());
  gzclose(packed);
  EXPECT_THAT(RecordsOf(path),
              ElementsAre("one", std::string(3 << 20, 'x'), "three"));
}

TEST(TfRecordFileTest, ARecordWithAWrongChecksumIsToldAndTheNextIsRead) {
  std::string file = File({"one", "two", "three"});
  // The second begins at 12 + 3 + 4.
  file[19 + 12] ^= 1;
  EXPECT_THAT(RecordsOf(Write("damaged.tfrecord", file)),
              ElementsAre("one", "uwo!", "three"));
}

TEST(TfRecordFileTest, NamesWhatIsDamaged) {
  const std::string file = File({"one", "two"});
  absl::Status error = ErrorOf("this is some text, and no records");
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("not a TFRecord file"));
  EXPECT_THAT(error.message(),
              HasSubstr("wrong.tfrecord\": record 0 (from 0)"));

  std::string wrong_length = file;
  wrong_length[19] ^= 4;
  error = ErrorOf(wrong_length);
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("record 1 (from 0), at byte 19: "),
                    HasSubstr("no further record can be found")));

  for (size_t size = 20; size < file.size(); ++size) {
    error = ErrorOf(file.substr(0, size));
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(error.message(), HasSubstr("it is truncated")) << size;
  }
}

TEST(TfRecordIndexTest, FindsTheFileOfARecord) {
  TfRecordIndex index;
  for (const auto& [name, records] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"a.tfrecord", {"a0", "a1"}},
           {"none.tfrecord", {}},
           {"b.tfrecord", {"b0"}}}) {
    auto reader = TfRecordReader::Open(Write(name, File(records)));
    ASSERT_TRUE(reader.ok()) << reader.status();
    index.AddFile(name, reader->file());
    TfRecordReader::Record record;
    while (*reader->Next(&record)) index.Add(record.offset);
  }
  index.Finish();
  ASSERT_EQ(index.records(), 3);
  EXPECT_EQ(*index.Read(0), "a0");
  EXPECT_EQ(*index.Read(1), "a1");
  EXPECT_EQ(*index.Read(2), "b0");
  EXPECT_EQ(index.Place(1), "record 1 (from 0) of \"a.tfrecord\"");
  EXPECT_EQ(index.Place(2), "record 0 (from 0) of \"b.tfrecord\"");
}

}  // namespace
}  // namespace holdfast

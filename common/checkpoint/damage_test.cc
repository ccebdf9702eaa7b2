// SPDX-License-Identifier: Apache-2.0

// Any change of the written bytes is detected.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/crc32c.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/encoding.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    for (const auto& name : {first_, second_}) {
      EXPECT_TRUE(
          SaveTestCheckpoint(directory_, name, SmallVariables(), 2, name.step())
              .ok());
    }
    proto::Journal journal;
    journal.set_generation(1);
    *journal.add_checkpoints() = first_;
    *journal.add_checkpoints() = second_;
    EXPECT_TRUE(directory_.WriteJournal(journal).ok());
  }

  // Reads the journal and the first checkpoint.
  absl::Status ReadAll() {
    const auto journal = directory_.ReadJournal();
    if (!journal.ok()) return journal.status();
    return LoadTestCheckpoint(directory_, first_).status();
  }

  void ExpectDamaged() {
    const absl::Status status = ReadAll();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  }

  std::string File(const proto::CheckpointName& name, absl::string_view file) {
    return absl::StrCat(directory_.Folder(name), "/", file);
  }

  std::vector<std::string> FilesRead() {
    return {"dir/JOURNAL", File(first_, "MANIFEST"),
            File(first_, "ps-0000-of-0002"), File(first_, "ps-0001-of-0002")};
  }

  // Changes the index of the first checkpoint's first data file, as if the file
  // had been written so: all checksums are valid.
  absl::Status ReadWithIndex(
      const std::function<void(proto::DataFileIndex*)>& change,
      absl::string_view before_index = "") {
    const std::string path = File(first_, "ps-0000-of-0002");
    std::string file = disk_.Contents(path);
    const std::string before = file;
    const size_t trailer = file.size() - 24;
    const size_t offset = Fixed64At(&file[trailer]);
    proto::DataFileIndex index;
    EXPECT_TRUE(index.ParseFromString(file.substr(offset, trailer - offset)));
    change(&index);
    const std::string encoded = index.SerializeAsString();
    const std::string magic = file.substr(0, 8);
    file.resize(offset);
    file.append(before_index.data(), before_index.size());
    file += encoded;
    AppendFixed64(offset + before_index.size(), &file);
    AppendFixed32(encoded.size(), &file);
    AppendFixed32(Crc32c(encoded), &file);
    file += magic;
    disk_.SetContents(path, file);

    const proto::Manifest manifest = *directory_.ReadManifest(second_);
    proto::Manifest other = manifest;
    *other.mutable_name() = first_;
    other.mutable_files(0)->set_size(file.size());
    other.mutable_files(0)->set_index_crc32c(Crc32c(encoded));
    *other.mutable_files(1) = first_manifest_.files(1);
    EXPECT_TRUE(directory_.WriteManifest(other).ok());
    const absl::Status status = LoadTestCheckpoint(directory_, first_).status();
    disk_.SetContents(path, before);
    return status;
  }

  FaultyFileSystem disk_;
  const CheckpointDirectory directory_ =
      *CheckpointDirectory::Open("dir", &disk_);
  const proto::CheckpointName first_ = TestName(1, 10);
  const proto::CheckpointName second_ = TestName(1, 20);
  proto::Manifest first_manifest_;

  void SetUp() override {
    first_manifest_ = *directory_.ReadManifest(first_);
    ASSERT_TRUE(ReadAll().ok());
  }
};

TEST_F(DamageTest, EveryByteCounts) {
  for (const std::string& path : FilesRead()) {
    const std::string contents = disk_.Contents(path);
    for (size_t i = 0; i < contents.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        SCOPED_TRACE(absl::StrCat(path, " byte ", i, " flipped by ", flip));
        std::string damaged = contents;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        disk_.SetContents(path, damaged);
        ExpectDamaged();
      }
    }
    disk_.SetContents(path, contents);
  }
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(DamageTest, EveryLengthCounts) {
  for (const std::string& path : FilesRead()) {
    const std::string contents = disk_.Contents(path);
    for (size_t size = 0; size < contents.size(); ++size) {
      SCOPED_TRACE(absl::StrCat(path, " cut to ", size));
      disk_.SetContents(path, contents.substr(0, size));
      ExpectDamaged();
      // The right length but zeros, as a file system may leave it.
      std::string zeros = contents.substr(0, size);
      zeros.resize(contents.size(), '\0');
      if (zeros == contents) continue;
      disk_.SetContents(path, zeros);
      ExpectDamaged();
    }
    disk_.SetContents(path, contents + '\0');
    ExpectDamaged();
    disk_.SetContents(path, contents);
  }
}

TEST_F(DamageTest, FilesBelongWhereTheyAre) {
  const std::vector<std::string> files = {File(first_, "MANIFEST"),
                                          File(first_, "ps-0000-of-0002"),
                                          File(first_, "ps-0001-of-0002"),
                                          File(second_, "MANIFEST"),
                                          File(second_, "ps-0000-of-0002"),
                                          File(second_, "ps-0001-of-0002"),
                                          "dir/JOURNAL"};
  for (const std::string& a : files) {
    for (const std::string& b : files) {
      if (a >= b) continue;
      SCOPED_TRACE(absl::StrCat(a, " and ", b));
      const std::string in_a = disk_.Contents(a);
      const std::string in_b = disk_.Contents(b);
      disk_.SetContents(a, in_b);
      disk_.SetContents(b, in_a);
      const absl::Status status =
          ReadAll().ok() ? LoadTestCheckpoint(directory_, second_).status()
                         : ReadAll();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      disk_.SetContents(a, in_a);
      disk_.SetContents(b, in_b);
    }
  }
}

TEST_F(DamageTest, ManifestDoesNotMakeAnotherCheckpointsFileFit) {
  // The second's data file in the first's folder, with a matching manifest.
  proto::Manifest manifest = first_manifest_;
  *manifest.mutable_files(0) = directory_.ReadManifest(second_)->files(0);
  ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  disk_.SetContents(File(first_, "ps-0000-of-0002"),
                    disk_.Contents(File(second_, "ps-0000-of-0002")));
  const absl::Status status = ReadAll();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("is the share of ps 0 of 2 in "
                                          "g0001-step00000020"));
}

TEST_F(DamageTest, AttemptsAreNotMixed) {
  const std::string path = File(first_, "ps-0000-of-0002");
  const std::string earlier = disk_.Contents(path);
  ASSERT_TRUE(
      SaveTestCheckpoint(directory_, first_, SmallVariables(), 2, 5).ok());
  ASSERT_EQ(disk_.Contents(path).size(), earlier.size());
  ASSERT_TRUE(ReadAll().ok());
  disk_.SetContents(path, earlier);
  ExpectDamaged();
}

TEST_F(DamageTest, FolderIsNotAnotherCheckpoint) {
  for (const char* file : {"MANIFEST", "ps-0000-of-0002", "ps-0001-of-0002"}) {
    disk_.SetContents(File(first_, file), disk_.Contents(File(second_, file)));
  }
  EXPECT_THAT(ReadAll().message(),
              HasSubstr("another checkpoint, g0001-step00000020"));
}

TEST_F(DamageTest, ErrorsNameFileAndPlace) {
  const std::string path = File(first_, "ps-0000-of-0002");
  std::string contents = disk_.Contents(path);
  contents[8] ^= 1;  // the first byte of the first extent
  disk_.SetContents(path, contents);
  const absl::Status status = ReadAll();
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_THAT(status.message(), HasSubstr("of variable \"dense/bias\""));
  // Other reads do not touch the damage; only Verify detects it.
  const auto reader = CheckpointReader::Open(directory_, first_);
  ASSERT_TRUE(reader.ok());
  float scale;
  EXPECT_TRUE((*reader)->Read("scale", 0, 0, absl::MakeSpan(&scale, 1)).ok());
  EXPECT_EQ((*reader)->Verify(), status);

  contents = disk_.Contents("dir/JOURNAL");
  contents[7] = '2';
  disk_.SetContents("dir/JOURNAL", contents);
  EXPECT_THAT(directory_.ReadJournal().status().message(),
              HasSubstr("format version \"02\"; this program reads \"01\""));
}

TEST_F(DamageTest, LengthsAreNotBelieved) {
  // A trailer with arbitrary values: no memory of such a size is allocated.
  const std::string path = File(first_, "ps-0000-of-0002");
  const std::string contents = disk_.Contents(path);
  const uint64_t end = contents.size() - 24;
  const std::pair<uint64_t, uint32_t> lengths[] = {{0, ~0u},
                                                   {8, ~0u},
                                                   {end - 8, 0x7fffffffu},
                                                   {end, 1},
                                                   {end - ~0u, ~0u},
                                                   {~uint64_t{0}, 0},
                                                   {~uint64_t{0} - 23, ~0u},
                                                   {end + 24, 0},
                                                   {0, 0xfffffff0u},
                                                   {uint64_t{1} << 63, 100},
                                                   {7, uint32_t(end - 7)}};
  for (const auto& [offset, length] : lengths) {
    std::string trailer;
    AppendFixed64(offset, &trailer);
    AppendFixed32(length, &trailer);
    std::string damaged = contents;
    damaged.replace(end, trailer.size(), trailer);
    disk_.SetContents(path, damaged);
    EXPECT_THAT(ReadAll().message(), HasSubstr("its index cannot have"));
  }
  disk_.SetContents(path, contents);

  for (const uint32_t length : {~0u, 0x80000000u, 0x7fffffffu}) {
    for (const char* file :
         {"dir/JOURNAL", "dir/g0001-step00000010/MANIFEST"}) {
      const std::string before = disk_.Contents(file);
      std::string bytes;
      AppendFixed32(length, &bytes);
      disk_.SetContents(file, std::string(before).replace(8, 4, bytes));
      ExpectDamaged();
      disk_.SetContents(file, before);
    }
  }
}

TEST_F(DamageTest, IndexHasToFit) {
  EXPECT_TRUE(ReadWithIndex([](auto*) {}).ok());
  EXPECT_THAT(ReadWithIndex([](auto*) {}, "more").message(),
              HasSubstr("has extents up to byte"));
  const auto expect_refused =
      [&](const std::function<void(proto::DataFileIndex*)>& change) {
        const absl::Status status = ReadWithIndex(change);
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      };
  // The first extent that has elements.
  const auto expect_extent_refused =
      [&](const std::function<void(proto::StoredExtent*)>& change) {
        expect_refused([&](proto::DataFileIndex* index) {
          for (auto& extent : *index->mutable_extents()) {
            if (extent.size() > 0) return change(&extent);
          }
          ADD_FAILURE() << "no extent has elements";
        });
      };
  expect_extent_refused([](auto* s) { s->set_size(s->size() + 1); });
  expect_extent_refused([](auto* s) { s->set_size(~uint64_t{0}); });
  expect_extent_refused([](auto* s) { s->set_size(uint64_t{1} << 62); });
  expect_extent_refused([](auto* s) { s->set_begin(~uint64_t{0}); });
  expect_extent_refused([](auto* s) { s->set_begin(s->begin() + 1); });
  expect_extent_refused([](auto* s) { s->set_offset(~uint64_t{0}); });
  expect_extent_refused([](auto* s) { s->set_offset(s->offset() + 4); });
  expect_extent_refused([](auto* s) { s->set_slot(~0u); });
  expect_extent_refused([](auto* s) { s->set_variable("other"); });
  expect_extent_refused([](auto* s) { s->clear_block_crc32c(); });
  expect_extent_refused([](auto* s) { s->add_block_crc32c(0); });
  expect_refused([](auto* index) { index->set_ps(1); });
  expect_refused([](auto* index) { index->set_ps(~0u); });
  expect_refused([](auto* index) { index->set_num_ps(3); });
  expect_refused([](auto* index) { index->clear_checkpoint(); });
  expect_refused([](auto* index) { index->clear_extents(); });
}

}  // namespace
}  // namespace holdfast

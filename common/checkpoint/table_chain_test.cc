// SPDX-License-Identifier: Apache-2.0

// Tables whose rows are spread over a chain of checkpoints are read correctly,
// and chains that do not fit are detected.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
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
#include "common/tensor/row_bucket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A few buckets with several ids each, in the shares of every one of up to 3
// ps.
std::vector<uint64_t> FewBuckets() {
  std::map<uint32_t, std::vector<uint64_t>> by_bucket;
  for (uint64_t id = 1; by_bucket.size() < 4 || id < 400000; ++id) {
    const uint32_t bucket = BucketOfRow(id);
    if (bucket == 0 || bucket == 6000 || bucket == 8192 || bucket == 16383) {
      by_bucket[bucket].push_back(id);
    }
  }
  std::vector<uint64_t> ids;
  for (const auto& [bucket, some] : by_bucket) {
    EXPECT_GE(some.size(), 8u);
    ids.insert(ids.end(), some.begin(), some.begin() + 8);
  }
  return ids;
}

// What a copy of the rows becomes after ReadChanges.
absl::Status Apply(CheckpointReader* reader, uint64_t since_step,
                   TestEntries* rows, BucketRange buckets = {}) {
  std::pair<uint32_t, uint64_t> last_row, last_removed;
  return reader->ReadChanges(
      "user", buckets, since_step,
      [&](const StoredRow& row) {
        EXPECT_FALSE(row.is_candidate);
        EXPECT_GT(row.step, since_step);
        EXPECT_TRUE(buckets.Contains(row.bucket));
        EXPECT_LT(last_row, std::make_pair(row.bucket, row.id));
        last_row = {row.bucket, row.id};
        (*rows)[row.id] = {
            row.step, row.count, {row.floats.begin(), row.floats.end()}};
        return absl::OkStatus();
      },
      [&](uint32_t bucket, uint64_t id) {
        EXPECT_EQ(bucket, BucketOfRow(id));
        EXPECT_TRUE(buckets.Contains(bucket));
        EXPECT_LT(last_removed, std::make_pair(bucket, id));
        last_removed = {bucket, id};
        rows->erase(id);
        return absl::OkStatus();
      });
}

TestEntries RowsOf(const TestEntries& entries) {
  TestEntries rows;
  for (const auto& [id, entry] : entries) {
    if (entry.is_row()) rows.emplace(id, entry);
  }
  return rows;
}

// A job that trains and saves at random, and its expected state.
class RandomJob {
 public:
  RandomJob(const CheckpointDirectory& directory, uint32_t seed)
      : directory_(directory), random_(seed), by_step_(1) {}

  void Step() {
    TestEntries entries = by_step_.back();
    const uint64_t step = by_step_.size();
    for (const uint64_t id : ids_) {
      switch (Below(12)) {
        case 0:
          entries[id] = TestRowOf(id, step);
          break;
        case 1:
          if (entries.count(id) == 0) entries[id] = {step, 1, {}};
          break;
        case 2:
          entries.erase(id);
          break;
        case 3:  // removed, and a candidate again
          entries[id] = {step, 2, {}};
          break;
      }
    }
    AddRemoved(by_step_.back(), entries, &next_);
    by_step_.push_back(std::move(entries));
  }

  void Save() {
    next_.name = TestName(1, by_step_.size() - 1);
    next_.num_ps = 1 + Below(3);
    next_.entries = by_step_.back();
    saves_.push_back(std::exchange(next_, {}));
    TestSave& now = saves_.back();
    if (saves_.size() > 1) {
      const TestSave& before = saves_[saves_.size() - 2];
      now.previous = before.name;
      const bool base = Below(5) == 0;
      for (uint32_t ps = 0; ps < now.num_ps; ++ps) {
        // A ps that does not know what was removed writes all rows.
        const bool knows = Below(6) > 0;
        if (knows) now.lists_removed.insert(ps);
        if (knows && !base && Below(6) > 0) now.writes_changes.insert(ps);
      }
      if (!now.writes_changes.empty()) {
        now.chain = before.chain;
        // The chain may be longer than necessary, because some files of deltas
        // have all rows.
        now.chain.push_back(before.name);
      }
    }
    const absl::Status saved = SaveTestTable(directory_, now);
    ASSERT_TRUE(saved.ok()) << saved;
  }

  // Every checkpoint still has its original contents.
  void Check() {
    for (const TestSave& save : saves_) {
      SCOPED_TRACE(FolderName(save.name));
      const auto entries = LoadTestEntries(directory_, save.name);
      ASSERT_TRUE(entries.ok()) << entries.status();
      EXPECT_EQ(*entries, save.entries);
      const auto reader = CheckpointReader::Open(directory_, save.name);
      EXPECT_TRUE((*reader)->Verify().ok());
      const uint32_t begin = Below(kRowBuckets);
      const BucketRange buckets = {begin,
                                   begin + Below(kRowBuckets - begin + 1)};
      TestEntries some;
      for (const auto& [id, entry] : save.entries) {
        if (buckets.Contains(BucketOfRow(id))) some.emplace(id, entry);
      }
      EXPECT_EQ(*LoadTestEntries(directory_, save.name, buckets), some);
      const StoredCounts counts = (*reader)->CountRows("user", buckets);
      EXPECT_EQ(counts.rows, RowsOf(some).size());
      EXPECT_EQ(counts.candidates, some.size() - RowsOf(some).size());
      EXPECT_GE(counts.bytes, counts.rows * 32 + counts.candidates * 16);
    }
  }

  // A copy as of any step becomes the newest state, as far as changes are
  // known.
  void CheckChanges() {
    const TestSave& newest = saves_.back();
    const auto reader = CheckpointReader::Open(directory_, newest.name);
    ASSERT_TRUE(reader.ok()) << reader.status();
    const uint64_t known_since = KnownSince();
    for (uint64_t step = 0; step < by_step_.size(); ++step) {
      TestEntries rows = RowsOf(by_step_[step]);
      const absl::Status applied = Apply(reader->get(), step, &rows);
      if (step > newest.name.step()) {
        EXPECT_EQ(applied.code(), absl::StatusCode::kInvalidArgument);
      } else if (step < known_since) {
        EXPECT_EQ(applied.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(
            applied.message(),
            AllOf(HasSubstr(absl::StrCat("since step ", step, " ")),
                  HasSubstr(absl::StrCat("only since step ", known_since, ":")),
                  HasSubstr("export all rows instead")));
        ++unknown_;
      } else {
        EXPECT_TRUE(applied.ok()) << applied;
        EXPECT_EQ(rows, RowsOf(newest.entries)) << "since " << step;
        ++known_;
      }
    }
  }

  int known() const { return known_; }
  int unknown() const { return unknown_; }
  // Deltas for which one ps wrote all rows.
  int mixed() const {
    return std::count_if(saves_.begin(), saves_.end(), [](const auto& save) {
      return !save.writes_changes.empty() &&
             save.writes_changes.size() < save.num_ps;
    });
  }

 private:
  uint32_t Below(uint32_t bound) { return random_() % bound; }

  uint64_t KnownSince() const {
    for (auto save = saves_.rbegin(); save != saves_.rend(); ++save) {
      if (save->lists_removed.size() < save->num_ps) return save->name.step();
    }
    ADD_FAILURE() << "the first lists nothing";
    return 0;
  }

  const CheckpointDirectory& directory_;
  std::mt19937 random_;
  const std::vector<uint64_t> ids_ = FewBuckets();
  // From step 0 on.
  std::vector<TestEntries> by_step_;
  std::vector<TestSave> saves_;
  // Including what was removed since the last checkpoint.
  TestSave next_;
  int known_ = 0;
  int unknown_ = 0;
};

TEST(RandomChainTest, IsReadAsItWas) {
  int known = 0;
  int unknown = 0;
  int mixed = 0;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    FaultyFileSystem disk;
    const auto directory = *CheckpointDirectory::Open("dir", &disk);
    RandomJob job(directory, seed);
    for (uint64_t step = 1; step <= 24; ++step) {
      job.Step();
      if (step % 3 != 0 && step % 7 != 0) continue;
      job.Save();
      job.CheckChanges();
      if (::testing::Test::HasFailure()) return;
    }
    job.Step();
    job.Check();
    job.CheckChanges();
    if (::testing::Test::HasFailure()) return;
    known += job.known();
    unknown += job.unknown();
    mixed += job.mixed();
  }
  EXPECT_GT(known, 100);
  EXPECT_GT(unknown, 100);
  EXPECT_GT(mixed, 5);
}

// Three checkpoints: a base at step 10, and deltas at steps 20 and 30. All ids
// belong to one bucket.
class TableChainTest : public ::testing::Test {
 protected:
  TableChainTest() {
    for (uint64_t id = 1; ids_.size() < 6; ++id) {
      if (BucketOfRow(id) == kBucket) ids_.push_back(id);
    }
    base_.name = TestName(1, 10);
    for (int i = 0; i < 4; ++i) {
      base_.entries[ids_[i]] = TestRowOf(ids_[i], 5);
    }
    base_.entries[ids_[4]] = {5, 1, {}};

    first_.name = TestName(1, 20);
    first_.num_ps = 2;
    first_.entries = base_.entries;
    first_.entries[ids_[0]] = TestRowOf(ids_[0], 15);
    first_.entries.erase(ids_[1]);
    first_.entries[ids_[4]] = TestRowOf(ids_[4], 16);  // admitted
    first_.previous = base_.name;
    first_.chain = {base_.name};

    second_.name = TestName(2, 30);
    second_.entries = first_.entries;
    second_.entries[ids_[1]] = TestRowOf(ids_[1], 25);
    second_.entries[ids_[2]] = {26, 1, {}};  // a candidate again
    second_.entries.erase(ids_[3]);
    second_.previous = first_.name;
    second_.chain = {base_.name, first_.name};

    AddRemoved(base_.entries, first_.entries, &first_);
    AddRemoved(first_.entries, second_.entries, &second_);
    for (TestSave* save : {&first_, &second_}) {
      for (uint32_t ps = 0; ps < save->num_ps; ++ps) {
        save->writes_changes.insert(ps);
        save->lists_removed.insert(ps);
      }
    }
  }

  void SetUp() override {
    for (const TestSave& save : {base_, first_, second_}) Save(save);
  }

  void Save(const TestSave& save) {
    const absl::Status saved = SaveTestTable(directory_, save);
    ASSERT_TRUE(saved.ok()) << saved;
  }
  absl::StatusOr<TestEntries> Load() {
    return LoadTestEntries(directory_, second_.name);
  }
  absl::Status Verify() {
    const auto reader = CheckpointReader::Open(directory_, second_.name);
    return reader.ok() ? (*reader)->Verify() : reader.status();
  }
  std::string File(const TestSave& save, const std::string& file) {
    return absl::StrCat(directory_.Folder(save.name), "/", file);
  }
  std::vector<std::string> FilesOfChain() {
    return {
        File(base_, "MANIFEST"),          File(base_, "ps-0000-of-0001"),
        File(first_, "MANIFEST"),         File(first_, "ps-0000-of-0002"),
        File(first_, "ps-0001-of-0002"),  File(second_, "MANIFEST"),
        File(second_, "ps-0000-of-0001"),
    };
  }

  // Changes the index of a checkpoint's only data file, and the manifest
  // accordingly, as if they had been written so: all checksums are valid.
  void Change(
      const TestSave& save,
      const std::function<void(proto::StoredRows*)>& change_rows,
      const std::function<void(proto::Manifest*)>& change_manifest =
          [](proto::Manifest*) {}) {
    proto::Manifest manifest = *directory_.ReadManifest(save.name);
    proto::DataFile& data = *manifest.mutable_files(manifest.files_size() - 1);
    const std::string path = File(save, data.name());
    std::string file = disk_.Contents(path);
    const size_t trailer = file.size() - 24;
    const uint64_t offset = Fixed64At(file.data() + trailer);
    proto::DataFileIndex index;
    ASSERT_TRUE(index.ParseFromString(file.substr(offset, trailer - offset)));
    change_rows(index.mutable_rows(0));
    const std::string encoded = *EncodeMessage(index);
    file.resize(offset);
    file += encoded;
    AppendFixed64(offset, &file);
    AppendFixed32(encoded.size(), &file);
    AppendFixed32(Crc32c(encoded), &file);
    file += "HFdata01";
    disk_.SetContents(path, file);
    data.set_size(file.size());
    data.set_index_crc32c(Crc32c(encoded));
    change_manifest(&manifest);
    ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  }

  void ExpectDamaged(const std::string& text) {
    const absl::Status status = Load().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_EQ(Verify(), status);
  }

  static constexpr uint32_t kBucket = 9000;

  FaultyFileSystem disk_;
  const CheckpointDirectory directory_ =
      *CheckpointDirectory::Open("dir", &disk_);
  std::vector<uint64_t> ids_;
  TestSave base_, first_, second_;
};

TEST_F(TableChainTest, TheNewestCounts) {
  EXPECT_EQ(*Load(), second_.entries);
  EXPECT_TRUE(Verify().ok());
  const auto reader = CheckpointReader::Open(directory_, second_.name);
  // Computed by hand: the base has 4 rows of 32 bytes, and a candidate of 16;
  // the first delta 2 rows and 2 removed ids of 8 bytes; the second a row, a
  // candidate and 2 removed ids.
  const StoredCounts counts = (*reader)->CountRows("user", {});
  EXPECT_EQ(counts.rows, 3u);
  EXPECT_EQ(counts.candidates, 1u);
  EXPECT_EQ(counts.bytes, (4 * 32 + 16) + (2 * 32 + 16) + (32 + 16 + 16));
}

TEST_F(TableChainTest, RowsComeInTheOrderOfIdsAndBeforeCandidates) {
  std::vector<uint64_t> rows, candidates;
  const auto reader = CheckpointReader::Open(directory_, second_.name);
  ASSERT_TRUE((*reader)
                  ->ReadRows("user", {},
                             [&](const StoredRow& row) {
                               EXPECT_EQ(row.bucket, kBucket);
                               if (row.is_candidate) {
                                 candidates.push_back(row.id);
                               } else {
                                 EXPECT_THAT(candidates, IsEmpty());
                                 rows.push_back(row.id);
                               }
                               return absl::OkStatus();
                             })
                  .ok());
  EXPECT_THAT(rows, ElementsAre(ids_[0], ids_[1], ids_[4]));
  EXPECT_THAT(candidates, ElementsAre(ids_[2]));
}

TEST_F(TableChainTest, AVisitEndsTheReading) {
  const auto reader = CheckpointReader::Open(directory_, second_.name);
  const auto read_until = [&](uint64_t id, const absl::Status& status) {
    return (*reader)->ReadRows("user", {}, [&](const StoredRow& row) {
      return row.id == id ? status : absl::OkStatus();
    });
  };
  for (const int i : {0, 1, 4, 2}) {
    EXPECT_EQ(read_until(ids_[i], absl::AbortedError("enough")),
              absl::AbortedError("enough"));
  }
  // The error names the file that has the row.
  EXPECT_THAT(read_until(ids_[0], absl::DataLossError("is odd")).message(),
              AllOf(HasSubstr(File(first_, "ps-0001-of-0002: ")),
                    HasSubstr("bucket 9000: is odd")));
  EXPECT_THAT(read_until(ids_[1], absl::DataLossError("is odd")).message(),
              HasSubstr(File(second_, "ps-0000-of-0001: ")));
}

TEST_F(TableChainTest, ChangesAreToldSinceAnyStep) {
  const auto reader = CheckpointReader::Open(directory_, second_.name);
  for (const TestSave& save : {base_, first_, second_}) {
    TestEntries rows = RowsOf(save.entries);
    EXPECT_TRUE(Apply(reader->get(), save.name.step(), &rows).ok());
    EXPECT_EQ(rows, RowsOf(second_.entries)) << FolderName(save.name);
  }
  // For a step between two checkpoints, ids removed before it are reported
  // again.
  int removed = 0;
  const auto read = [&](uint64_t since_step) {
    return (*reader)->ReadChanges(
        "user", {}, since_step,
        [](const StoredRow&) { return absl::OkStatus(); },
        [&](uint32_t, uint64_t id) {
          EXPECT_TRUE(id == ids_[2] || id == ids_[3]) << id;
          ++removed;
          return absl::OkStatus();
        });
  };
  EXPECT_TRUE(read(29).ok());
  EXPECT_EQ(removed, 2);
  EXPECT_THAT(
      read(9).message(),
      AllOf(HasSubstr("table \"user\" were removed since step 9 is not known, "
                      "only since step 10"),
            HasSubstr("g0001-step00000010 does not list them")));
  EXPECT_EQ(read(31).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*reader)
                ->ReadChanges(
                    "other", {}, 20,
                    [](const StoredRow&) { return absl::OkStatus(); },
                    [](uint32_t, uint64_t) { return absl::OkStatus(); })
                .code(),
            absl::StatusCode::kNotFound);
}

// The walk passes a checkpoint with all rows that lists what was removed;
// beyond it there is no chain.
TEST_F(TableChainTest, ChangesAreToldThroughABase) {
  second_.writes_changes.clear();
  second_.chain.clear();
  Save(second_);
  auto reader = CheckpointReader::Open(directory_, second_.name);
  TestEntries rows = RowsOf(base_.entries);
  EXPECT_TRUE(Apply(reader->get(), 10, &rows).ok());
  EXPECT_EQ(rows, RowsOf(second_.entries));

  ASSERT_TRUE(directory_.Remove(first_.name).ok());
  EXPECT_EQ(*Load(), second_.entries);
  reader = CheckpointReader::Open(directory_, second_.name);
  rows = RowsOf(first_.entries);
  EXPECT_TRUE(Apply(reader->get(), 20, &rows).ok());
  EXPECT_EQ(rows, RowsOf(second_.entries));
  const absl::Status missing = Apply(reader->get(), 19, &rows);
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("only since step 20"),
                                       HasSubstr(File(first_, "MANIFEST"))));
}

TEST_F(TableChainTest, AmongTheBestItHasItsChain) {
  ASSERT_TRUE(directory_.KeepBest(second_.name).ok());
  for (const TestSave& save : {base_, first_, second_}) {
    ASSERT_TRUE(directory_.Remove(save.name).ok());
  }
  const CheckpointDirectory best = directory_.Best();
  EXPECT_EQ(*LoadTestEntries(best, second_.name), second_.entries);
  const auto reader =
      CheckpointReader::OpenFolder(best.Folder(second_.name) + "/", &disk_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE((*reader)->Verify().ok());
}

TEST_F(TableChainTest, EveryBitOfAChainCounts) {
  for (const std::string& path : FilesOfChain()) {
    const std::string contents = disk_.Contents(path);
    const bool is_data = path.find("MANIFEST") == std::string::npos;
    const size_t index =
        is_data ? Fixed64At(&contents[contents.size() - 24]) : 0;
    // Variables of links are not read; the rows are right before the index.
    size_t begin = 0;
    if (is_data && path != File(second_, "ps-0000-of-0001")) {
      begin = index - (path == File(base_, "ps-0000-of-0001")    ? 4 * 32 + 16
                       : path == File(first_, "ps-0001-of-0002") ? 2 * 32 + 16
                                                                 : 0);
    }
    for (size_t i = begin; i < contents.size(); i += i < index ? 1 : 97) {
      std::string damaged = contents;
      damaged[i] ^= 1 << (i % 8);
      disk_.SetContents(path, damaged);
      const absl::Status status = Verify();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss)
          << path << " byte " << i << ": " << status;
      EXPECT_THAT(status.message(), HasSubstr(path.substr(0, path.rfind('/'))));
    }
    disk_.SetContents(path, contents);
  }
  EXPECT_TRUE(Verify().ok());
}

TEST_F(TableChainTest, WhatIsNotThereIsMissed) {
  for (const TestSave& save : {base_, first_}) {
    for (const std::string& path : FilesOfChain()) {
      if (path.find(FolderName(save.name)) == std::string::npos) continue;
      ASSERT_TRUE(disk_.Rename(path, "dir/lost").ok());
      ExpectDamaged(path);
      ASSERT_TRUE(disk_.Rename("dir/lost", path).ok());
    }
    ASSERT_TRUE(directory_.Remove(save.name).ok());
    ExpectDamaged(
        absl::StrCat("needs ", FolderName(save.name), ", which is missing"));
    Save(save);
    EXPECT_EQ(*Load(), second_.entries);
  }
}

TEST_F(TableChainTest, AFileThatVanishesWhileItIsRead) {
  const auto reader = CheckpointReader::Open(directory_, second_.name);
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(directory_.Remove(base_.name).ok());
  const absl::Status status = (*reader)->Verify();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(File(base_,
                                               "ps-0000-of-0001: no "
                                               "longer exists")));
}

TEST_F(TableChainTest, WhatCannotBeReadNowIsNotDamaged) {
  disk_.SetReadFails(FolderName(base_.name),
                     absl::UnavailableError("input/output error"));
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TableChainTest, TheChainHasToFit) {
  const auto expect_damaged =
      [&](const std::string& text,
          const std::function<void(proto::Manifest*)>& change) {
        proto::Manifest manifest = *directory_.ReadManifest(second_.name);
        const proto::Manifest before = manifest;
        change(&manifest);
        ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
        ExpectDamaged(text);
        ASSERT_TRUE(directory_.WriteManifest(before).ok());
      };
  const auto link = [](proto::Manifest* m, int i) {
    return m->mutable_chain(i)->mutable_checkpoint();
  };
  expect_damaged("has a chain, but no previous checkpoint",
                 [](auto* m) { m->clear_previous(); });
  expect_damaged(
      "removed ids since step 20, but the manifest names no previous",
      [](auto* m) {
        m->clear_previous();
        m->clear_chain();
      });
  expect_damaged("names no checkpoint that has the other rows",
                 [](auto* m) { m->clear_chain(); });
  expect_damaged("its chain ends with g0001-step00000010",
                 [](auto* m) { m->mutable_chain()->RemoveLast(); });
  expect_damaged("no checkpoint of its chain has all rows",
                 [](auto* m) { m->mutable_chain()->DeleteSubrange(0, 1); });
  expect_damaged("cannot come after g0001-step00000040", [&](auto* m) {
    m->mutable_previous()->set_step(40);
    link(m, 1)->set_step(40);
  });
  expect_damaged("its chain has g0001-step00000020 after g0001-step00000025",
                 [&](auto* m) { link(m, 0)->set_step(25); });
  expect_damaged("after g0001-step00000009",
                 [&](auto* m) { link(m, 0)->set_step(9); });
  expect_damaged(
      "list removed ids since step 20, but the previous "
      "checkpoint has step 10",
      [&](auto* m) {
        *m->mutable_previous() = base_.name;
        m->mutable_chain()->RemoveLast();
      });
  EXPECT_EQ(*Load(), second_.entries);
}

TEST_F(TableChainTest, ALongerChainDoesNoHarm) {
  first_.writes_changes.clear();
  Save(first_);
  EXPECT_EQ(*Load(), second_.entries);
  const auto reader = CheckpointReader::Open(directory_, second_.name);
  // The base is not needed: not counted, and not read.
  EXPECT_EQ((*reader)->CountRows("user", {}).bytes,
            uint64_t{(4 * 32 + 16) + (32 + 16 + 16)});
  std::string contents = disk_.Contents(File(base_, "ps-0000-of-0001"));
  contents[Fixed64At(&contents[contents.size() - 24]) - 1] ^= 1;
  disk_.SetContents(File(base_, "ps-0000-of-0001"), contents);
  EXPECT_TRUE(Verify().ok());
}

TEST_F(TableChainTest, IndicesOfChangesHaveToFit) {
  const auto expect_damaged =
      [&](const TestSave& save, const std::string& text,
          const std::function<void(proto::StoredRows*)>& change) {
        Change(save, change);
        ExpectDamaged(text);
        Save(save);
      };
  constexpr int b = kBucket;
  const uint64_t many = uint64_t{1} << 60;
  expect_damaged(second_, "list removed ids since step 19",
                 [](auto* r) { r->set_since(19); });
  expect_damaged(second_, "list removed ids, but not since which step",
                 [](auto* r) { r->clear_since(); });
  expect_damaged(second_, "are changes, but not since a given step",
                 [](auto* r) {
                   r->clear_since();
                   r->clear_removed_rows();
                 });
  expect_damaged(second_, "are not changes, but have separate totals",
                 [](auto* r) { r->set_changes(false); });
  expect_damaged(second_, "but should have 5 and 1",
                 [](auto* r) { r->set_all_rows(b, 5); });
  expect_damaged(second_,
                 "has 3 rows and 1 candidates including those of its "
                 "chain, but should have 2 and 1",
                 [](auto* r) { r->set_all_rows(b, 2); });
  expect_damaged(second_, "more than its chain has",
                 [&](auto* r) { r->set_all_rows(b, many); });
  expect_damaged(second_, "more than its chain has",
                 [&](auto* r) { r->set_all_candidates(b, many); });
  for (const auto counts : {&proto::StoredRows::mutable_rows,
                            &proto::StoredRows::mutable_candidates,
                            &proto::StoredRows::mutable_removed_rows}) {
    for (const uint64_t count : {many, ~uint64_t{0}, ~uint64_t{0} / 8}) {
      expect_damaged(second_, "do not fit in the file",
                     [&](auto* r) { (r->*counts)()->Set(b, count); });
    }
  }
  expect_damaged(second_, "has extents up to byte",
                 [](auto* r) { r->set_removed_rows(b, 1); });
  for (const auto counts : {&proto::StoredRows::mutable_all_rows,
                            &proto::StoredRows::mutable_all_candidates,
                            &proto::StoredRows::mutable_removed_rows,
                            &proto::StoredRows::mutable_removed_candidates}) {
    expect_damaged(second_, "cannot cover 16384 buckets",
                   [&](auto* r) { (r->*counts)()->Resize(16383, 0); });
  }
  // A base that is marked as changes has no base itself.
  expect_damaged(base_, "are changes, but not since a given step",
                 [](auto* r) { r->set_changes(true); });
}

TEST_F(TableChainTest, RowsAreOfStepsThatCanBe) {
  const auto expect_damaged = [&](TestSave save, uint64_t step,
                                  const std::string& text) {
    save.entries[ids_[5]] = TestRowOf(ids_[5], step);
    Save(save);
    ExpectDamaged(absl::StrCat("row ", ids_[5], " has step ", step, text));
    save.entries[ids_[5]] = {step, 1, {}};
    Save(save);
    ExpectDamaged(absl::StrCat("row ", ids_[5], " has step ", step, text));
  };
  expect_damaged(second_, 31, ", which is after the checkpoint's");
  Save(second_);
  expect_damaged(base_, 11, ", which is after the checkpoint's");
  Save(base_);
  expect_damaged(first_, 21, ", which is after the checkpoint's");
  Save(first_);
  // Changes with a row of too early a step.
  TestSave early = second_;
  early.previous->set_step(4);
  early.chain = {};
  ASSERT_TRUE(SaveTestTable(directory_, early).ok());
  Change(
      early, [](auto* r) { r->set_since(20); },
      [&](proto::Manifest* m) {
        *m->mutable_previous() = first_.name;
        *m->add_chain()->mutable_checkpoint() = base_.name;
        *m->add_chain()->mutable_checkpoint() = first_.name;
      });
  ExpectDamaged(", but is among changes since step 20");
}

TEST_F(TableChainTest, RowsAreAsLongThroughTheChain) {
  auto writer = DataFileWriter::Create(directory_, base_.name, 0, 1);
  ASSERT_TRUE((*writer)->BeginRows({"user", 2, {}}).ok());
  for (uint32_t b = 0; b < kRowBuckets; ++b) {
    ASSERT_TRUE((*writer)->AppendBucket({}, "").ok());
  }
  const auto file = (*writer)->Finish();
  ASSERT_TRUE(file.ok());
  proto::Manifest manifest = TestManifest(base_.name, {}, {{"user", 2}});
  *manifest.add_files() = *file;
  ASSERT_TRUE(directory_.WriteManifest(manifest).ok());
  ExpectDamaged("rows have 2 float32; in a later checkpoint they have 4");
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/disk/directory_archive.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/disk/testing/disk_testing.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

proto::CheckpointName Name(uint64_t generation, uint64_t step) {
  proto::CheckpointName name;
  name.set_generation(generation);
  name.set_step(step);
  return name;
}

proto::Journal JournalOf(
    uint64_t generation,
    const std::vector<proto::CheckpointName>& checkpoints = {}) {
  proto::Journal journal;
  journal.set_directory_nonce(5);
  journal.set_generation(generation);
  journal.mutable_checkpoints()->Assign(checkpoints.begin(), checkpoints.end());
  return journal;
}

class DirectoryArchiveTest : public ::testing::Test {
 protected:
  CheckpointDirectory Directory() {
    return *CheckpointDirectory::Open("/checkpoints", &files_);
  }
  // An archive as made by a process that finds the journal as it is.
  std::unique_ptr<DirectoryArchive> Begin() {
    std::optional<proto::Journal> journal;
    if (auto found = Directory().ReadJournal(); found.ok()) journal = *found;
    return std::make_unique<DirectoryArchive>(Directory(), journal, &home_);
  }
  static absl::Status Write(Archive& archive, const proto::Journal& journal) {
    return Await<Done>([&](Reply<Done> reply) {
             archive.WriteJournal(journal, std::move(reply));
           })
        .status();
  }
  static absl::Status Write(Archive& archive, const proto::Manifest& manifest) {
    return Await<Done>([&](Reply<Done> reply) {
             archive.WriteManifest(manifest, std::move(reply));
           })
        .status();
  }
  static absl::Status Write(Archive& archive, const proto::History& history) {
    return Await<Done>([&](Reply<Done> reply) {
             archive.WriteHistory(history, std::move(reply));
           })
        .status();
  }
  static absl::StatusOr<proto::Manifest> Read(
      Archive& archive, const proto::CheckpointName& name) {
    return Await<proto::Manifest>([&](Reply<proto::Manifest> reply) {
      archive.ReadManifest(name, std::move(reply));
    });
  }
  uint64_t Generation() { return Directory().ReadJournal()->generation(); }
  // The steps of the checkpoints that have a folder.
  std::vector<uint64_t> Steps() {
    std::vector<uint64_t> steps;
    const auto names = Directory().List();
    for (const auto& name : *names) steps.push_back(name.step());
    return steps;
  }
  // Waits until everything asked for before is done.
  static void Flush(Archive& archive) {
    Read(archive, Name(1, 1)).IgnoreError();
  }

  FaultyFileSystem files_;
  Strand home_{"home"};
};

TEST_F(DirectoryArchiveTest, TheJournalIsReplaced) {
  const auto archive = Begin();
  for (const uint64_t generation : {1, 2, 3}) {
    ASSERT_TRUE(Write(*archive, JournalOf(generation)).ok());
    EXPECT_EQ(Generation(), generation);
  }
  const auto next_life = Begin();
  ASSERT_TRUE(Write(*next_life, JournalOf(4)).ok());
  EXPECT_EQ(Generation(), 4u);
}

TEST_F(DirectoryArchiveTest, AnotherCoordinatorsJournalStands) {
  const auto first = Begin();
  const auto second = Begin();
  ASSERT_TRUE(Write(*first, JournalOf(1)).ok());
  const auto refused = [](const absl::Status& status) {
    return Fails(status, absl::StatusCode::kAborted,
                 {"/checkpoints", "another coordinator"});
  };
  EXPECT_TRUE(refused(Write(*second, JournalOf(9)))) << "it had found none";
  EXPECT_EQ(Generation(), 1u);
  const auto third = Begin();
  ASSERT_TRUE(Write(*third, JournalOf(2)).ok());
  EXPECT_TRUE(refused(Write(*first, JournalOf(3))));
  EXPECT_EQ(Generation(), 2u);
}

// After an error the journal is the old or the new one; both are the archive's
// own.
TEST_F(DirectoryArchiveTest, AfterAnErrorItGoesOnFromWhatStands) {
  const auto archive = Begin();
  ASSERT_TRUE(Write(*archive, JournalOf(1)).ok());
  const int64_t before = files_.writes();
  ASSERT_TRUE(Write(*archive, JournalOf(2)).ok());
  const int64_t writes = files_.writes() - before;
  ASSERT_GT(writes, 2);
  uint64_t generation = 2;
  bool old_stood = false;
  bool new_stood = false;
  for (int64_t n = 1; n <= writes; ++n) {
    SCOPED_TRACE(n);
    const uint64_t last = generation;
    files_.FailWrite(n, absl::ResourceExhaustedError("the disk is full"));
    EXPECT_FALSE(Write(*archive, JournalOf(++generation)).ok());
    (Generation() == last ? old_stood : new_stood) = true;
    ASSERT_TRUE(Write(*archive, JournalOf(++generation)).ok());
    EXPECT_EQ(Generation(), generation);
  }
  EXPECT_TRUE(old_stood);
  EXPECT_TRUE(new_stood);
}

TEST_F(DirectoryArchiveTest, ADamagedJournalIsNotReplaced) {
  const auto archive = Begin();
  ASSERT_TRUE(Write(*archive, JournalOf(1)).ok());
  const std::string file = files_.Files()[0];
  std::string contents = files_.Contents(file);
  contents[contents.size() / 2] ^= 1;
  files_.SetContents(file, contents);
  EXPECT_TRUE(
      Fails(Write(*archive, JournalOf(2)), absl::StatusCode::kDataLoss));
}

TEST_F(DirectoryArchiveTest, TheHistoryIsThatOfTheJournalsOwner) {
  const auto archive = Begin();
  ASSERT_TRUE(Write(*archive, JournalOf(1)).ok());
  proto::History history;
  history.add_points()->set_step(7);
  ASSERT_TRUE(Write(*archive, history).ok());
  EXPECT_EQ(Directory().ReadHistory()->points_size(), 1);
  // Only checkpoints are removed.
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_EQ(Directory().ReadHistory()->points_size(), 1);

  const auto next = Begin();
  ASSERT_TRUE(Write(*next, JournalOf(2)).ok());
  history.add_points()->set_step(8);
  EXPECT_TRUE(Fails(Write(*archive, history), absl::StatusCode::kAborted));
  EXPECT_EQ(Directory().ReadHistory()->points_size(), 1);
  ASSERT_TRUE(Write(*next, history).ok());
  EXPECT_EQ(Directory().ReadHistory()->points_size(), 2);
}

TEST_F(DirectoryArchiveTest, ManifestsAreWrittenAndRead) {
  const auto archive = Begin();
  EXPECT_TRUE(
      Fails(Read(*archive, Name(1, 7)).status(), absl::StatusCode::kNotFound));
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(1, 7);
  manifest.mutable_position()->set_updates(6);
  ASSERT_TRUE(Write(*archive, manifest).ok());
  EXPECT_EQ(Read(*archive, Name(1, 7))->position().updates(), 6u);
  manifest.add_files()->set_name("lost");
  ASSERT_TRUE(Write(*archive, manifest).ok());
  EXPECT_TRUE(
      Fails(Read(*archive, Name(1, 7)).status(), absl::StatusCode::kDataLoss));
}

TEST_F(DirectoryArchiveTest, WhatTheJournalDoesNotNameIsRemoved) {
  const auto archive = Begin();
  for (const uint64_t step : {1, 2, 3, 4}) {
    proto::Manifest manifest;
    *manifest.mutable_name() = Name(1, step);
    ASSERT_TRUE(Write(*archive, manifest).ok());
  }
  ASSERT_TRUE(
      Write(*archive, JournalOf(1, {Name(1, 2), Name(2, 1), Name(1, 3)})).ok());
  const proto::CheckpointName under_way = Name(1, 4);
  archive->RemoveOthers(&under_way);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(2, 3, 4));
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(2, 3));
}

TEST_F(DirectoryArchiveTest, WhatIsSetAsideIsNotRemoved) {
  const auto archive = Begin();
  for (const uint64_t step : {1, 2}) {
    proto::Manifest manifest;
    *manifest.mutable_name() = Name(1, step);
    ASSERT_TRUE(Write(*archive, manifest).ok());
  }
  // A checkpoint that cannot be renamed stays as it is.
  files_.FailWrite(1, absl::UnavailableError("a stale view"));
  archive->SetAside(Name(1, 2));
  ASSERT_TRUE(Write(*archive, JournalOf(1, {Name(1, 1)})).ok());
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  files_.FailWrite(1, absl::UnavailableError("a stale view"));
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_THAT(files_.Files(), Contains(HasSubstr("set-aside/MANIFEST")));
}

TEST_F(DirectoryArchiveTest, ABadSectorIsToldFromADiskThatIsAway) {
  const auto archive = Begin();
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(1, 7);
  ASSERT_TRUE(Write(*archive, manifest).ok());
  ASSERT_TRUE(Write(*archive, JournalOf(1, {Name(1, 7)})).ok());
  const auto io_error = absl::UnavailableError("input/output error");
  files_.SetReadFails("MANIFEST", io_error);
  EXPECT_TRUE(
      Fails(Read(*archive, Name(1, 7)).status(), absl::StatusCode::kUnknown));
  files_.SetReadFails("/", io_error);
  EXPECT_TRUE(Fails(Read(*archive, Name(1, 7)).status(),
                    absl::StatusCode::kUnavailable));
}

// Checkpoints of a job with a table.
class ChainsOfArchiveTest : public DirectoryArchiveTest {
 protected:
  // A journal with these steps, and these among the best.
  static proto::Journal Journal(const std::vector<uint64_t>& steps,
                                const std::vector<uint64_t>& best = {}) {
    proto::Journal journal = JournalOf(1);
    journal.mutable_declaration()->add_tables()->set_name("user");
    for (const uint64_t step : steps) {
      *journal.add_checkpoints() = Name(1, step);
    }
    for (const uint64_t step : best) *journal.add_best() = Name(1, step);
    return journal;
  }
  // Checkpoints of steps 1 to 6: 1 and 4 have all rows.
  static void WriteAll(Archive& archive) {
    std::vector<uint64_t> chain;
    for (uint64_t step = 1; step <= 6; ++step) {
      proto::Manifest manifest;
      *manifest.mutable_name() = Name(1, step);
      if (step > 1) *manifest.mutable_previous() = Name(1, step - 1);
      if (step == 4) chain.clear();
      for (const uint64_t link : chain) {
        *manifest.add_chain()->mutable_checkpoint() = Name(1, link);
      }
      chain.push_back(step);
      ASSERT_TRUE(Write(archive, manifest).ok());
    }
  }
  std::vector<uint64_t> BestSteps() {
    std::vector<uint64_t> steps;
    const auto names = Directory().Best().List();
    if (!names.ok()) return steps;
    for (const auto& name : *names) steps.push_back(name.step());
    return steps;
  }
};

TEST_F(ChainsOfArchiveTest, WhatIsNeededStays) {
  const auto archive = Begin();
  WriteAll(*archive);
  ASSERT_TRUE(Write(*archive, Journal({3, 6})).ok());
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5, 6));
  // The checkpoint before one with all rows is not needed.
  ASSERT_TRUE(Write(*archive, Journal({5})).ok());
  const proto::CheckpointName under_way = Name(1, 6);
  archive->RemoveOthers(&under_way);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(4, 5, 6));
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(4, 5));
}

TEST_F(ChainsOfArchiveTest, ADamagedOneNeedsNothing) {
  const auto archive = Begin();
  WriteAll(*archive);
  const std::string file = Directory().Folder(Name(1, 3)) + "/MANIFEST";
  files_.SetContents(file, "HFmani01");
  ASSERT_TRUE(Write(*archive, Journal({3, 5, 7})).ok());
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(3, 4, 5));
}

TEST_F(ChainsOfArchiveTest, WhileAManifestCannotBeReadNothingIsRemoved) {
  const auto archive = Begin();
  WriteAll(*archive);
  ASSERT_TRUE(Write(*archive, Journal({5}, {2})).ok());
  ASSERT_TRUE(Await<Done>([&](Reply<Done> reply) {
                archive->KeepBest(Name(1, 2), std::move(reply));
              }).ok());
  files_.SetReadFails("MANIFEST", absl::UnavailableError("input/output error"));
  archive->RemoveOthers(nullptr);
  archive->RemoveOthersOfBest();
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(BestSteps(), ElementsAre(1, 2));
  files_.SetReadFails("", absl::OkStatus());
  archive->RemoveOthers(nullptr);
  archive->RemoveOthersOfBest();
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(4, 5));
  EXPECT_THAT(BestSteps(), ElementsAre(1, 2));
  // What the checkpoint needs is known by now.
  files_.SetReadFails("MANIFEST", absl::UnavailableError("input/output error"));
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(1, 9);
  ASSERT_TRUE(Write(*archive, manifest).ok());
  archive->RemoveOthers(nullptr);
  Flush(*archive);
  EXPECT_THAT(Steps(), ElementsAre(4, 5));
}

TEST_F(ChainsOfArchiveTest, TheBestAreKeptWithWhatTheyNeed) {
  const auto archive = Begin();
  WriteAll(*archive);
  for (const uint64_t step : {3, 6}) {
    ASSERT_TRUE(Await<Done>([&](Reply<Done> reply) {
                  archive->KeepBest(Name(1, step), std::move(reply));
                }).ok());
  }
  EXPECT_THAT(BestSteps(), ElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_TRUE(Write(*archive, Journal({}, {3, 5})).ok());
  archive->RemoveOthers(nullptr);
  archive->RemoveOthersOfBest();
  Flush(*archive);
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_THAT(BestSteps(), ElementsAre(1, 2, 3, 4, 5));
  ASSERT_TRUE(Write(*archive, Journal({}, {4})).ok());
  archive->RemoveOthersOfBest();
  Flush(*archive);
  EXPECT_THAT(BestSteps(), ElementsAre(4));
}

TEST_F(ChainsOfArchiveTest, OneWithoutItsChainIsNotAmongTheBest) {
  const auto archive = Begin();
  WriteAll(*archive);
  ASSERT_TRUE(Directory().Remove(Name(1, 1)).ok());
  EXPECT_TRUE(Fails(Await<Done>([&](Reply<Done> reply) {
                      archive->KeepBest(Name(1, 3), std::move(reply));
                    }).status(),
                    absl::StatusCode::kDataLoss,
                    {"needs g0001-step00000001, which is missing"}));
}

TEST_F(DirectoryArchiveTest, WithAnotherCoordinatorsJournalNothingIsRemoved) {
  const auto first = Begin();
  ASSERT_TRUE(Write(*first, JournalOf(1)).ok());
  const auto second = Begin();
  ASSERT_TRUE(Write(*second, JournalOf(2)).ok());
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(2, 5);
  ASSERT_TRUE(Write(*second, manifest).ok());
  first->RemoveOthers(nullptr);
  Flush(*first);
  EXPECT_THAT(Steps(), ElementsAre(5));
  second->RemoveOthers(nullptr);
  Flush(*second);
  EXPECT_THAT(Steps(), IsEmpty());
}

}  // namespace
}  // namespace holdfast

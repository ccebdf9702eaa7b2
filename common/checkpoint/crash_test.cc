// SPDX-License-Identifier: Apache-2.0

// A crash, a full disk or a failing one leaves a checkpoint directory in the
// state before or the state after, and never in another one or a mixture.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/testing/checkpoint_testing.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using Unsynced = FaultyFileSystem::Unsynced;

constexpr uint32_t kPs = 2;

// The n-th checkpoint of a job: step and values depend on n. Rows have steps
// from 10 n to 10 n + 2.
proto::CheckpointName Nth(uint32_t n) { return TestName(1, 10 * n + 2); }

// Takes the n-th checkpoint as a job does that keeps one: writes data files,
// manifest and journal, and removes the previous checkpoint.
absl::Status TakeNth(const CheckpointDirectory& directory, uint32_t n,
                     const std::vector<TestTable>& tables = {}) {
  absl::Status status =
      SaveTestCheckpoint(directory, Nth(n), SmallVariables(), kPs, n, tables);
  if (!status.ok()) return status;
  proto::Journal journal;
  journal.set_generation(1);
  *journal.add_checkpoints() = Nth(n);
  status = directory.WriteJournal(journal);
  if (!status.ok()) return status;
  return directory.Remove(Nth(n - 1));
}

// The number of the checkpoint that a job would resume from; 0 if it starts
// anew. Checks that it is complete.
uint32_t GoOnFrom(const CheckpointDirectory& directory,
                  const std::vector<TestTable>& tables = {}) {
  const auto journal = directory.ReadJournal();
  if (absl::IsNotFound(journal.status())) return 0;
  EXPECT_TRUE(journal.ok()) << journal.status();
  if (!journal.ok()) return 0;
  EXPECT_EQ(journal->checkpoints_size(), 1);
  const uint32_t n = journal->checkpoints(0).step() / 10;
  const auto state = LoadTestCheckpoint(directory, Nth(n));
  EXPECT_TRUE(state.ok()) << state.status();
  if (state.ok()) {
    EXPECT_EQ(*state, MakeTestState(SmallVariables(), n, tables));
  }
  return n;
}

// Every checkpoint with a manifest is complete.
void ExpectNothingElse(const CheckpointDirectory& directory,
                       const std::vector<TestTable>& tables = {}) {
  const auto listed = directory.List();
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (const proto::CheckpointName& name : *listed) {
    const auto state = LoadTestCheckpoint(directory, name);
    if (state.ok()) {
      EXPECT_EQ(*state,
                MakeTestState(SmallVariables(), name.step() / 10, tables));
    } else {
      EXPECT_TRUE(absl::IsNotFound(state.status())) << state.status();
    }
  }
}

struct Crash {
  Unsynced unsynced;
  uint64_t seed;
};

std::vector<Crash> Crashes(uint64_t seeds = 20) {
  std::vector<Crash> crashes = {{Unsynced::kLost, 0}, {Unsynced::kKept, 0}};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    crashes.push_back({Unsynced::kPartly, seed});
  }
  return crashes;
}

struct Stopped {
  // The checkpoint at which it stops.
  uint32_t n;
  std::vector<TestTable> tables;
  uint64_t seeds;
};

class CrashTest : public ::testing::TestWithParam<Stopped> {};

INSTANTIATE_TEST_SUITE_P(FirstAndSecond, CrashTest,
                         ::testing::Values(Stopped{1, {}, 20},
                                           Stopped{2, {}, 20}));
// Few, because the index of a table takes long to write.
INSTANTIATE_TEST_SUITE_P(WithTables, CrashTest,
                         ::testing::Values(Stopped{2, SmallTables(), 2}));

TEST_P(CrashTest, StopAtAnyWriteLeavesOneOfTwoStates) {
  const auto& [n, tables, seeds] = GetParam();
  for (const Crash& crash : Crashes(seeds)) {
    bool stopped = true;
    for (int64_t write = 1; stopped; ++write) {
      SCOPED_TRACE(absl::StrCat("write ", write, ", unsynced ",
                                static_cast<int>(crash.unsynced), ", seed ",
                                crash.seed));
      FaultyFileSystem disk;
      const auto directory = *CheckpointDirectory::Open("dir", &disk);
      for (uint32_t before = 1; before < n; ++before) {
        ASSERT_TRUE(TakeNth(directory, before, tables).ok());
      }
      disk.StopAtWrite(write);
      const absl::Status taken = TakeNth(directory, n, tables);
      stopped = disk.stopped();
      EXPECT_EQ(taken.ok(), !stopped) << taken;
      disk.Crash(crash.unsynced, crash.seed);

      const uint32_t found = GoOnFrom(directory, tables);
      if (taken.ok()) {
        EXPECT_EQ(found, n);
        EXPECT_EQ(directory.List()->size(), 1u);
      } else {
        EXPECT_TRUE(found == n || found == n - 1) << found;
      }
      ExpectNothingElse(directory, tables);
      // Leftovers do no harm.
      EXPECT_TRUE(directory.Remove(Nth(n + 1 - (found == n))).ok());
      EXPECT_TRUE(TakeNth(directory, found + 1, tables).ok());
      EXPECT_EQ(GoOnFrom(directory, tables), found + 1);
      if (HasFailure()) return;
    }
  }
}

// A job with a table; n determines which rows are touched and removed. Every
// third checkpoint has all rows, those between have changes.
class ChainedJob {
 public:
  explicit ChainedJob(const CheckpointDirectory& directory)
      : directory_(directory) {}

  // The entries of the n-th checkpoint; adds to `save` what was removed for it.
  static TestEntries EntriesOf(uint32_t n, TestSave* save = nullptr) {
    TestEntries entries, before;
    for (uint64_t k = 1; k <= n; ++k) {
      before = entries;
      for (uint64_t id = 0; id < 12; ++id) {
        if ((id + k) % 3 == 0) entries[id] = TestRowOf(id, 10 * k);
        if ((id + k) % 5 == 0) entries.erase(id);
        if ((id + k) % 7 == 0) entries[id] = {10 * k, 1, {}};
      }
    }
    if (save != nullptr) AddRemoved(before, entries, save);
    return entries;
  }

  // Takes the n-th checkpoint as a job does that keeps one, and also keeps it
  // among the best.
  absl::Status Take(uint32_t n) {
    TestSave save;
    save.name = Nth(n);
    save.num_ps = kPs;
    save.seed = n;
    save.entries = EntriesOf(n, &save);
    if (n > 1) {
      save.previous = Nth(n - 1);
      save.lists_removed = {0, 1};
    }
    const uint32_t base = n - (n - 1) % 3;
    for (uint32_t link = base; link < n; ++link) {
      save.chain.push_back(Nth(link));
    }
    if (n > base) save.writes_changes = {0, 1};
    absl::Status status = SaveTestTable(directory_, save);
    if (status.ok()) status = directory_.KeepBest(save.name);
    proto::Journal journal;
    journal.set_generation(1);
    *journal.add_checkpoints() = save.name;
    if (status.ok()) status = directory_.WriteJournal(journal);
    for (uint32_t old = 1; status.ok() && old < base; ++old) {
      status = directory_.Remove(Nth(old));
    }
    return status;
  }

  // The checkpoint that the job would resume from. Checks that it and every
  // complete one among the best can be read.
  uint32_t GoOnFrom() {
    const auto best = directory_.Best().List();
    if (best.ok()) {
      for (const proto::CheckpointName& name : *best) {
        const auto entries = LoadTestEntries(directory_.Best(), name);
        if (absl::IsNotFound(entries.status())) continue;
        EXPECT_TRUE(entries.ok()) << entries.status();
        if (entries.ok()) {
          EXPECT_EQ(*entries, EntriesOf(name.step() / 10));
        }
      }
    }
    const auto journal = directory_.ReadJournal();
    if (absl::IsNotFound(journal.status())) return 0;
    EXPECT_TRUE(journal.ok()) << journal.status();
    if (!journal.ok()) return 0;
    const uint32_t n = journal->checkpoints(0).step() / 10;
    const auto entries = LoadTestEntries(directory_, Nth(n));
    EXPECT_TRUE(entries.ok()) << entries.status();
    if (entries.ok()) {
      EXPECT_EQ(*entries, EntriesOf(n));
    }
    return n;
  }

 private:
  const CheckpointDirectory& directory_;
};

TEST(ChainCrashTest, StopAtAnyWriteLeavesOneOfTwoStates) {
  // The third has a chain of two; the fourth removes it.
  for (const uint32_t n : {3, 4}) {
    for (const Crash& crash : Crashes(1)) {
      bool stopped = true;
      for (int64_t write = 1; stopped; ++write) {
        SCOPED_TRACE(absl::StrCat("checkpoint ", n, ", write ", write,
                                  ", unsynced ",
                                  static_cast<int>(crash.unsynced)));
        FaultyFileSystem disk;
        const auto directory = *CheckpointDirectory::Open("dir", &disk);
        ChainedJob job(directory);
        for (uint32_t before = 1; before < n; ++before) {
          ASSERT_TRUE(job.Take(before).ok());
        }
        disk.StopAtWrite(write);
        const absl::Status taken = job.Take(n);
        stopped = disk.stopped();
        EXPECT_EQ(taken.ok(), !stopped) << taken;
        disk.Crash(crash.unsynced, crash.seed);
        const uint32_t found = job.GoOnFrom();
        if (taken.ok()) {
          EXPECT_EQ(found, n);
          EXPECT_EQ(directory.List()->size(), n == 3 ? 3u : 1u);
        } else {
          EXPECT_TRUE(found == n || found == n - 1) << found;
        }
        // Leftovers of the next one would have another name.
        ASSERT_TRUE(directory.Remove(Nth(found + 1)).ok());
        ASSERT_TRUE(directory.Best().Remove(Nth(found + 1)).ok());
        ASSERT_TRUE(job.Take(found + 1).ok());
        EXPECT_EQ(job.GoOnFrom(), found + 1);
        if (HasFailure()) return;
      }
    }
  }
}

// From a coordinator's view: a single file whose write returned OK survives the
// crash.
TEST(DurabilityTest, WhatIsAcknowledgedIsThere) {
  for (const Crash& crash : Crashes()) {
    FaultyFileSystem disk;
    const auto directory = *CheckpointDirectory::Open("dir", &disk);
    auto writer = DataFileWriter::Create(directory, Nth(1), 0, kPs);
    const auto file = (*writer)->Finish();
    ASSERT_TRUE(file.ok()) << file.status();
    disk.Crash(crash.unsynced, crash.seed);
    const std::string path =
        absl::StrCat(directory.Folder(Nth(1)), "/", file->name());
    ASSERT_EQ(disk.Files(), std::vector<std::string>{path});
    EXPECT_EQ(disk.Contents(path).size(), file->size());
    ASSERT_TRUE(
        SaveTestCheckpoint(directory, Nth(1), SmallVariables(), kPs, 1).ok());
    disk.Crash(crash.unsynced, crash.seed);
    EXPECT_TRUE(LoadTestCheckpoint(directory, Nth(1)).ok());
    proto::Journal journal;
    journal.set_generation(7);
    ASSERT_TRUE(directory.WriteJournal(journal).ok());
    disk.Crash(crash.unsynced, crash.seed);
    EXPECT_EQ(directory.ReadJournal()->generation(), 7u);
    ASSERT_TRUE(directory.Remove(Nth(1)).ok());
    disk.Crash(crash.unsynced, crash.seed);
    EXPECT_TRUE(directory.List()->empty());
  }
}

// One write fails, or all of a kind, and the process continues.
class FailureTest : public ::testing::Test {
 protected:
  FailureTest() { EXPECT_TRUE(TakeNth(directory_, 1).ok()); }

  // The second checkpoint fails with `code`; the first remains, before and
  // after a crash.
  void ExpectFails(absl::StatusCode code) {
    EXPECT_EQ(TakeNth(directory_, 2).code(), code);
    EXPECT_EQ(GoOnFrom(directory_), 1u);
    ExpectNothingElse(directory_);
  }

  FaultyFileSystem disk_;
  const CheckpointDirectory directory_ =
      *CheckpointDirectory::Open("dir", &disk_);
};

TEST_F(FailureTest, AnyWriteMayFailOnce) {
  const int64_t before = disk_.writes();
  ASSERT_TRUE(TakeNth(directory_, 2).ok());
  const int64_t writes = disk_.writes() - before;
  for (int64_t write = 1; write <= writes; ++write) {
    SCOPED_TRACE(write);
    FaultyFileSystem disk;
    const auto directory = *CheckpointDirectory::Open("dir", &disk);
    ASSERT_TRUE(TakeNth(directory, 1).ok());
    disk.FailWrite(write, absl::UnavailableError("Input/output error"));
    EXPECT_EQ(TakeNth(directory, 2).code(), absl::StatusCode::kUnavailable);
    const uint32_t found = GoOnFrom(directory);
    EXPECT_TRUE(found == 1 || found == 2) << found;
    ExpectNothingElse(directory);
    for (const std::string& file : disk.Files()) {
      EXPECT_EQ(file.find(".tmp"), std::string::npos) << file;
    }
    ASSERT_TRUE(TakeNth(directory, 2).ok());
    EXPECT_EQ(GoOnFrom(directory), 2u);
  }
}

TEST_F(FailureTest, FullDisk) {
  for (uint64_t bytes = 0; bytes < 900; bytes += 7) {
    SCOPED_TRACE(bytes);
    disk_.SetSpace(bytes);
    ExpectFails(absl::StatusCode::kResourceExhausted);
  }
  disk_.Crash(Unsynced::kLost);
  EXPECT_EQ(GoOnFrom(directory_), 1u);
}

TEST_F(FailureTest, ReadOnlyDisk) {
  disk_.SetReadOnly(true);
  ExpectFails(absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(directory_.Lock("anybody").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(FailureTest, DiskThatDoesNotSync) {
  disk_.SetSyncFails(true);
  ExpectFails(absl::StatusCode::kUnavailable);
  proto::Journal journal;
  EXPECT_EQ(directory_.WriteJournal(journal).code(),
            absl::StatusCode::kUnavailable);
  disk_.Crash(Unsynced::kLost);
  EXPECT_EQ(GoOnFrom(directory_), 1u);
}

}  // namespace
}  // namespace holdfast

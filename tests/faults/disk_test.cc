// SPDX-License-Identifier: Apache-2.0

// Jobs on disks that fail, in directories of other jobs, and with checkpoints
// that were damaged or moved while no task ran: the job goes on, rolls back, or
// reports what is wrong; it never has a wrong value.

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/process/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/faults/outcome.h"
#include "tests/faults/rows_job.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);

// Makes mounts of this process and its children invisible to others; the end of
// the last of them undoes what is mounted, also if it crashes.
bool HasOwnMounts() {
  static const bool own =
      unshare(CLONE_NEWNS) == 0 &&
      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  return own;
}

// An in-memory file system that is unmounted when the object is destroyed.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const std::string& size) : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = HasOwnMounts() && mount("none", path.c_str(), "tmpfs", 0,
                                       ("size=" + size).c_str()) == 0;
  }
  // Mounts the same disk at another path.
  SmallDisk(const std::string& path, const SmallDisk& of) : path_(path) {
    std::filesystem::create_directories(path);
    mounted_ = of.mounted_ && mount(of.path_.c_str(), path.c_str(), nullptr,
                                    MS_BIND, nullptr) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // False if this process may not mount.
  bool mounted() const { return mounted_; }
  // Affects only this mount of the disk.
  void SetReadOnly(bool read_only) {
    EXPECT_EQ(
        mount("none", path_.c_str(), nullptr,
              MS_REMOUNT | MS_BIND | (read_only ? MS_RDONLY : 0), nullptr),
        0)
        << std::strerror(errno);
  }
  // Takes all the space that is left, while others may take of it; Free gives
  // it back.
  void Fill() {
    std::ofstream ballast(path_ + "/ballast", std::ios::binary);
    const std::string page(4096, 'x');
    while (ballast << page << std::flush) {
    }
    EXPECT_EQ(errno, ENOSPC);
  }
  void Free() { std::filesystem::remove(path_ + "/ballast"); }

 private:
  const std::string path_;
  bool mounted_;
};

class DiskTest : public ::testing::Test {
 protected:
  explicit DiskTest(JobKind kind = JobKind::kSynchronous)
      : kind_(kind),
        folder_(FreshFolder()),
        options_(SmallCluster(kind, folder_)) {}

  // The digest of the same job, undisturbed, which is run once for all tests.
  std::string Digest() {
    static auto* const digests = new std::map<JobKind, std::string>;
    std::string& digest = (*digests)[kind_];
    if (digest.empty()) {
      const auto found =
          DigestInPeace(kind_, absl::StrCat(::testing::TempDir(), "/peace"));
      EXPECT_TRUE(found.ok()) << found.status();
      if (found.ok()) digest = *found;
    }
    return digest;
  }

  // Starts the job, and kills all of its tasks when a checkpoint beyond `step`
  // is on disk.
  void RunUntilSaved(uint64_t step) {
    TaskCluster cluster(options_);
    cluster.StartAll();
    ASSERT_TRUE(cluster.AdvanceUntil(
        [&] { return cluster.status().durable_step() > step; }, kLimit))
        << cluster.Describe();
  }

  void ExpectTheRightEnd(TaskCluster* cluster) {
    const absl::Status ended = cluster->AwaitEnd(kLimit);
    EXPECT_TRUE(ended.ok()) << ended;
    const absl::Status right = CheckEnd(kind_, *cluster, Digest());
    EXPECT_TRUE(right.ok()) << right << cluster->Describe();
  }

  // Expects the task to exit by itself, with this code and this text in its
  // log.
  void ExpectACleanError(TaskCluster* cluster, const std::string& task,
                         int code, const std::string& text) {
    EXPECT_TRUE(cluster->AdvanceUntil(
        [&] { return cluster->exit_code(task) == code; }, kLimit))
        << cluster->Describe();
    EXPECT_THAT(cluster->log(task), HasSubstr(text));
  }

  void ExpectPs0Says(TaskCluster* cluster, const std::string& text) {
    EXPECT_TRUE(cluster->AdvanceUntil(
        [&] { return absl::StrContains(cluster->log("ps-0"), text); }, kLimit))
        << cluster->Describe();
  }

  // Preloads bad_disk into all tasks from their next start on, with `setting`
  // in their environment.
  void PreloadABadDisk(const std::string& setting) {
    options_.launcher = [setting](const std::string&) {
      return std::vector<std::string>{
          "env", "LD_PRELOAD=tests/faults/libbad_disk.so", setting};
    };
  }

  // The checkpoints that the journal names, oldest first. A kill may leave
  // others.
  struct Saved {
    CheckpointDirectory directory;
    std::vector<proto::CheckpointName> names;
  };
  absl::StatusOr<Saved> ReadSaved() const {
    const auto directory = CheckpointDirectory::OpenToRead(
        folder_ + "/checkpoints", PosixFileSystem());
    if (!directory.ok()) return directory.status();
    const auto journal = directory->ReadJournal();
    if (!journal.ok()) return journal.status();
    return Saved{
        *directory,
        {journal->checkpoints().begin(), journal->checkpoints().end()}};
  }
  std::vector<std::filesystem::path> Checkpoints() const {
    const auto saved = ReadSaved();
    EXPECT_TRUE(saved.ok()) << saved.status();
    std::vector<std::filesystem::path> folders;
    for (const proto::CheckpointName& name : saved->names) {
      folders.push_back(saved->directory.Folder(name));
    }
    return folders;
  }

  // Flips a bit within the first data file.
  static void Damage(const std::filesystem::path& checkpoint) {
    const std::string file = checkpoint / "ps-0000-of-0002";
    std::string bytes = ReadText(file);
    ASSERT_GT(bytes.size(), 100) << file;
    bytes[bytes.size() / 3] ^= 1;
    WriteText(file, bytes);
  }

  const JobKind kind_;
  const std::string folder_;
  TaskCluster::Options options_;
};

// Tests that run for a job without embedding tables and for one with them.
class AnyDiskTest : public DiskTest,
                    public ::testing::WithParamInterface<JobKind> {
 protected:
  AnyDiskTest() : DiskTest(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Jobs, AnyDiskTest,
                         ::testing::Values(JobKind::kSynchronous,
                                           JobKind::kTables),
                         [](const auto& info) {
                           return std::string(NameOf(info.param));
                         });

class TablesDiskTest : public DiskTest {
 protected:
  TablesDiskTest() : DiskTest(JobKind::kTables) {}

  // Damages the middle of a row of the table.
  static void DamageRow(const std::filesystem::path& checkpoint, size_t table) {
    // Every batch uses this row, so it exists. Its id may occur in several
    // tables.
    const uint64_t id = RowsOfAll().back();
    const std::string id_bytes(reinterpret_cast<const char*>(&id), sizeof(id));
    for (const char* name : {"ps-0000-of-0002", "ps-0001-of-0002"}) {
      const std::string file = checkpoint / name;
      std::string bytes = ReadText(file);
      size_t at = bytes.find(id_bytes);
      // Each table has a row of that id, in the order of the declaration.
      for (size_t i = 0; i < table && at != std::string::npos; ++i) {
        at = bytes.find(id_bytes, at + 1);
      }
      if (at == std::string::npos) continue;
      bytes[at] ^= 1;
      WriteText(file, bytes);
      return;
    }
    FAIL() << "no row of id " << id << " in " << checkpoint;
  }

  // The index of the base of the newest checkpoint, if that is a delta and
  // `before` or more checkpoints precede its base. Otherwise nothing.
  static std::optional<size_t> BaseOfNewest(const absl::StatusOr<Saved>& saved,
                                            size_t before) {
    if (!saved.ok() || saved->names.empty()) return std::nullopt;
    const auto manifest = saved->directory.ReadManifest(saved->names.back());
    if (!manifest.ok() || manifest->chain().empty()) return std::nullopt;
    const proto::CheckpointName& base = manifest->chain(0).checkpoint();
    for (size_t i = before; i < saved->names.size(); ++i) {
      if (FolderName(saved->names[i]) == FolderName(base)) return i;
    }
    return std::nullopt;
  }

  // Runs the job and kills all of its tasks, until there is such a base.
  // "dense" makes up most of a checkpoint, so about every other one is a delta.
  void RunUntilDelta(size_t before) {
    const auto is_there = [&] {
      return BaseOfNewest(ReadSaved(), before).has_value();
    };
    do {
      TaskCluster cluster(options_);
      cluster.StartAll();
      ASSERT_TRUE(cluster.AdvanceUntil(is_there, kLimit)) << cluster.Describe();
      // The job may have saved another checkpoint before it was killed.
    } while (!is_there());
  }
};

TEST_F(DiskTest, GoesOnWhereItWasWhenAllIsStartedAgain) {
  RunUntilSaved(20);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
  EXPECT_THAT(cluster.log("ps-0"), ContainsRegex("resumes from step [2-7]"));
}

// A finished job is not run again.
TEST_F(DiskTest, AFinishedJobStaysFinished) {
  {
    TaskCluster cluster(options_);
    cluster.StartAll();
    ExpectTheRightEnd(&cluster);
  }
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
  EXPECT_THAT(cluster.log("worker-1"), HasSubstr("already finished"));
}

TEST_F(DiskTest, AFinishedJobIsToldByPs0Alone) {
  {
    TaskCluster cluster(options_);
    cluster.StartAll();
    ExpectTheRightEnd(&cluster);
  }
  TaskCluster cluster(options_);
  cluster.Start("ps-0");
  cluster.Start("worker-1");
  ExpectACleanError(&cluster, "worker-1", 0, "already finished");
  cluster.Start("ps-1");
  cluster.Start("worker-0");
  ExpectTheRightEnd(&cluster);
}

TEST_P(AnyDiskTest, MorePsThanBefore) {
  RunUntilSaved(20);
  options_.num_ps = 3;
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
}

TEST_F(DiskTest, FewerPsThanBefore) {
  RunUntilSaved(20);
  options_.num_ps = 1;
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
}

TEST_F(DiskTest, ADamagedCheckpointIsPassedOver) {
  RunUntilSaved(20);
  const auto checkpoints = Checkpoints();
  ASSERT_GE(checkpoints.size(), 2);
  Damage(checkpoints.back());
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
  EXPECT_THAT(cluster.log("ps-0"),
              AllOf(HasSubstr("the job resumes from the one before"),
                    HasSubstr(checkpoints.back().filename())));
}

TEST_P(AnyDiskTest, ACheckpointWithoutItsFileIsPassedOver) {
  RunUntilSaved(20);
  std::filesystem::remove(Checkpoints().back() / "ps-0001-of-0002");
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
}

TEST_F(DiskTest, WhenAllAreDamagedTheJobFails) {
  RunUntilSaved(20);
  for (const auto& checkpoint : Checkpoints()) Damage(checkpoint);
  TaskCluster cluster(options_);
  // Nothing is restored without ps 1; a worker that started after both ps have
  // ended would not learn the reason.
  cluster.Start("ps-0");
  cluster.Start("worker-0");
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] {
        for (const proto::TaskStatus& task : cluster.status().tasks()) {
          if (task.task().job() == kWorkerJob && task.alive()) return true;
        }
        return false;
      },
      kLimit))
      << cluster.Describe();
  cluster.Start("ps-1");
  ExpectACleanError(&cluster, "ps-0", 1, "there is none before it");
  ExpectACleanError(&cluster, "ps-1", 1, "there is none before it");
  ExpectACleanError(&cluster, "worker-0", 1, "there is none before it");
}

TEST_F(DiskTest, ADamagedJournalIsAnError) {
  RunUntilSaved(20);
  const std::string journal = folder_ + "/checkpoints/JOURNAL";
  std::string bytes = ReadText(journal);
  bytes[bytes.size() / 2] ^= 1;
  WriteText(journal, bytes);
  TaskCluster cluster(options_);
  cluster.Start("ps-0");
  ExpectACleanError(&cluster, "ps-0", 2, "JOURNAL");
}

TEST_F(DiskTest, CheckpointsWithoutAJournalAreAnError) {
  RunUntilSaved(20);
  std::filesystem::remove(folder_ + "/checkpoints/JOURNAL");
  TaskCluster cluster(options_);
  cluster.Start("ps-0");
  ExpectACleanError(&cluster, "ps-0", 2, "checkpoints and no journal");
}

TEST_F(DiskTest, TheDirectoryOfAnotherJobIsRefused) {
  RunUntilSaved(20);
  SmallJob other;
  other.steps = kJobSteps;
  other.optimizer = "learning_rate: 0.3 sgd {}";
  options_.job_file = WriteJob(folder_, other);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectACleanError(
      &cluster, "worker-0", 2,
      "declares a different job than the one in this checkpoint directory");
  EXPECT_FALSE(std::filesystem::exists(cluster.result_file()));
}

TEST_F(DiskTest, OneDirectoryHasOneCoordinator) {
  TaskCluster cluster(options_);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().durable_step() > 0; }, kLimit));
  TaskCluster::Options other = options_;
  other.folder = folder_ + "/other";
  std::filesystem::create_directories(other.folder);
  other.checkpoint_dir = [&](int) { return folder_ + "/checkpoints"; };
  other.restart_delay = absl::InfiniteDuration();
  TaskCluster second(other);
  // Longer than a ps waits for a predecessor that is shutting down.
  for (const char* worker : {"worker-0", "worker-1"}) {
    cluster.Signal(worker, SIGSTOP);
  }
  second.Start("ps-0");
  // The other ps may have gone by its next start.
  ExpectACleanError(&second, "ps-0", kExitRestart, "/job:ps/task:0");
  for (const char* worker : {"worker-0", "worker-1"}) {
    cluster.Signal(worker, SIGCONT);
  }
  EXPECT_THAT(second.log("ps-0"), HasSubstr(folder_ + "/checkpoints"));
  ExpectTheRightEnd(&cluster);
}

TEST_F(DiskTest, ADirectoryThatThePsDoNotShareIsAnError) {
  options_.checkpoint_dir = [&](int ps) {
    return absl::StrCat(folder_, "/checkpoints", ps == 0 ? "" : "-of-its-own");
  };
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectACleanError(&cluster, "ps-0", 1, "/job:ps/task:1");
  ExpectACleanError(&cluster, "worker-0", 1, "/job:ps/task:1");
}

TEST_F(DiskTest, APsWithoutADirectoryIsAnError) {
  options_.checkpoint_dir = [&](int ps) {
    return ps == 0 ? folder_ + "/checkpoints" : "";
  };
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectACleanError(&cluster, "ps-0", 1, "/job:ps/task:1");
}

TEST_F(DiskTest, AWarmStartHasTheValuesOfTheOther) {
  RunUntilSaved(20);
  const std::string from = Checkpoints().back();
  options_.folder = folder_ + "/next";
  std::filesystem::create_directories(options_.folder);
  options_.ps_flags.push_back("--warm_start=" + from);
  TaskCluster cluster(options_);
  cluster.StartAll();
  const absl::Status ended = cluster.AwaitEnd(kLimit);
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_THAT(cluster.log("ps-1"), HasSubstr("warm start from " + from));
  const auto digest =
      DigestAtEnd(cluster.checkpoint_dir(), cluster.result_file(), kJobSteps);
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_NE(*digest, Digest()) << "it began with other values";
}

// Training goes on without checkpoints; only the last checkpoint is waited for.
TEST_P(AnyDiskTest, AFullDiskIsWaitedFor) {
  SmallDisk disk(folder_ + "/checkpoints", "8m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount (needs root)";
  TaskCluster cluster(options_);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().durable_step() > 10; }, kLimit));
  disk.Fill();
  ExpectPs0Says(&cluster, "No space left on device");
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().global_step() == kJobSteps; }, kLimit));
  EXPECT_NE(cluster.status().state().phase(), proto::DONE);
  disk.Free();
  ExpectTheRightEnd(&cluster);
}

// Nothing that was not synced counts as a checkpoint.
TEST_P(AnyDiskTest, AFailingFsyncIsWaitedFor) {
  const std::string failing = folder_ + "/failing";
  PreloadABadDisk("BAD_DISK_SYNC_FAILS=" + failing);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().durable_step() > 10; }, kLimit));
  WriteText(failing, "");
  ExpectPs0Says(&cluster, "Input/output error");
  // The status may be older than the log.
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return !cluster.status().checkpoint_error().empty(); }, kLimit));
  const uint64_t durable = cluster.status().durable_step();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().global_step() == kJobSteps; }, kLimit));
  EXPECT_EQ(cluster.status().durable_step(), durable);
  EXPECT_NE(cluster.status().state().phase(), proto::DONE);
  std::filesystem::remove(failing);
  ExpectTheRightEnd(&cluster);
}

// After repeated failures the file counts as unreadable, and an earlier
// checkpoint is tried.
TEST_P(AnyDiskTest, ABadSectorIsPassedOver) {
  RunUntilSaved(20);
  const std::string bad = Checkpoints().back().filename();
  PreloadABadDisk("BAD_DISK_UNREADABLE=" + bad + "/ps-0000");
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectPs0Says(&cluster, "is asked again for the state of step ");
  ExpectTheRightEnd(&cluster);
  EXPECT_THAT(cluster.log("ps-0"),
              AllOf(HasSubstr("the job resumes from the one before"),
                    HasSubstr(bad + ".set-aside")));
  EXPECT_TRUE(std::filesystem::exists(cluster.checkpoint_dir() + "/" + bad +
                                      ".set-aside/MANIFEST"));
}

TEST_F(TablesDiskTest, ADamagedRowIsPassedOverAndItsTableNamed) {
  RunUntilSaved(20);
  const auto checkpoints = Checkpoints();
  ASSERT_GE(checkpoints.size(), 2);
  DamageRow(checkpoints.back(), kAdmittedTable);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
  EXPECT_THAT(cluster.log("ps-0"),
              AllOf(HasSubstr("the job resumes from the one before"),
                    HasSubstr(checkpoints.back().filename()),
                    ContainsRegex("ps-000[01]-of-0002: block 0 of table "
                                  "\"admitted\"")));
}

TEST_F(TablesDiskTest, WhenTheRowsOfAllAreDamagedTheJobFails) {
  RunUntilSaved(20);
  for (const auto& checkpoint : Checkpoints()) {
    DamageRow(checkpoint, kCappedTable);
  }
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectACleanError(&cluster, "ps-0", 1, "there is none before it");
  EXPECT_THAT(cluster.log("ps-0"),
              ContainsRegex("ps-000[01]-of-0002: block 0 of table \"capped\""));
}

// Deltas of a damaged base are passed over, even if their own files are intact.
TEST_F(TablesDiskTest, ADamagedBaseTakesItsDeltasWithIt) {
  WriteText(options_.job_file, absl::StrReplaceAll(ReadText(options_.job_file),
                                                   {{"keep: 2", "keep: 6"}}));
  RunUntilDelta(/*before=*/1);
  const auto saved = ReadSaved();
  const std::optional<size_t> base = BaseOfNewest(saved, /*before=*/1);
  ASSERT_TRUE(base.has_value());
  const std::string damaged = saved->directory.Folder(saved->names[*base]);
  DamageRow(damaged, kCountedTable);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
  const std::string log = cluster.log("ps-0");
  EXPECT_THAT(log, ContainsRegex(damaged + "/ps-000[01]-of-0002: block 0 of "
                                           "table \"counted\""));
  for (size_t i = *base; i < saved->names.size(); ++i) {
    EXPECT_THAT(log, HasSubstr(FolderName(saved->names[i]) + ".set-aside"));
  }
  EXPECT_THAT(log, HasSubstr(absl::StrCat("resumes from step ",
                                          saved->names[*base - 1].step())));
}

TEST_F(TablesDiskTest, WhenAllNeedADamagedBaseTheJobFails) {
  RunUntilDelta(/*before=*/0);
  const auto saved = ReadSaved();
  const std::optional<size_t> base = BaseOfNewest(saved, /*before=*/0);
  ASSERT_TRUE(base.has_value());
  const std::string damaged = saved->directory.Folder(saved->names[*base]);
  DamageRow(damaged, kCountedTable);
  // The checkpoints that do not need the damaged base.
  for (size_t i = 0; i < *base; ++i) {
    DamageRow(saved->directory.Folder(saved->names[i]), kCountedTable);
  }
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectACleanError(&cluster, "ps-0", 1, "there is none before it");
  EXPECT_THAT(
      cluster.log("ps-0"),
      ContainsRegex(damaged +
                    "/ps-000[01]-of-0002: block 0 of table \"counted\""));
}

// A crashing machine may leave such a file.
TEST_F(TablesDiskTest, ATornFileIsPassedOver) {
  RunUntilSaved(20);
  const auto checkpoint = Checkpoints().back();
  const std::filesystem::path file = checkpoint / "ps-0001-of-0002";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) * 3 / 4);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ExpectTheRightEnd(&cluster);
  EXPECT_THAT(cluster.log("ps-0"), HasSubstr(checkpoint.filename()));
}

// Steps go on while the rows of an earlier version are written.
TEST_F(TablesDiskTest, ASlowDiskDoesNotKeepStepsFromChangingRows) {
  PreloadABadDisk("BAD_DISK_SYNC_MS=150");
  TaskCluster cluster(options_);
  cluster.StartAll();
  EXPECT_TRUE(cluster.AdvanceUntil(
      [&] {
        return cluster.status().disk_progress_size() > 0 &&
               cluster.status().global_step() >
                   cluster.status().durable_step() + 7;
      },
      kLimit))
      << cluster.Describe();
  ExpectTheRightEnd(&cluster);
}

TEST_F(DiskTest, AHungDiskDoesNotKeepAPsFromEnding) {
  const std::string hanging = folder_ + "/hanging";
  // Only the disk of ps 1 is slow: otherwise a checkpoint may wait for ps 0.
  options_.launcher = [&](const std::string& task) {
    if (task != "ps-1") return std::vector<std::string>();
    return std::vector<std::string>{"env",
                                    "LD_PRELOAD=tests/faults/libbad_disk.so",
                                    "BAD_DISK_SYNC_HANGS=" + hanging};
  };
  TaskCluster cluster(options_);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().durable_step() > 10; }, kLimit));
  WriteText(hanging, "");
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] {
        const proto::GetStatusResponse& status = cluster.status();
        return status.disk_progress_size() > 0 &&
               status.global_step() > status.durable_step() + 7;
      },
      kLimit))
      << cluster.Describe();
  cluster.Signal("ps-1", SIGTERM);
  EXPECT_TRUE(cluster.AdvanceUntil([&] { return cluster.starts("ps-1") > 1; },
                                   absl::Seconds(30)))
      << cluster.Describe();
  EXPECT_THAT(cluster.log("ps-1"), HasSubstr("the disk does not respond"));
  std::filesystem::remove(hanging);
  ExpectTheRightEnd(&cluster);
}

// The job waits for recovery_seconds and then fails with the disk's error.
TEST_F(DiskTest, ADiskThatStaysFullFailsTheJob) {
  SmallDisk disk(folder_ + "/checkpoints", "200k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount (needs root)";
  SmallJob job;
  job.steps = kJobSteps;
  job.more = "timeouts { recovery_seconds: 3 }\n";
  options_.job_file = WriteJob(folder_, job);
  TaskCluster cluster(options_);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().global_step() > 10; }, kLimit));
  disk.Fill();
  for (const std::string& task : cluster.names()) {
    ExpectACleanError(&cluster, task, 1, "No space left on device");
  }
  EXPECT_FALSE(std::filesystem::exists(cluster.result_file()));
}

// Only for ps 1, which reaches the directory through another mount; ps 0 holds
// the lock file open for writing, so its mount cannot be made read-only.
TEST_F(DiskTest, ADiskThatIsReadOnlyForAWhile) {
  const std::string own = folder_ + "/checkpoints";
  const std::string other = folder_ + "/the-same";
  SmallDisk disk(own, "1m");
  SmallDisk same(other, /*of=*/disk);
  if (!same.mounted()) GTEST_SKIP() << "cannot mount (needs root)";
  options_.checkpoint_dir = [&](int ps) { return ps == 0 ? own : other; };
  TaskCluster cluster(options_);
  cluster.StartAll();
  ASSERT_TRUE(cluster.AdvanceUntil(
      [&] { return cluster.status().durable_step() > 10; }, kLimit));
  same.SetReadOnly(true);
  ExpectPs0Says(&cluster, "Read-only file system");
  EXPECT_THAT(cluster.log("ps-0"), HasSubstr("training continues"));
  same.SetReadOnly(false);
  ExpectTheRightEnd(&cluster);
}

TEST_F(DiskTest, AReadOnlyDiskFromTheBeginningIsAnError) {
  SmallDisk disk(folder_ + "/checkpoints", "1m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount (needs root)";
  disk.SetReadOnly(true);
  TaskCluster cluster(options_);
  cluster.Start("ps-0");
  ExpectACleanError(&cluster, "ps-0", 2, "Read-only file system");
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// A day in the life of a click model: rows are created and expire, checkpoints
// are deltas, a ps dies, rows are exported while the job runs, and the job is
// stopped and resumed with twice as many ps. It ends with the same bits as an
// undisturbed job. Also asynchronous click models, whose tasks are killed one
// after the other.

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/outcome.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr uint64_t kSteps = 300;

// The table "linear" keeps all of its rows, so that its checkpoints are large
// compared with the changes of a few steps; rows of "embedding" expire.
constexpr char kJob[] = R"(
name: "clicks"
model {
  deep_fm {
    embedding {
      row_length: 4
      table { min_count: 2 expire_after_steps: 8 }
    }
    layers { dense { units: 16 } }
    layers { relu {} }
  }
}
data {
  train { criteo { files: "DATA/train-*.tsv" } }
  test { criteo { files: "DATA/test-*.tsv" } }
}
batch_size: 20
steps: STEPS
optimizer { learning_rate: 0.05 adagrad {} }
consistency { CONSISTENCY }
evaluation { every_steps: 50 }
checkpoints { every_steps: 4 keep: 1000 max_deltas: 6 }
timeouts { start_seconds: 20 step_seconds: 30 recovery_seconds: 20 }
seed: 1
)";

class ClickDayTest : public ::testing::Test {
 protected:
  ClickDayTest() : folder_(FreshFolder()) {
    Run({"datagen", "criteo", "--cardinalities=small", "--examples=5000",
         "--test_examples=500", absl::StrCat("--out=", folder_, "/data")});
  }

  void WriteClickJob(const std::string& consistency) const {
    WriteText(JobFile(),
              absl::StrReplaceAll(kJob, {{"DATA", folder_ + "/data"},
                                         {"STEPS", absl::StrCat(kSteps)},
                                         {"CONSISTENCY", consistency}}));
  }

  std::string JobFile() const { return folder_ + "/job.textproto"; }

  // Runs `holdfast`, which must succeed, and returns its output.
  std::string Run(std::vector<std::string> words) {
    words.insert(words.begin(), kHoldfast);
    Program program(words);
    EXPECT_EQ(program.Wait(), 0) << program.output();
    return program.output();
  }

  TaskCluster::Options Options(const std::string& name, int num_ps) const {
    TaskCluster::Options options;
    options.folder = folder_ + "/" + name;
    std::filesystem::create_directories(options.folder);
    options.job_file = JobFile();
    options.num_ps = num_ps;
    options.worker_binary = kSlowWorker;
    options.worker_flags = {"--slow_step_ms_max=20"};
    options.ps_flags = {"--lease=1s", "--start_timeout=20s",
                        "--recovery_timeout=20s", "--grace=5s"};
    return options;
  }

  static void AdvanceUntil(TaskCluster* cluster,
                           const std::function<bool()>& done) {
    ASSERT_TRUE(cluster->AdvanceUntil(done, kLimit)) << cluster->Describe();
  }

  // The digest of everything that is stored of variables, rows and candidates
  // at the end of the job.
  static std::string DigestAtTheEnd(TaskCluster* cluster) {
    const absl::Status ended = cluster->AwaitEnd(kLimit);
    EXPECT_TRUE(ended.ok()) << ended;
    const auto digest =
        DigestAtEnd(cluster->checkpoint_dir(), cluster->result_file(), kSteps);
    EXPECT_TRUE(digest.ok()) << digest.status() << cluster->Describe();
    return digest.ok() ? *digest : "";
  }

  // Whether the newest durable checkpoint is a delta.
  static bool NewestIsDelta(const TaskCluster& cluster) {
    const auto directory = CheckpointDirectory::OpenToRead(
        cluster.checkpoint_dir(), PosixFileSystem());
    if (!directory.ok()) return false;
    const auto journal = directory->ReadJournal();
    if (!journal.ok() || journal->checkpoints().empty()) return false;
    const auto manifest =
        directory->ReadManifest(*journal->checkpoints().rbegin());
    return manifest.ok() && !manifest->chain().empty();
  }

  // The ids of the rows of "embedding" in the newest checkpoint.
  std::set<uint64_t> ExportIds(const TaskCluster& cluster,
                               const std::string& name) {
    Run({"checkpoint", "export", cluster.checkpoint_dir(),
         absl::StrCat("--output=", folder_, "/", name, ".npz")});
    const std::string file =
        ReadText(absl::StrCat(folder_, "/", name, ".embedding.ids.npy"));
    EXPECT_TRUE(absl::StartsWith(file, "\x93NUMPY\x01"));
    // Version 1 stores the length of the header at byte 8; all headers are
    // shorter than 256 bytes.
    const size_t begin = 10 + static_cast<uint8_t>(file[8]);
    std::vector<uint64_t> ids((file.size() - begin) / sizeof(uint64_t));
    std::memcpy(ids.data(), &file[begin], ids.size() * sizeof(uint64_t));
    return {ids.begin(), ids.end()};
  }

  const std::string folder_;
  int runs_ = 0;
};

TEST_F(ClickDayTest, EndsAsIfNothingHadHappened) {
  WriteClickJob("synchronous {}");
  std::string peace;
  {
    TaskCluster cluster(Options("peace", /*num_ps=*/2));
    cluster.StartAll();
    peace = DigestAtTheEnd(&cluster);
    EXPECT_THAT(Run({"checkpoint", "list", cluster.checkpoint_dir()}),
                HasSubstr("changes since"));
  }
  {
    TaskCluster cluster(Options("day", /*num_ps=*/2));
    cluster.StartAll();
    AdvanceUntil(&cluster, [&] {
      return cluster.status().durable_step() >= 12 && NewestIsDelta(cluster);
    });
    const std::set<uint64_t> before = ExportIds(cluster, "before");
    EXPECT_FALSE(before.empty());
    const uint64_t durable = cluster.status().durable_step();
    cluster.Signal("ps-1", SIGKILL);
    AdvanceUntil(&cluster, [&] {
      return cluster.starts("ps-1") > 1 &&
             cluster.status().durable_step() >= durable + 24;
    });
    const std::set<uint64_t> after = ExportIds(cluster, "after");
    std::vector<uint64_t> expired;
    std::set_difference(before.begin(), before.end(), after.begin(),
                        after.end(), std::back_inserter(expired));
    EXPECT_FALSE(expired.empty())
        << "each of " << before.size() << " rows is there after 24 steps";
    EXPECT_THAT(Run({"stop", "--ps=" + cluster.coordinator_address()}),
                HasSubstr("The job was stopped at step "));
    const absl::Status ended = cluster.AwaitEnd(kLimit);
    ASSERT_TRUE(ended.ok()) << ended;
    EXPECT_LT(cluster.max_step(), kSteps) << "there is nothing left to do";
  }
  TaskCluster cluster(Options("day", /*num_ps=*/4));
  cluster.StartAll();
  EXPECT_EQ(DigestAtTheEnd(&cluster), peace);
  EXPECT_GE(NumberIn(ReadResult(cluster.result_file()), "recoveries"), 2);
  Run({"checkpoint", "verify", cluster.checkpoint_dir()});
}

// Batches are pulled ahead, and one push is under way while the next is
// computed; still, each is counted once.
TEST_F(ClickDayTest, EachTicketOfAnAsynchronousOneIsSpentOnce) {
  for (const char* consistency :
       {"asynchronous {}", "asynchronous { pipeline_depth: 2 }",
        "asynchronous { staleness_bound: 1 pipeline_depth: 2 }"}) {
    SCOPED_TRACE(consistency);
    WriteClickJob(consistency);
    TaskCluster cluster(Options(absl::StrCat("run-", runs_++), /*num_ps=*/2));
    cluster.StartAll();
    uint64_t step = 20;
    for (const char* task : {"worker-1", "ps-1", "worker-0", "ps-0"}) {
      AdvanceUntil(&cluster, [&] {
        return cluster.status().global_step() >= step &&
               cluster.status().durable_step() > 0;
      });
      cluster.Signal(task, SIGKILL);
      step += 50;
    }
    DigestAtTheEnd(&cluster);
    EXPECT_THAT(Run({"checkpoint", "inspect", cluster.checkpoint_dir()}),
                HasSubstr(absl::StrCat(kSteps, " accepted")));
  }
}

}  // namespace
}  // namespace holdfast

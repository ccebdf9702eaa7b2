// SPDX-License-Identifier: Apache-2.0

// Evaluators, best checkpoints, early stopping and changes of the learning rate
// under faults: evaluation changes no value of a job, and changes take effect
// at the same step, whichever task dies (docs/evaluation.md).

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/cluster.h"
#include "tests/faults/jobs.h"
#include "tests/faults/outcome.h"
#include "tests/local/program.h"
#include "tests/local/small_job.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLimit = absl::Seconds(60);
constexpr char kEvaluator[] = "evaluator-0";

// Changes to SmallCluster's synchronous job.
struct Judged {
  uint64_t steps = kJobSteps;
  std::string evaluation = "every_steps: 10";
  std::string optimizer = "learning_rate: 0.2 momentum { momentum: 0.9 }";
  std::string checkpoints = "every_steps: 7 keep: 2";
};

class EvaluationTest : public ::testing::Test {
 protected:
  EvaluationTest() : folder_(FreshFolder()) {}

  TaskCluster::Options Options(const Judged& judged, const std::string& name) {
    const std::string folder = absl::StrCat(folder_, "/", name);
    TaskCluster::Options options = SmallCluster(JobKind::kSynchronous, folder);
    SmallJob job;
    job.steps = judged.steps;
    job.optimizer = judged.optimizer;
    job.more = absl::StrCat("\ncheckpoints { ", judged.checkpoints,
                            " }\ntimeouts { start_seconds: 20 step_seconds: 30 "
                            "recovery_seconds: 20 }\n");
    // Long enough that an evaluator is not lost as soon as it is paused.
    options.ps_flags.front() = "--lease=3s";
    options.job_file = WriteJob(folder, job);
    WriteText(options.job_file,
              absl::StrReplaceAll(
                  ReadText(options.job_file),
                  {{"evaluation { every_steps: 10 }",
                    absl::StrCat("evaluation { ", judged.evaluation, " }")}}));
    return options;
  }

  // The digest of the job after it has ended at `steps`.
  static std::string DigestOf(TaskCluster* cluster, uint64_t steps) {
    const absl::Status ended = cluster->AwaitEnd(kLimit);
    EXPECT_TRUE(ended.ok()) << ended;
    const auto digest =
        DigestAtEnd(cluster->checkpoint_dir(), cluster->result_file(), steps);
    EXPECT_TRUE(digest.ok()) << digest.status() << cluster->Describe();
    return digest.ok() ? *digest : "";
  }
  std::string DigestInPeace(const Judged& judged) {
    TaskCluster cluster(
        Options(judged, absl::StrCat("peace-", peaceful_runs_++)));
    cluster.StartAll();
    return DigestOf(&cluster, judged.steps);
  }

  static void AdvanceUntil(TaskCluster* cluster,
                           const std::function<bool()>& done) {
    EXPECT_TRUE(cluster->AdvanceUntil(done, kLimit)) << cluster->Describe();
  }
  static void AwaitTraining(TaskCluster* cluster) {
    AdvanceUntil(cluster, [&] {
      return cluster->status().state().phase() == proto::TRAINING;
    });
  }
  static void AwaitStep(TaskCluster* cluster, uint64_t step) {
    AdvanceUntil(cluster, [&] { return cluster->max_step() >= step; });
  }
  // Pauses the evaluator while a checkpoint is assigned to it. Evaluation takes
  // hardly any time, so the evaluator is mostly paused while it waits for the
  // next checkpoint. At worst no checkpoint is assigned to it until the job
  // ends.
  static void PauseEvaluating(TaskCluster* cluster) {
    const auto evaluates = [&] {
      return cluster->status().evaluating_size() > 0;
    };
    AdvanceUntil(cluster, [&] {
      return absl::StrContains(cluster->log(kEvaluator), ": test loss ");
    });
    cluster->Signal(kEvaluator, SIGSTOP);
    while (!cluster->AdvanceUntil(evaluates, absl::Milliseconds(500))) {
      ASSERT_FALSE(cluster->failed()) << cluster->Describe();
      if (cluster->status().state().phase() == proto::DONE) return;
      cluster->Signal(kEvaluator, SIGCONT);
      cluster->AdvanceFor(absl::Milliseconds(20));
      cluster->Signal(kEvaluator, SIGSTOP);
    }
  }

  const std::string folder_;
  int peaceful_runs_ = 0;
};

// ---- An evaluator changes nothing ----

TEST_F(EvaluationTest, AnEvaluatorChangesNoBitWhateverBecomesOfIt) {
  const std::string peace = DigestInPeace({});
  using Trouble = std::function<void(TaskCluster*)>;
  const std::vector<std::pair<std::string, Trouble>> troubles = {
      {"none", [](TaskCluster*) {}},
      {"killed as it starts",
       [](TaskCluster* cluster) { cluster->Signal(kEvaluator, SIGKILL); }},
      {"killed while it evaluates",
       [](TaskCluster* cluster) {
         PauseEvaluating(cluster);
         cluster->Signal(kEvaluator, SIGKILL);
       }},
      {"killed when it has reported",
       [](TaskCluster* cluster) {
         AdvanceUntil(cluster, [&] {
           return absl::StrContains(cluster->log(kEvaluator), ": test loss ");
         });
         cluster->Signal(kEvaluator, SIGKILL);
       }},
      {"killed at the end",
       [](TaskCluster* cluster) {
         AwaitStep(cluster, kJobSteps);
         cluster->Signal(kEvaluator, SIGKILL);
       }},
      {"paused for good while it evaluates",
       [](TaskCluster* cluster) { PauseEvaluating(cluster); }},
      {"with ps 0 killed while it evaluates",
       [](TaskCluster* cluster) {
         PauseEvaluating(cluster);
         cluster->Signal("ps-0", SIGKILL);
         cluster->Signal(kEvaluator, SIGCONT);
       }},
  };
  for (const auto& [name, trouble] : troubles) {
    SCOPED_TRACE(name);
    TaskCluster::Options options =
        Options({}, absl::StrReplaceAll(name, {{" ", "-"}}));
    options.num_evaluators = 1;
    TaskCluster cluster(options);
    cluster.StartAll();
    trouble(&cluster);
    EXPECT_EQ(DigestOf(&cluster, kJobSteps), peace);
  }
}

// ---- The best checkpoints ----

// From step 45 on, a learning rate that is much too high makes the model worse.
TEST_F(EvaluationTest, TheBestAreTheBestOfTheHistoryToTheBit) {
  Judged judged;
  judged.steps = 70;
  judged.optimizer =
      "learning_rate: 0.2 momentum { momentum: 0.9 } schedule { piecewise { "
      "pieces { from_step: 45 learning_rate: 50 } } }";
  judged.checkpoints = "every_steps: 10 keep: 1";
  // Every tenth version is saved and evaluated.
  judged.evaluation =
      "every_steps: 10 keep_best { count: 2 } early_stopping { patience: 1000 "
      "at_fixed_steps: true }";
  TaskCluster::Options options = Options(judged, "judged");
  options.num_evaluators = 1;
  TaskCluster cluster(options);
  cluster.StartAll();
  PauseEvaluating(&cluster);
  cluster.Signal("ps-1", SIGKILL);
  cluster.Signal(kEvaluator, SIGCONT);
  DigestOf(&cluster, judged.steps);

  const auto directory = CheckpointDirectory::OpenToRead(
      cluster.checkpoint_dir(), PosixFileSystem());
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto journal = directory->ReadJournal();
  ASSERT_TRUE(journal.ok()) << journal.status();
  std::vector<std::pair<double, uint64_t>> history;
  for (const proto::EvaluationResult& result : journal->evaluations()) {
    history.emplace_back(result.loss(), result.step());
  }
  ASSERT_EQ(history.size(), judged.steps / 10);
  std::sort(history.begin(), history.end());
  std::vector<uint64_t> best;
  for (const proto::CheckpointName& name : journal->best()) {
    best.push_back(name.step());
  }
  EXPECT_THAT(best, ElementsAre(history[0].second, history[1].second));
  EXPECT_LT(best[0], judged.steps) << "the test is weak otherwise";
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           cluster.checkpoint_dir() + "/best")) {
    ++folders;
    const std::string name = entry.path().filename();
    const std::string step = name.substr(name.find("step") + 4);
    Judged shorter;
    shorter.steps = std::stoul(step);
    shorter.optimizer = judged.optimizer;
    const auto digest = DigestOfCheckpoint(entry.path());
    ASSERT_TRUE(digest.ok()) << digest.status();
    EXPECT_EQ(*digest, DigestInPeace(shorter)) << name;
  }
  EXPECT_EQ(folders, 2);
}

// ---- Early stopping ----

// No evaluation is better by 100 than the first one, of step 10; so the one of
// step 40 exhausts the patience, and the job ends one interval later.
TEST_F(EvaluationTest, AJobStopsAtTheSameStepWhoeverDies) {
  Judged judged;
  judged.evaluation =
      "every_steps: 10 early_stopping { patience: 3 min_delta: 100 "
      "at_fixed_steps: true }";
  Judged short_job;
  short_job.steps = 50;
  const std::string peace = DigestInPeace(short_job);
  for (const char* victim : {"", kEvaluator, "ps-0", "ps-1", "worker-0"}) {
    SCOPED_TRACE(victim);
    TaskCluster::Options options =
        Options(judged, absl::StrCat("killed-", victim));
    options.num_evaluators = 1;
    TaskCluster cluster(options);
    cluster.StartAll();
    PauseEvaluating(&cluster);
    if (*victim != '\0') cluster.Signal(victim, SIGKILL);
    if (victim != std::string(kEvaluator)) cluster.Signal(kEvaluator, SIGCONT);
    EXPECT_EQ(DigestOf(&cluster, 50), peace);
  }
  TaskCluster::Options options = Options(judged, "more-ps");
  options.num_evaluators = 1;
  options.num_ps = 3;
  TaskCluster cluster(options);
  cluster.StartAll();
  EXPECT_EQ(DigestOf(&cluster, 50), peace);
}

// ---- The learning rate ----

class LearningRateTest : public EvaluationTest {
 protected:
  static constexpr int kAtStep = 70;

  // Sets the factor once the job trains, and before it reaches kAtStep.
  static void SetFactor(TaskCluster* cluster) {
    AwaitTraining(cluster);
    Program set({"cli/holdfast", "set", "learning_rate_factor=0.25",
                 "--ps=" + cluster->coordinator_address(),
                 absl::StrCat("--at_step=", kAtStep)});
    EXPECT_EQ(set.Wait(), 0) << set.output();
    EXPECT_THAT(set.output(), HasSubstr(absl::StrCat(kAtStep)));
  }
};

TEST_F(LearningRateTest, AChangeGivesOneDigestForAnyPsAndUnderKills) {
  const std::string unchanged = DigestInPeace({});
  std::string changed;
  for (const int num_ps : {1, 2, 4}) {
    SCOPED_TRACE(absl::StrCat(num_ps, " ps"));
    TaskCluster::Options options = Options({}, absl::StrCat("ps-", num_ps));
    options.num_ps = num_ps;
    TaskCluster cluster(options);
    cluster.StartAll();
    SetFactor(&cluster);
    const std::string digest = DigestOf(&cluster, kJobSteps);
    if (changed.empty()) changed = digest;
    EXPECT_EQ(digest, changed);
  }
  EXPECT_NE(changed, unchanged);
  for (const char* victim : {"ps-0", "ps-1", "worker-0"}) {
    for (const uint64_t step : {20, kAtStep + 2}) {
      SCOPED_TRACE(absl::StrCat(victim, " dies at step ", step));
      TaskCluster cluster(Options({}, absl::StrCat(victim, "-", step)));
      cluster.StartAll();
      SetFactor(&cluster);
      AwaitStep(&cluster, step);
      cluster.Signal(victim, SIGKILL);
      EXPECT_EQ(DigestOf(&cluster, kJobSteps), changed);
    }
  }
}

}  // namespace
}  // namespace holdfast

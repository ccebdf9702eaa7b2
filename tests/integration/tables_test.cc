// SPDX-License-Identifier: Apache-2.0

// Embedding tables with daemons as processes: the rows are the same for any
// number of ps, even if ps are killed, or all are restarted with a different
// number of ps.
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/cluster.h"
#include "client/row_batch.h"
#include "common/base/clock.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/shared_memory/arena.h"
#include "common/tensor/row_bucket.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

namespace holdfast {
namespace {

using google::protobuf::TextFormat;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
absl::Time Soon() { return SteadyNow() + kPatience; }

constexpr uint64_t kSteps = 24;
constexpr uint32_t kWorkers = 2;

// Rows 0 to 99 of "twin" have the values of "dense".
constexpr char kDeclaration[] = R"pb(
  variables {
    name: "dense"
    shape: [ 100, 4 ]
    dtype: FLOAT32
    initializer { constant { value: 0.5 } }
  }
  optimizers {
    learning_rate: 0.1
    adagrad {}
  }
  optimizers {
    learning_rate: 0.01
    adam {}
  }
  tables {
    name: "twin"
    row_length: 4
    initializer { constant { value: 0.5 } }
    max_rows_per_push: 100
  }
  tables {
    name: "items"
    row_length: 8
    initializer { uniform { low: -1 high: 1 } }
    optimizer: 1
    min_count: 2
    expire_after_steps: 12
    max_rows_per_push: 300
    push: INT8
    pull: BFLOAT16
  }
  tables {
    name: "wide"
    row_length: 64
    initializer { uniform { low: -1 high: 1 } }
    max_rows_per_push: 600
  }
  consistency { synchronous {} }
  seed: 3
  total_steps: 24
  checkpoints { every_steps: 4 keep: 2 }
)pb";

// Rows of which each of two ps has enough to lend them to a process of its
// host.
std::vector<uint64_t> WideOf(uint64_t step, uint32_t worker) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 600; ++i)
    ids.push_back(37 * step + 101 * worker + i);
  return ids;
}

// Arbitrary 64-bit ids, some more often than others.
std::vector<uint64_t> ItemsOf(uint64_t step, uint32_t worker) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t random = HashRowId(1000 * (kWorkers * step + worker) + i);
    ids.push_back(HashRowId(random % (random % 7 == 0 ? 4000 : 60)));
  }
  return ids;
}

float GradientOf(uint64_t id, uint64_t step, uint32_t worker, size_t element) {
  return static_cast<float>(HashRowId(id + 31 * step + worker + element) %
                            1000) /
             500 -
         1;
}

class TablesTest : public testing::Test {
 protected:
  TablesTest() {
    EXPECT_TRUE(TextFormat::ParseFromString(kDeclaration, &declaration_));
    std::string folder = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // Removes the variable from the job that StartCluster declares.
  void RemoveVariable() { declaration_.clear_variables(); }
  bool has_variable() const { return declaration_.variables_size() > 0; }

  void StartCluster(uint32_t num_ps) {
    spec_ = MakeLoopbackCluster(num_ps, kWorkers);
    ps_.clear();
    ps_.resize(num_ps);
    for (uint32_t i = 0; i < num_ps; ++i) StartPs(i);
    workers_.clear();
    for (uint32_t i = 0; i < kWorkers; ++i) {
      Cluster::Options options{*spec_};
      options.task = *spec_->ReplicaTask(i);
      options.job_digest = "job";
      options.data_digest = "data";
      options.same_host = same_host_;
      auto cluster = Cluster::Connect(std::move(options));
      ASSERT_TRUE(cluster.ok()) << cluster.status();
      workers_.push_back(*std::move(cluster));
    }
    ASSERT_EQ(workers_[0]->Declare(declaration_, Soon()), absl::OkStatus());
    AwaitVariables();
  }
  void AwaitVariables() {
    for (const auto& worker : workers_) {
      ASSERT_EQ(worker->AwaitVariables(Soon()), absl::OkStatus());
    }
  }
  void StartPs(uint32_t index) {
    ps_[index] = std::make_unique<Process>(
        "ps_server/ps_server",
        std::vector<std::string>{
            absl::StrCat("--task_index=", index),
            absl::StrCat("--cluster_spec=", spec_->ToJson()),
            absl::StrCat("--checkpoint_dir=", folder_), "--lease=1s"});
  }
  void KillPs(uint32_t index) {
    ps_[index]->Signal(SIGKILL);
    ps_[index]->Wait(kPatience);
  }

  // A worker's ids and values for one step.
  struct Turn {
    Parameters values;
    client::RowBatch items;
    std::vector<float> dense;
    std::vector<uint64_t> twin_ids;
    std::vector<float> twin;
    std::vector<float> sums;
    std::vector<uint64_t> wide_ids;
    std::vector<float> wide;
    std::unique_ptr<Cluster::Push> push;
  };

  // Sets gradients for the rows that the worker's batch uses.
  void Fill(uint64_t step, uint32_t worker, Turn* turn) {
    turn->dense.assign(400, 0.0f);
    turn->twin_ids.clear();
    turn->twin.clear();
    for (uint64_t id = 0; id < 100; ++id) {
      if ((id + step) % (worker + 2) != 0) continue;
      turn->twin_ids.push_back(id);
      for (size_t i = 0; i < 4; ++i) {
        const float g = GradientOf(id, step, worker, i);
        turn->dense[4 * id + i] = g;
        turn->twin.push_back(g);
      }
    }
    const absl::Span<const float> rows = turn->values.RowsOf(1);
    std::vector<float> gradients;
    for (size_t i = 0; i < turn->items.inverse().size(); ++i) {
      const size_t row = turn->items.inverse()[i];
      for (size_t e = 0; e < 8; ++e) {
        gradients.push_back(0.1f * rows[8 * row + e] +
                            GradientOf(i, step, worker, e));
      }
    }
    turn->sums.resize(8 * turn->items.unique().size());
    turn->items.Sum(gradients.data(), 8, turn->sums.data());
    turn->wide.clear();
    for (const float value : turn->values.RowsOf(2)) {
      turn->wide.push_back(0.1f * value +
                           GradientOf(turn->wide.size(), step, worker, 0));
    }
  }

  absl::Status Step(uint64_t step) {
    std::vector<Turn> turns(kWorkers);
    for (uint32_t w = 0; w < kWorkers; ++w) {
      Turn& turn = turns[w];
      turn.items.Assign(ItemsOf(step, w));
      turn.values.WantRows(1, turn.items.unique());
      turn.wide_ids = WideOf(step, w);
      turn.values.WantRows(2, turn.wide_ids);
      absl::Status status =
          workers_[w]->StartPull(GlobalStep(step), &turn.values)->Await(Soon());
      if (!status.ok()) return status;
      EXPECT_EQ(turn.values.version, GlobalStep(step));
      Fill(step, w, &turn);
      turn.push = workers_[w]->StartPush(turn.values.version);
      if (has_variable()) status = turn.push->Add(0, turn.dense);
      if (status.ok()) {
        status = turn.push->AddRows(0, turn.twin_ids, turn.twin);
      }
      if (status.ok()) {
        status = turn.push->AddRows(1, turn.items.unique(), turn.sums);
      }
      if (status.ok()) status = turn.push->AddRows(2, turn.wide_ids, turn.wide);
      Contribution contribution;
      contribution.seat = w;
      contribution.examples = 10 + w;
      if (status.ok()) status = turn.push->Contribute(contribution);
      if (!status.ok()) return status;
    }
    for (Turn& turn : turns) {
      const auto outcome = turn.push->Await(Soon());
      if (!outcome.ok()) return outcome.status();
      EXPECT_EQ(outcome->verdict, proto::ACCEPTED);
    }
    return absl::OkStatus();
  }

  uint64_t Version() {
    Parameters values;
    const absl::Status status =
        workers_[0]->StartPull(GlobalStep(0), &values)->Await(Soon());
    EXPECT_TRUE(status.ok()) << status;
    return values.version.value();
  }

  // Trains up to step `end`, even if ps die. `before` is called before each
  // step.
  void Train(uint64_t end, const std::function<void(uint64_t)>& before = {}) {
    for (uint64_t step = Version(); step < end;) {
      if (before) before(step);
      const absl::Status status = Step(step);
      if (status.ok()) {
        ++step;
        continue;
      }
      ASSERT_TRUE(absl::IsAborted(status)) << status;
      step = CatchUp();
    }
  }

  // Brings all workers, some of which may not know of a roll-back yet, to the
  // job's version. Returns the version.
  uint64_t CatchUp() {
    Parameters values;
    for (const auto& worker : workers_) {
      for (;;) {
        EXPECT_EQ(worker->AwaitVariables(Soon()), absl::OkStatus());
        const absl::Status status =
            worker->StartPull(GlobalStep(0), &values)->Await(Soon());
        if (status.ok()) break;
        if (!absl::IsAborted(status) || !worker->rolled_back()) {
          ADD_FAILURE() << status;
          return kSteps;
        }
      }
    }
    return values.version.value();
  }

  // Reads all rows that were ever used.
  std::vector<float> ReadAll() {
    std::vector<uint64_t> ids;
    std::vector<uint64_t> wide_ids;
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (uint32_t w = 0; w < kWorkers; ++w) {
        for (const uint64_t id : ItemsOf(step, w)) ids.push_back(id);
        for (const uint64_t id : WideOf(step, w)) wide_ids.push_back(id);
      }
    }
    client::RowBatch batch;
    batch.Assign(ids);
    client::RowBatch wide;
    wide.Assign(wide_ids);
    std::vector<uint64_t> twin(100);
    for (size_t i = 0; i < twin.size(); ++i) twin[i] = i;
    Parameters values;
    values.WantRows(0, twin);
    values.WantRows(1, batch.unique());
    values.WantRows(2, wide.unique());
    const absl::Status status =
        workers_[0]->StartPull(GlobalStep(kSteps), &values)->Await(Soon());
    EXPECT_TRUE(status.ok()) << status;
    if (has_variable()) {
      EXPECT_EQ(values.RowsOf(0), values.Of(0))
          << "a table is the variable bit for bit (B6)";
    }
    std::vector<float> all;
    for (const size_t table : {0, 1, 2}) {
      const absl::Span<const float> rows = values.RowsOf(table);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  // Ends the job in an orderly way.
  std::vector<float> Finish() {
    const std::vector<float> all = ReadAll();
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->AwaitDone(Soon()), absl::OkStatus());
      EXPECT_EQ(worker->Leave("", Soon()), absl::OkStatus());
    }
    for (const auto& ps : ps_) {
      EXPECT_EQ(ps->Wait(kPatience), 0) << ps->Output();
    }
    return all;
  }

  // The number of checkpoints kept that are deltas.
  int NumDeltas() {
    const auto directory =
        CheckpointDirectory::OpenToRead(folder_, PosixFileSystem());
    EXPECT_TRUE(directory.ok()) << directory.status();
    const auto journal = directory->ReadJournal();
    EXPECT_TRUE(journal.ok()) << journal.status();
    int deltas = 0;
    for (const proto::CheckpointName& name : journal->checkpoints()) {
      const auto manifest = directory->ReadManifest(name);
      EXPECT_TRUE(manifest.ok()) << manifest.status();
      deltas += !manifest->chain().empty();
    }
    return deltas;
  }

  // The values of an undisturbed job.
  std::vector<float> Undisturbed(uint32_t num_ps) {
    folder_ += "/undisturbed";
    StartCluster(num_ps);
    Train(kSteps);
    return Finish();
  }

  proto::Declaration declaration_;
  std::string folder_;
  bool same_host_ = true;
  std::optional<ClusterSpec> spec_;
  std::vector<std::unique_ptr<Process>> ps_;
  std::vector<std::unique_ptr<Cluster>> workers_;
};

// Each ps reports on its share when it renews its lease.
TEST_F(TablesTest, TheStatusTellsOfEachTable) {
  StartCluster(2);
  Train(kSteps / 2);
  std::vector<uint64_t> twin(100);
  for (size_t i = 0; i < twin.size(); ++i) twin[i] = i;
  Parameters values;
  values.WantRows(0, twin);
  ASSERT_EQ(workers_[0]->StartPull(GlobalStep(0), &values)->Await(Soon()),
            absl::OkStatus());
  uint64_t read = 0;
  for (uint64_t step = 0; step < kSteps / 2; ++step) {
    for (uint32_t w = 0; w < kWorkers; ++w) {
      client::RowBatch batch;
      batch.Assign(ItemsOf(step, w));
      read += batch.unique().size();
    }
  }
  std::map<std::string, proto::TableReport> sums;
  proto::TableReport& twins = sums["twin"];
  const proto::TableReport& items = sums["items"];
  for (const absl::Time end = Soon(); twins.reads() < 100;) {
    const auto status = workers_[0]->GetStatus(Soon());
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_LT(SteadyNow(), end) << status->DebugString();
    for (auto& [name, sum] : sums) sum.Clear();
    for (const proto::TaskStatus& task : status->tasks()) {
      for (const proto::TableReport& table : task.ps().tables()) {
        proto::TableReport& sum = sums[table.name()];
        sum.set_rows(sum.rows() + table.rows());
        sum.set_reads(sum.reads() + table.reads());
        sum.set_hits(sum.hits() + table.hits());
        sum.set_admissions(sum.admissions() + table.admissions());
        sum.set_expirations(sum.expirations() + table.expirations());
      }
    }
  }
  // The rows of "twin" were read once, when all of them existed.
  EXPECT_EQ(twins.ShortDebugString(),
            "rows: 100 reads: 100 hits: 100 admissions: 100");
  EXPECT_EQ(items.reads(), read);
  EXPECT_GT(items.hits(), 0u);
  EXPECT_LT(items.hits(), read);
  EXPECT_GT(items.rows(), 0u);
  EXPECT_EQ(items.rows(), items.admissions() - items.expirations());
}

// Rows pass through shared memory if they are many, with the same bits as over
// the network.
TEST_F(TablesTest, RowsPassThroughSharedMemory) {
  if (!SharedArena::HugePagesWork()) GTEST_SKIP() << "no huge pages";
  std::vector<float> network;
  for (const bool same_host : {false, true}) {
    same_host_ = same_host;
    folder_ += "/next";
    StartCluster(2);
    Train(kSteps);
    // The rows that ps 0 has of each batch are enough to be lent.
    uint64_t bytes = 0;
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (uint32_t w = 0; w < kWorkers; ++w) {
        for (const uint64_t id : WideOf(step, w)) {
          if (PsOfBucket(BucketOfRow(id), 2) == 0) bytes += 64 * sizeof(float);
        }
      }
    }
    if (!same_host) bytes = 0;
    proto::SharedMemoryUse use;
    for (const absl::Time end = Soon();;) {
      const auto status = workers_[0]->GetStatus(Soon());
      ASSERT_TRUE(status.ok()) << status.status();
      for (const proto::TaskStatus& task : status->tasks()) {
        if (task.task().job() == "ps" && task.task().index() == 0) {
          use = task.ps().shared_memory();
        }
      }
      if (use.received_bytes() >= bytes && use.sent_bytes() >= bytes) break;
      ASSERT_LT(SteadyNow(), end) << use.DebugString();
    }
    EXPECT_EQ(use.received_bytes(), bytes);
    EXPECT_EQ(use.sent_bytes(), bytes);
    const std::vector<float> all = Finish();
    if (!same_host) network = all;
    EXPECT_EQ(all, network);
  }
}

TEST_F(TablesTest, TheRowsAreTheSameForAnyNumberOfPs) {
  const std::vector<float> one = Undisturbed(1);
  EXPECT_GT(one.size(), 8 * 1000u);
  EXPECT_EQ(Undisturbed(2), one);
  EXPECT_EQ(Undisturbed(4), one);
}

TEST_F(TablesTest, APsThatIsKilledComesBackWithTheRowsOfTheCheckpoint) {
  const std::vector<float> undisturbed = Undisturbed(2);
  folder_ += "/next";
  StartCluster(2);
  std::vector<uint64_t> killed_at;
  Train(kSteps, [&](uint64_t step) {
    // Each ps is killed once; the second one has the coordinator.
    if (killed_at.size() == 2 || step < 7 + 8 * killed_at.size()) return;
    const uint32_t ps = 1 - killed_at.size();
    killed_at.push_back(step);
    KillPs(ps);
    StartPs(ps);
  });
  EXPECT_EQ(killed_at.size(), 2u);
  EXPECT_EQ(Finish(), undisturbed);
}

TEST_F(TablesTest, AJobGoesOnWithItsRowsOnAnotherNumberOfPs) {
  const std::vector<float> undisturbed = Undisturbed(3);
  folder_ += "/next";
  StartCluster(2);
  for (const uint64_t step : {7, 9}) {
    Train(step);
    ASSERT_TRUE(workers_[0]->SaveCheckpoint(Soon()).ok());
  }
  EXPECT_GE(NumDeltas(), 1) << "of two in a row one is a delta";
  for (uint32_t i = 0; i < 2; ++i) KillPs(i);
  StartCluster(3);
  EXPECT_EQ(Version(), 9u);
  Train(15);
  ASSERT_TRUE(workers_[0]->SaveCheckpoint(Soon()).ok());
  for (uint32_t i = 0; i < 3; ++i) KillPs(i);
  StartCluster(1);
  Train(kSteps);
  EXPECT_EQ(Finish(), undisturbed);
}

// The rows do not depend on the variable.
TEST_F(TablesTest, AJobWithoutVariablesGoesOnWithItsRows) {
  const std::vector<float> undisturbed = Undisturbed(2);
  RemoveVariable();
  folder_ += "/next";
  StartCluster(2);
  bool killed = false;
  Train(15, [&](uint64_t step) {
    if (step < 6 || std::exchange(killed, true)) return;
    KillPs(1);
    StartPs(1);
  });
  EXPECT_TRUE(killed);
  ASSERT_TRUE(workers_[0]->SaveCheckpoint(Soon()).ok());
  for (uint32_t i = 0; i < 2; ++i) KillPs(i);
  StartCluster(3);
  EXPECT_EQ(Version(), 15u);
  Train(kSteps);
  EXPECT_EQ(Finish(), undisturbed);
}

TEST_F(TablesTest, WhatIsWrongIsToldAndNothingIsLost) {
  StartCluster(2);
  Cluster& worker = *workers_[0];
  const auto push = worker.StartPush(GlobalStep(0));
  const std::vector<float> row(4, 1.0f);
  const auto refused = [&](const absl::Status& status,
                           const std::string& text) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused(push->AddRows(2, std::vector<uint64_t>{1}, row), "table");
  refused(push->AddRows(0, std::vector<uint64_t>{1, 2}, row), "\"twin\"");
  refused(push->AddRows(0, std::vector<uint64_t>{1, 1},
                        std::vector<float>(8, 1.0f)),
          "\"twin\"");
  std::vector<uint64_t> many(101);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i;
  refused(push->AddRows(0, many, std::vector<float>(404, 1.0f)),
          "max_rows_per_push");
  // A pull of many ids that were never pushed creates no rows (B1).
  const uint64_t before =
      worker.GetStatus(Soon())->tasks(0).ps().memory().tables();
  std::vector<uint64_t> unknown(1'000'000);
  for (size_t i = 0; i < unknown.size(); ++i) unknown[i] = 5 * i;
  Parameters values;
  values.WantRows(1, unknown);
  ASSERT_EQ(worker.StartPull(GlobalStep(0), &values)->Await(Soon()),
            absl::OkStatus());
  EXPECT_EQ(values.RowsOf(1).size(), 8 * unknown.size());
  EXPECT_EQ(worker.GetStatus(Soon())->tasks(0).ps().memory().tables(), before);
  Train(kSteps);
  Finish();
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// Embedding tables in checkpoints, through the shard's disk.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/data_file.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gtest/gtest.h"
#include "ps_server/disk/directory_shard_disk.h"
#include "ps_server/disk/testing/disk_testing.h"
#include "ps_server/shard/testing/machine_testing.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

constexpr absl::StatusCode kNotReady = absl::StatusCode::kFailedPrecondition;

// "user" admits, expires and evicts rows; "item" does not. There is also a
// variable, "w".
proto::Declaration MakeDeclaration() {
  return ParseText<proto::Declaration>(R"(
      seed: 42
      variables { name: "w" shape: 2 dtype: FLOAT32 initializer { zeros {} } }
      tables {
        name: "user" row_length: 2 max_rows_per_push: 1000
        initializer { uniform { low: -1 high: 1 } }
        min_count: 2 expire_after_steps: 12 max_rows: 32768
      }
      tables {
        name: "item" row_length: 3 max_rows_per_push: 1000
        initializer { zeros {} } optimizer: 1
      }
      optimizers { learning_rate: 0.1 adagrad {} }
      optimizers { learning_rate: 0.1 sgd {} })");
}

ShardDisk::LoadOptions OptionsFor(uint32_t num_ps) {
  ShardDisk::LoadOptions options;
  options.declaration = MakeDeclaration();
  proto::Slice slice;
  slice.set_variable("w");
  slice.set_size(2);
  options.slices = {slice};
  options.slots_by_optimizer = {{0.1f}, {}};
  options.num_ps = num_ps;
  return options;
}

proto::CheckpointName Name(uint64_t step) {
  proto::CheckpointName name;
  name.set_generation(1);
  name.set_step(step);
  return name;
}

// The states of all ps.
using States = std::vector<ShardState>;

// `since`: the snapshot has only what has changed since then.
ShardSnapshot SnapshotOf(const ShardState& state,
                         std::optional<GlobalStep> since = std::nullopt) {
  ShardSnapshot snapshot{state.store->Snapshot(), {}};
  for (const auto& table : state.tables) {
    snapshot.tables.push_back(table->Snapshot(since, since.has_value()));
  }
  return snapshot;
}

// All that the tables hold, by bucket.
std::string ContentsOf(const States& states) {
  std::string contents;
  for (size_t i = 0; i < states[0].tables.size(); ++i) {
    for (const ShardState& state : states) {
      const TableSnapshot snapshot = state.tables[i]->Snapshot();
      const BucketRange& buckets = snapshot.buckets();
      for (uint32_t b = buckets.begin; b < buckets.end; ++b) {
        const size_t before = contents.size();
        const StoredBucket counts = snapshot.AppendBucket(b, &contents);
        if (contents.size() == before) continue;
        absl::StrAppend(&contents, "bucket ", b, " has ", counts.rows, "+",
                        counts.candidates);
      }
    }
  }
  return contents;
}

class TablesTest : public ::testing::Test {
 protected:
  CheckpointDirectory Directory() {
    return *CheckpointDirectory::Open("/checkpoints", &gate_);
  }
  std::unique_ptr<DirectoryShardDisk> Disk(uint32_t ps) {
    return std::make_unique<DirectoryShardDisk>(Directory(), ps, &home_);
  }
  absl::StatusOr<ShardState> Load(uint32_t ps,
                                  const ShardDisk::LoadOptions& options) {
    const auto disk = Disk(ps);
    return Await<ShardState>([&](Reply<ShardState> reply) {
      disk->Load(options, std::move(reply));
    });
  }
  States LoadAll(const ShardDisk::LoadOptions& options) {
    States states;
    for (uint32_t ps = 0; ps < options.num_ps; ++ps) {
      auto state = Load(ps, options);
      EXPECT_TRUE(state.ok()) << state.status();
      states.push_back(*std::move(state));
    }
    return states;
  }
  static absl::StatusOr<proto::DataFile> Save(DirectoryShardDisk& disk,
                                              uint64_t step, uint32_t num_ps,
                                              ShardSnapshot snapshot) {
    return Await<proto::DataFile>([&](Reply<proto::DataFile> reply) {
      disk.Save(Name(step), num_ps, std::move(snapshot), std::move(reply));
    });
  }
  // Saves the checkpoint of `step`: only what has changed since the last of
  // `chain`, the steps of the checkpoints that it needs; all if that is empty.
  void SaveAll(const States& states, uint64_t step,
               const std::vector<uint64_t>& chain = {}) {
    proto::Manifest manifest;
    *manifest.mutable_name() = Name(step);
    *manifest.mutable_declaration() = MakeDeclaration();
    std::optional<GlobalStep> since;
    for (const uint64_t link : chain) {
      since = GlobalStep(link);
      *manifest.mutable_previous() = Name(link);
      *manifest.add_chain()->mutable_checkpoint() = Name(link);
    }
    for (uint32_t ps = 0; ps < states.size(); ++ps) {
      ShardSnapshot snapshot = SnapshotOf(states[ps], since);
      // "w" is ps 0's.
      if (ps > 0) snapshot.dense = StoreSnapshot();
      const auto file =
          Save(*Disk(ps), step, states.size(), std::move(snapshot));
      ASSERT_TRUE(file.ok()) << file.status();
      *manifest.add_files() = *file;
    }
    ASSERT_TRUE(Directory().WriteManifest(manifest).ok());
  }
  static ShardDisk::LoadOptions From(uint64_t step, uint32_t num_ps) {
    ShardDisk::LoadOptions options = OptionsFor(num_ps);
    options.checkpoint = Name(step);
    return options;
  }

  // A step of random pushes to both tables, on all ps of each of `all`.
  void StepAll(const std::vector<States*>& all) {
    for (size_t i = 0; i < 2; ++i) {
      Gradients push;
      for (int n = 0; n < 300; ++n) {
        std::vector<float>& gradient = push[random_() % 1000];
        gradient.assign(i + 2, 0.5f);
        gradient[0] = static_cast<float>(random_() % 9);
      }
      for (States* const states : all) {
        for (ShardState& state : *states) {
          Step(state.tables[i].get(), {push}, Rate(0.1f));
        }
      }
    }
  }
  // The states of 2 ps after `steps` steps.
  States StatesAfter(int steps) {
    States states = LoadAll(OptionsFor(2));
    for (int step = 0; step < steps; ++step) StepAll({&states});
    return states;
  }

  FaultyFileSystem memory_;
  GatedFileSystem gate_{&memory_};
  Strand home_{"home"};
  std::mt19937 random_{5};
};

TEST_F(TablesTest, RestoredOnAnyNumberOfPsTheyGoOnWithTheSameBits_B14) {
  States states = StatesAfter(20);
  const std::string expected = ContentsOf(states);
  EXPECT_GT(states[0].tables[0]->rows(), 0);
  EXPECT_GT(states[0].tables[0]->candidates(), 0);
  SaveAll(states, 20);
  States on_one = LoadAll(From(20, 1));
  States on_two = LoadAll(From(20, 2));
  States on_three = LoadAll(From(20, 3));
  for (const States* const restored : {&on_one, &on_two, &on_three}) {
    EXPECT_TRUE(ContentsOf(*restored) == expected);
    for (const ShardState& state : *restored) {
      EXPECT_EQ(state.tables[0]->version(), GlobalStep(20));
      EXPECT_EQ(state.tables[1]->version(), GlobalStep(20));
    }
  }
  for (int step = 0; step < 15; ++step) {
    StepAll({&states, &on_one, &on_two, &on_three});
  }
  const std::string later = ContentsOf(states);
  EXPECT_TRUE(later != expected);
  for (const States* const restored : {&on_one, &on_two, &on_three}) {
    EXPECT_TRUE(ContentsOf(*restored) == later);
  }
}

// Rows expire, are evicted and come back between them.
TEST_F(TablesTest, AChainIsRestoredOnAnyNumberOfPs_B15) {
  States states = StatesAfter(20);
  const auto keep_changes = [](const States& all) {
    for (const ShardState& state : all) {
      for (const auto& table : state.tables) table->KeepChanges();
    }
  };
  keep_changes(states);
  SaveAll(states, 20);
  std::vector<uint64_t> chain = {20};
  for (uint64_t step = 21; step <= 40; ++step) {
    StepAll({&states});
    if (step % 5 > 0) continue;
    SaveAll(states, step, chain);
    chain.push_back(step);
    for (const uint32_t num_ps : {1, 3}) {
      EXPECT_TRUE(ContentsOf(LoadAll(From(step, num_ps))) ==
                  ContentsOf(states));
    }
    // The job goes on with another number of ps.
    if (step == 30) {
      states = LoadAll(From(step, 3));
      keep_changes(states);
    }
  }
  EXPECT_EQ(chain.size(), 5u);
}

TEST_F(TablesTest, StepsGoOnWhileItIsWritten) {
  States states = StatesAfter(10);
  const std::string expected = ContentsOf(states);
  const auto disk = Disk(0);
  const auto other_disk = Disk(1);
  gate_.Close("g0001-step00000010");
  std::vector<absl::StatusOr<proto::DataFile>> files(2);
  absl::Notification saved[2];
  ShardSnapshot snapshots[2] = {SnapshotOf(states[0]), SnapshotOf(states[1])};
  snapshots[1].dense = StoreSnapshot();
  int ps = 0;
  for (auto* const each : {disk.get(), other_disk.get()}) {
    each->Save(Name(10), 2, std::move(snapshots[ps]),
               [&files, &saved, ps](absl::StatusOr<proto::DataFile> file) {
                 files[ps] = std::move(file);
                 saved[ps].Notify();
               });
    ++ps;
  }
  gate_.AwaitSomebody();
  for (int step = 0; step < 15; ++step) StepAll({&states});
  // The generation ends before the disk has begun.
  states.clear();
  gate_.Open();
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(10);
  *manifest.mutable_declaration() = MakeDeclaration();
  for (int i = 0; i < 2; ++i) {
    saved[i].WaitForNotification();
    ASSERT_TRUE(files[i].ok()) << files[i].status();
    *manifest.add_files() = *files[i];
  }
  ASSERT_TRUE(Directory().WriteManifest(manifest).ok());
  EXPECT_TRUE(ContentsOf(LoadAll(From(10, 2))) == expected);
}

TEST_F(TablesTest, WhatIsAbandonedIsReleased) {
  States states = StatesAfter(3);
  const auto disk = Disk(0);
  gate_.Close("g0001-step00000003");
  absl::Notification came;
  disk->Save(Name(3), 2, SnapshotOf(states[0]),
             [&](const absl::StatusOr<proto::DataFile>& file) {
               EXPECT_EQ(file.status().code(), absl::StatusCode::kAborted);
               came.Notify();
             });
  gate_.AwaitSomebody();
  StepAll({&states});
  EXPECT_GT(states[0].tables[0]->held_bytes(), 0);
  disk->AbandonSave();
  gate_.Open();
  came.WaitForNotification();
  StepAll({&states});
  EXPECT_EQ(states[0].tables[0]->held_bytes(), 0);
}

TEST_F(TablesTest, BytesAreCounted) {
  const States states = StatesAfter(5);
  SaveAll(states, 5);
  const auto disk = Disk(0);
  const auto state = Await<ShardState>([&](Reply<ShardState> reply) {
    disk->Load(From(5, 1), std::move(reply));
  });
  uint64_t bytes = 2 * 2 * sizeof(float);
  for (const auto& table : state->tables) bytes += table->Snapshot().bytes();
  EXPECT_EQ(disk->LoadProgress().bytes_total(), bytes);
  EXPECT_EQ(disk->LoadProgress().bytes_done(), bytes);
  ASSERT_TRUE(Save(*disk, 6, 1, SnapshotOf(*state)).ok());
  EXPECT_EQ(disk->SaveProgress().bytes_total(), bytes);
  EXPECT_EQ(disk->SaveProgress().bytes_done(), bytes);
}

TEST_F(TablesTest, WhatDoesNotFitIsNamed) {
  SaveAll(StatesAfter(5), 5);
  const auto refused = [&](absl::StatusCode code,
                           const std::vector<std::string>& text, auto change) {
    ShardDisk::LoadOptions options = From(5, 1);
    change(options);
    EXPECT_TRUE(Fails(Load(0, options).status(), code, text));
  };
  refused(kNotReady,
          {"g0001-step00000005", "table \"fresh\" is declared, but not saved"},
          [](auto& options) {
            options.declaration.mutable_tables(0)->set_name("fresh");
          });
  refused(kNotReady,
          {"g0001-step00000005",
           "table \"user\" is saved with rows of 2 values, declared with rows "
           "of 3"},
          [](auto& options) {
            options.declaration.mutable_tables(0)->set_row_length(3);
          });
  refused(kNotReady,
          {"table \"user\" is saved with 2 float32 of slots for each row, its "
           "optimizer has 0"},
          [](auto& options) {
            options.declaration.mutable_tables(0)->set_optimizer(1);
          });
  refused(absl::StatusCode::kInvalidArgument,
          {"table \"item\": there is no optimizer 2, only 2"},
          [](auto& options) {
            options.declaration.mutable_tables(1)->set_optimizer(2);
          });
  refused(kNotReady, {"table \"item\" is full", "do not fit in its 1000"},
          [](auto& options) {
            options.table_max_bytes = {1 << 30, 1000};
          });
}

TEST_F(TablesTest, ACheckpointOfBeforeTablesIsOneWithoutThem) {
  States states = StatesAfter(2);
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(2);
  *manifest.mutable_declaration() = MakeDeclaration();
  manifest.mutable_declaration()->clear_tables();
  const auto file =
      Save(*Disk(0), 2, 1, ShardSnapshot{states[0].store->Snapshot(), {}});
  ASSERT_TRUE(file.ok()) << file.status();
  *manifest.add_files() = *file;
  ASSERT_TRUE(Directory().WriteManifest(manifest).ok());
  EXPECT_TRUE(Fails(Load(0, From(2, 1)).status(), kNotReady,
                    {"table \"user\" is declared, but not saved"}));
  ShardDisk::LoadOptions options = From(2, 1);
  options.declaration.clear_tables();
  EXPECT_TRUE(Load(0, options).ok());
}

TEST_F(TablesTest, RowsThatAreDamagedAreFound) {
  SaveAll(StatesAfter(5), 5);
  const std::string path =
      absl::StrCat(Directory().Folder(Name(5)), "/ps-0001-of-0002");
  const std::string contents = memory_.Contents(path);
  std::string damaged = contents;
  damaged[1000] ^= 1;
  memory_.SetContents(path, damaged);
  EXPECT_TRUE(Fails(Load(0, From(5, 1)).status(), absl::StatusCode::kDataLoss,
                    {path, "table \"user\"", "rows of buckets 8"}));
  // None of the damaged buckets are read.
  EXPECT_TRUE(Load(0, From(5, 2)).ok());
  memory_.SetContents(path, contents);

  // Undamaged, but of a later step than the checkpoint.
  SaveAll(StatesAfter(5), 3);
  EXPECT_TRUE(Fails(Load(0, From(3, 1)).status(), absl::StatusCode::kDataLoss,
                    {"/ps-0000-of-0002: table \"user\", bucket ", "has step"}));
}

// ---- Warm start ----

// A table's rows by id: step, count, values and slots.
using Rows =
    std::map<uint64_t, std::tuple<uint64_t, uint32_t, std::vector<float>>>;

Rows RowsOf(const States& states, size_t index) {
  Rows rows;
  for (const ShardState& state : states) {
    const EmbeddingTable& table = *state.tables[index];
    for (uint32_t b = table.buckets().begin; b < table.buckets().end; ++b) {
      for (const RowHeader* const row :
           table.Sorted(EmbeddingTable::Kind::kRow, b)) {
        rows[row->id()] = {
            row->step(), row->count(),
            std::vector<float>(
                row->floats(),
                row->floats() + table.floats(EmbeddingTable::Kind::kRow))};
      }
    }
  }
  return rows;
}

TEST_F(TablesTest, AWarmStartTakesRowsWithNewSlots) {
  const States states = StatesAfter(10);
  SaveAll(states, 10);
  ShardDisk::LoadOptions options = OptionsFor(3);
  options.warm_start = Directory().Folder(Name(10));
  // Another number of slots does not matter, another row length does.
  options.declaration.mutable_tables(1)->set_row_length(4);
  options.declaration.mutable_optimizers(0)->mutable_adam();
  options.slots_by_optimizer[0] = {0, 0};
  const States warm = LoadAll(options);
  Rows expected = RowsOf(states, 0);
  for (auto& [id, row] : expected) {
    auto& [step, count, floats] = row;
    step = 0;
    count = 0;
    floats = {floats[0], floats[1], 0, 0, 0, 0};
  }
  EXPECT_EQ(RowsOf(warm, 0), expected);
  EXPECT_EQ(RowsOf(warm, 1), Rows());
  for (const ShardState& state : warm) {
    EXPECT_EQ(state.tables[0]->candidates(), 0);
    EXPECT_EQ(state.tables[0]->version(), GlobalStep(0));
  }
}

TEST_F(TablesTest, AWarmStartTakesSlotsWithTheRows) {
  const States states = StatesAfter(10);
  SaveAll(states, 10);
  ShardDisk::LoadOptions options = OptionsFor(1);
  options.warm_start = Directory().Folder(Name(10));
  options.warm_start_slots = true;
  const States warm = LoadAll(options);
  Rows expected = RowsOf(states, 0);
  for (auto& [id, row] : expected) {
    std::get<0>(row) = 0;
    std::get<1>(row) = 0;
  }
  EXPECT_EQ(RowsOf(warm, 0), expected);
}

TEST_F(TablesTest, AWarmStartTakesTheLastTouchedOfAFullBucket) {
  States states = LoadAll(OptionsFor(1));
  // Ids of bucket 77, of which "item" has all, in no particular order.
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; ids.size() < 4; ++id) {
    if (BucketOfRow(id) == 77) ids.push_back(id);
  }
  EmbeddingTable* const item = states[0].tables[1].get();
  const std::vector<float> gradient = {1, 1, 1};
  Step(item, {{{ids[3], gradient}}}, Rate(1));
  Step(item, {{{ids[0], gradient}, {ids[2], gradient}}}, Rate(1));
  Step(item, {{{ids[1], gradient}}}, Rate(1));
  SaveAll(states, 3);
  ShardDisk::LoadOptions options = OptionsFor(1);
  options.warm_start = Directory().Folder(Name(3));
  options.declaration.mutable_tables(1)->set_max_rows(2 * kRowBuckets);
  const Rows rows = RowsOf(LoadAll(options), 1);
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.count(ids[1]), 1u) << "the last";
  EXPECT_EQ(rows.count(ids[2]), 1u) << "the higher id of the step before";
}

TEST_F(TablesTest, AWarmStartMayBeOfTablesAlone) {
  SaveAll(StatesAfter(5), 5);
  ShardDisk::LoadOptions options = OptionsFor(1);
  options.warm_start = Directory().Folder(Name(5));
  options.declaration.mutable_variables(0)->set_name("other");
  options.slices[0].set_variable("other");
  EXPECT_TRUE(Load(0, options).ok());
  for (proto::EmbeddingTable& table : *options.declaration.mutable_tables()) {
    table.set_row_length(7);
  }
  EXPECT_TRUE(Fails(Load(0, options).status(), kNotReady,
                    {"warm start from", "and no table with the same name"}));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/disk/directory_shard_disk.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/testing/faulty_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/disk/testing/disk_testing.h"
#include "ps_server/shard/testing/machine_testing.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

using Store = std::unique_ptr<DenseStore>;

constexpr absl::StatusCode kNotReady = absl::StatusCode::kFailedPrecondition;
constexpr uint64_t kNonce = 5;

// More than two chunks, and not a round number.
constexpr uint64_t kBig = 2 * kChunkElements + 1001;

proto::Variable& AddVariable(proto::Declaration& declaration,
                             const std::string& name,
                             const std::vector<int64_t>& shape) {
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name(name);
  variable.mutable_shape()->Assign(shape.begin(), shape.end());
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_constant()->set_value(-1);
  return variable;
}

// "big", "small" with another number of slots, "frozen" and "nothing".
proto::Declaration MakeDeclaration() {
  proto::Declaration declaration;
  AddVariable(declaration, "big", {static_cast<int64_t>(kBig)});
  AddVariable(declaration, "small", {2, 3}).set_optimizer(1);
  AddVariable(declaration, "frozen", {3}).set_trainable(false);
  AddVariable(declaration, "nothing", {0});
  declaration.add_optimizers()->mutable_adam();
  declaration.add_optimizers()->mutable_momentum();
  return declaration;
}

proto::Slice Place(const std::string& variable, uint64_t begin, uint64_t size,
                   uint32_t ps) {
  proto::Slice slice;
  slice.set_variable(variable);
  slice.set_begin(begin);
  slice.set_size(size);
  slice.set_ps(ps);
  return slice;
}

std::vector<proto::Slice> OnTwoPs() {
  return {Place("big", 0, kChunkElements + 7, 0),
          Place("big", kChunkElements + 7, kBig - kChunkElements - 7, 1),
          Place("small", 0, 6, 0), Place("frozen", 0, 3, 1),
          Place("nothing", 0, 0, 1)};
}

ShardDisk::LoadOptions OptionsFor(std::vector<proto::Slice> slices) {
  ShardDisk::LoadOptions options;
  options.declaration = MakeDeclaration();
  options.slices = std::move(slices);
  options.slots_by_optimizer = {{0, 0}, {0.5f}};
  return options;
}

proto::CheckpointName Name(uint64_t step) {
  proto::CheckpointName name;
  name.set_generation(1);
  name.set_step(step);
  return name;
}

// What a test writes to element `i` of a variable's values (0) or slots. Below
// 2^24, so exact.
float Element(uint32_t slot, uint64_t i) {
  return static_cast<float>(1000000 * (slot + 1) + i);
}

// Calls `f` with each element's slot, index and place in the store.
template <typename Function>
void ForEachElement(DenseStore& store, Function f) {
  for (size_t i = 0; i < store.slices().size(); ++i) {
    const StoredSlice& slice = store.slices()[i];
    for (size_t slot = 0; slot <= store.num_slots(i); ++slot) {
      for (size_t c = 0; c < slice.num_chunks(); ++c) {
        float* const chunk = slot == 0 ? store.ValuesToLoad(i, c)
                                       : store.SlotToLoad(i, slot - 1, c);
        for (size_t k = 0; k < slice.chunk_size(c); ++k) {
          f(slot, slice.begin + c * kChunkElements + k, chunk + k);
        }
      }
    }
  }
}

class DirectoryShardDiskTest : public ::testing::Test {
 protected:
  explicit DirectoryShardDiskTest(FileSystem* file_system = nullptr)
      : gate_(file_system == nullptr ? &memory_ : file_system) {}

  CheckpointDirectory Directory() {
    auto directory = CheckpointDirectory::Open(path_, &gate_);
    EXPECT_TRUE(directory.ok()) << directory.status();
    return *directory;
  }
  std::unique_ptr<DirectoryShardDisk> Disk(uint32_t ps) {
    return std::make_unique<DirectoryShardDisk>(Directory(), ps, &home_);
  }
  static absl::StatusOr<Store> Load(ShardDisk& disk,
                                    const ShardDisk::LoadOptions& options) {
    auto state = Await<ShardState>(
        [&](Reply<ShardState> reply) { disk.Load(options, std::move(reply)); });
    if (!state.ok()) return state.status();
    return std::move(state->store);
  }
  absl::StatusOr<Store> Load(uint32_t ps,
                             const ShardDisk::LoadOptions& options) {
    return Load(*Disk(ps), options);
  }
  static absl::StatusOr<proto::DataFile> Save(ShardDisk& disk,
                                              const proto::CheckpointName& name,
                                              uint32_t num_ps,
                                              StoreSnapshot snapshot) {
    return Await<proto::DataFile>([&](Reply<proto::DataFile> reply) {
      disk.Save(name, num_ps, {std::move(snapshot), {}}, std::move(reply));
    });
  }

  // A checkpoint of step 7 with Element() everywhere, by two ps.
  void SaveElements() {
    proto::Manifest manifest;
    *manifest.mutable_name() = Name(7);
    *manifest.mutable_declaration() = MakeDeclaration();
    for (const uint32_t ps : {0, 1}) {
      const auto disk = Disk(ps);
      auto store = Load(*disk, OptionsFor(OnTwoPs()));
      ASSERT_TRUE(store.ok()) << store.status();
      ForEachElement(**store, [](uint32_t slot, uint64_t i, float* element) {
        *element = Element(slot, i);
      });
      (*store)->SetVersion(GlobalStep(7));
      const auto file = Save(*disk, Name(7), 2, (*store)->Snapshot());
      ASSERT_TRUE(file.ok()) << file.status();
      *manifest.add_files() = *file;
    }
    ASSERT_TRUE(Directory().WriteManifest(manifest).ok());
  }
  static ShardDisk::LoadOptions FromStep7(std::vector<proto::Slice> slices) {
    ShardDisk::LoadOptions options = OptionsFor(std::move(slices));
    options.checkpoint = Name(7);
    return options;
  }
  void ExpectElements(const absl::StatusOr<Store>& store) {
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->newest()->number, GlobalStep(7));
    uint64_t wrong = 0;
    ForEachElement(**store, [&](uint32_t slot, uint64_t i, float* element) {
      if (*element != Element(slot, i)) ++wrong;
    });
    EXPECT_EQ(wrong, 0u);
  }

  std::string path_ = "/checkpoints";
  FaultyFileSystem memory_;
  GatedFileSystem gate_;
  Strand home_{"home"};
};

class OnRealFilesTest : public DirectoryShardDiskTest {
 protected:
  OnRealFilesTest() : DirectoryShardDiskTest(PosixFileSystem()) {
    path_ = absl::StrCat(testing::TempDir(), "/checkpoints");
  }
};

TEST_F(OnRealFilesTest, WhatIsSavedIsLoaded) {
  SaveElements();
  for (const uint32_t ps : {0, 1}) {
    ExpectElements(Load(ps, FromStep7(OnTwoPs())));
  }
}

TEST_F(DirectoryShardDiskTest, AnotherNumberOfPsLoadsTheSame) {
  SaveElements();
  const std::vector<proto::Slice> slices = {
      Place("big", 0, 3, 0),
      Place("big", 3, kChunkElements + 100, 1),
      Place("big", kChunkElements + 103, kBig - kChunkElements - 103, 2),
      Place("small", 0, 3, 2),
      Place("small", 3, 3, 0),
      Place("frozen", 0, 3, 0)};
  for (const uint32_t ps : {0, 1, 2}) {
    ExpectElements(Load(ps, FromStep7(slices)));
  }
}

TEST_F(DirectoryShardDiskTest, WithoutACheckpointThereAreFirstValues) {
  const auto store = Load(0, OptionsFor(OnTwoPs()));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->newest()->number, GlobalStep(0));
  EXPECT_EQ((*store)->ValuesToLoad(1, 0)[5], -1);
  EXPECT_EQ((*store)->SlotToLoad(1, 0, 0)[5], 0.5f);
}

TEST_F(DirectoryShardDiskTest, ADeclarationThatCannotBeIsRefused) {
  EXPECT_TRUE(Fails(Load(0, OptionsFor({Place("x", 0, 1, 0)})).status(),
                    absl::StatusCode::kInvalidArgument, {"\"x\""}));
}

TEST_F(DirectoryShardDiskTest, WhatDoesNotFitIsNamed) {
  SaveElements();
  const std::string folder = "g0001-step00000007";
  const auto refused = [&](const std::vector<std::string>& text, auto change) {
    ShardDisk::LoadOptions options = FromStep7(OnTwoPs());
    change(options);
    EXPECT_TRUE(Fails(Load(0, options).status(), kNotReady, text));
  };
  refused({folder,
           "variable \"small\" is saved as FLOAT32 [2,3], declared as "
           "FLOAT32 [3,2]"},
          [](auto& options) {
            proto::Variable& small = *options.declaration.mutable_variables(1);
            small.set_shape(0, 3);
            small.set_shape(1, 2);
          });
  refused(
      {folder, "variable \"big\" is saved with 2 slots, its optimizer has 1"},
      [](auto& options) { options.slots_by_optimizer[0] = {0}; });
  refused({folder, "variable \"fresh\" is declared, but not saved"},
          [](auto& options) {
            AddVariable(options.declaration, "fresh", {1});
            options.slices.push_back(Place("fresh", 0, 1, 0));
          });
  // Fields that do not matter may differ.
  ShardDisk::LoadOptions options = FromStep7(OnTwoPs());
  options.declaration.set_total_steps(99);
  options.declaration.mutable_variables(0)->clear_initializer();
  ExpectElements(Load(0, options));
}

TEST_F(DirectoryShardDiskTest, ACheckpointThatIsNotThereIsToldSo) {
  EXPECT_TRUE(Fails(Load(0, FromStep7(OnTwoPs())).status(),
                    absl::StatusCode::kNotFound, {"g0001-step00000007"}));
}

TEST_F(DirectoryShardDiskTest, DamageIsSeen) {
  SaveElements();
  for (const std::string& file : memory_.Files()) {
    std::string contents = memory_.Contents(file);
    if (contents.size() < kChunkElements) continue;  // not a data file
    contents[contents.size() / 2] ^= 1;
    memory_.SetContents(file, contents);
  }
  for (const uint32_t ps : {0, 1}) {
    EXPECT_TRUE(Fails(Load(ps, FromStep7(OnTwoPs())).status(),
                      absl::StatusCode::kDataLoss, {"g0001-step00000007"}));
  }
}

TEST_F(DirectoryShardDiskTest, AFullDiskIsToldAndLeavesNothing) {
  const auto disk = Disk(0);
  auto store = Load(*disk, OptionsFor(OnTwoPs()));
  ASSERT_TRUE(store.ok()) << store.status();
  memory_.SetSpace(100);
  EXPECT_TRUE(Fails(Save(*disk, Name(7), 2, (*store)->Snapshot()).status(),
                    absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(memory_.Files(), SizeIs(0));
  memory_.SetSpace(std::nullopt);
  EXPECT_TRUE(Save(*disk, Name(7), 2, (*store)->Snapshot()).ok());
}

TEST_F(DirectoryShardDiskTest, BytesAreCounted) {
  SaveElements();
  const auto disk = Disk(0);
  EXPECT_EQ(disk->LoadProgress().bytes_total(), 0u);
  const auto store = Load(*disk, FromStep7(OnTwoPs()));
  // "big" with two slots, "small" with one.
  const uint64_t bytes = 4 * (3 * (kChunkElements + 7) + 2 * 6);
  EXPECT_EQ(disk->LoadProgress().bytes_total(), bytes);
  EXPECT_EQ(disk->LoadProgress().bytes_done(), bytes);
  ASSERT_TRUE(Save(*disk, Name(8), 2, (*store)->Snapshot()).ok());
  EXPECT_EQ(disk->SaveProgress().bytes_total(), bytes);
  EXPECT_EQ(disk->SaveProgress().bytes_done(), bytes);
}

// A file of the checkpoint, while the directory can be read.
TEST_F(DirectoryShardDiskTest, ABadSectorIsToldFromADiskThatIsAway) {
  SaveElements();
  proto::Journal journal;
  journal.set_directory_nonce(kNonce);
  ASSERT_TRUE(Directory().WriteJournal(journal).ok());
  ShardDisk::LoadOptions options = FromStep7(OnTwoPs());
  options.directory_nonce = kNonce;
  const auto io_error = absl::UnavailableError("input/output error");
  memory_.SetReadFails("g0001-step00000007/ps-0000", io_error);
  EXPECT_TRUE(Fails(Load(0, options).status(), absl::StatusCode::kUnknown,
                    {"input/output error"}));
  memory_.SetReadFails("/checkpoints/", io_error);
  EXPECT_TRUE(Fails(Load(0, options).status(), absl::StatusCode::kUnavailable));
  memory_.SetReadFails("", io_error);
  ExpectElements(Load(0, options));
}

// ---- Warm start ----

TEST_F(DirectoryShardDiskTest, AWarmStartTakesWhatFits) {
  SaveElements();
  ShardDisk::LoadOptions options = OptionsFor(OnTwoPs());
  options.warm_start = Directory().Folder(Name(7));
  // "small" has another shape; "fresh" is not in the checkpoint.
  options.declaration.mutable_variables(1)->set_shape(0, 3);
  options.declaration.mutable_variables(1)->set_shape(1, 2);
  AddVariable(options.declaration, "fresh", {1});
  options.slices.push_back(Place("fresh", 0, 1, 0));
  // The number of slots does not matter.
  options.slots_by_optimizer[0] = {7};
  const auto store = Load(0, options);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->newest()->number, GlobalStep(0));
  EXPECT_EQ((*store)->ValuesToLoad(0, 1)[6], Element(0, kChunkElements + 6));
  EXPECT_EQ((*store)->SlotToLoad(0, 0, 1)[6], 7) << "slots begin anew";
  EXPECT_EQ((*store)->ValuesToLoad(1, 0)[5], -1);
  EXPECT_EQ((*store)->ValuesToLoad(2, 0)[0], -1);
}

TEST_F(DirectoryShardDiskTest, AWarmStartTakesSlotsWithTheValues) {
  SaveElements();
  ShardDisk::LoadOptions options = OptionsFor(OnTwoPs());
  options.warm_start = Directory().Folder(Name(7));
  options.warm_start_slots = true;
  // Another kind of optimizer keeps as many slots for "small".
  options.declaration.mutable_optimizers(1)->mutable_adagrad();
  for (const uint32_t ps : {0, 1}) {
    const auto disk = Disk(ps);
    const auto store = Load(*disk, options);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->newest()->number, GlobalStep(0));
    uint64_t read = 0;
    for (size_t i = 0; i < (*store)->slices().size(); ++i) {
      const StoredSlice& slice = (*store)->slices()[i];
      const bool anew = slice.variable.name() == "small";
      for (size_t slot = 0; slot <= (*store)->num_slots(i); ++slot) {
        if (slice.size == 0) continue;
        const float first = slot == 0 ? (*store)->ValuesToLoad(i, 0)[0]
                                      : (*store)->SlotToLoad(i, slot - 1, 0)[0];
        const float expected =
            anew && slot > 0 ? 0.5f : Element(slot, slice.begin);
        EXPECT_EQ(first, expected) << slice.variable.name() << " " << slot;
        if (!(anew && slot > 0)) read += slice.size * sizeof(float);
      }
    }
    EXPECT_EQ(disk->LoadProgress().bytes_total(), read);
    EXPECT_EQ(disk->LoadProgress().bytes_done(), read);
  }
}

// Each ps judges by all variables, not by those that it happens to hold.
TEST_F(DirectoryShardDiskTest, AWarmStartWithNothingThatFitsIsRefused) {
  SaveElements();
  ShardDisk::LoadOptions options;
  AddVariable(options.declaration, "other", {3});
  AddVariable(options.declaration, "small", {6});
  options.slices = {Place("other", 0, 3, 0), Place("small", 0, 6, 1)};
  options.slots_by_optimizer = {{}};
  options.warm_start = Directory().Folder(Name(7));
  EXPECT_TRUE(Fails(Load(0, options).status(), kNotReady,
                    {"warm start from", "g0001-step00000007"}));
  options.declaration.mutable_variables(1)->clear_shape();
  options.declaration.mutable_variables(1)->add_shape(2);
  options.declaration.mutable_variables(1)->add_shape(3);
  EXPECT_TRUE(Load(0, options).ok()) << "ps 1 has one";
}

TEST_F(DirectoryShardDiskTest, AWarmStartFromNowhereIsToldSo) {
  ShardDisk::LoadOptions options = OptionsFor(OnTwoPs());
  options.warm_start = "/nowhere/g0001-step00000007";
  EXPECT_TRUE(Fails(Load(0, options).status(), absl::StatusCode::kNotFound,
                    {"/nowhere"}));
}

// ---- One directory [C6] ----

TEST_F(DirectoryShardDiskTest, TheDirectoryHasToBeTheCoordinators) {
  const auto disk = Disk(0);
  ShardDisk::LoadOptions options = OptionsFor(OnTwoPs());
  options.directory_nonce = kNonce;
  EXPECT_TRUE(Fails(Load(*disk, options).status(), kNotReady,
                    {"/checkpoints", "/job:ps/task:0", "has no journal"}));
  // The journal may be made while this ps is already running.
  proto::Journal journal;
  journal.set_directory_nonce(kNonce);
  ASSERT_TRUE(Directory().WriteJournal(journal).ok());
  EXPECT_TRUE(Load(*disk, options).ok());
  options.directory_nonce = kNonce + 1;
  EXPECT_TRUE(Fails(Load(*disk, options).status(), kNotReady,
                    {"/checkpoints", "its nonce is 5, not 6"}));
}

// ---- Threads ----

TEST_F(DirectoryShardDiskTest, AnotherLoadTakesThePlaceOfOneUnderWay) {
  SaveElements();
  const auto disk = Disk(0);
  gate_.Close("g0001-step00000007");
  absl::StatusOr<ShardState> first;
  absl::Notification first_came;
  disk->Load(FromStep7(OnTwoPs()), [&](absl::StatusOr<ShardState> store) {
    first = std::move(store);
    first_came.Notify();
  });
  gate_.AwaitSomebody();
  auto second = Await<ShardState>([&](Reply<ShardState> reply) {
    disk->Load(FromStep7(OnTwoPs()), std::move(reply));
    gate_.Open();
  });
  first_came.WaitForNotification();
  EXPECT_TRUE(Fails(first.status(), absl::StatusCode::kAborted));
  ASSERT_TRUE(second.ok()) << second.status();
  ExpectElements(std::move(second->store));
}

// [C4] The share contains what was held, however late it is written.
TEST_F(DirectoryShardDiskTest, TrainingGoesOnWhileAShareIsWritten) {
  const std::vector<proto::Slice> slices = {
      Place("big", 0, kBig, 0), Place("small", 0, 6, 0),
      Place("frozen", 0, 3, 0), Place("nothing", 0, 0, 0)};
  const auto disk = Disk(0);
  auto store = Load(*disk, OptionsFor(slices));
  ASSERT_TRUE(store.ok()) << store.status();
  ForEachElement(**store, [](uint32_t slot, uint64_t i, float* element) {
    *element = Element(slot, i);
  });
  (*store)->SetVersion(GlobalStep(7));
  gate_.Close("g0001-step00000007");
  proto::Manifest manifest;
  *manifest.mutable_name() = Name(7);
  *manifest.mutable_declaration() = MakeDeclaration();
  const auto file = Await<proto::DataFile>([&](Reply<proto::DataFile> reply) {
    disk->Save(Name(7), 1, {(*store)->Snapshot(), {}}, std::move(reply));
    gate_.AwaitSomebody();
    DenseStore::Draft draft = (*store)->Reserve();
    for (size_t i = 0; i < slices.size(); ++i) {
      for (size_t c = 0; c < draft.written[i].size(); ++c) {
        *draft.written[i][c] = 0;
        for (const auto& slot : (*store)->slots(draft, i, c)) *slot.after = 0;
      }
    }
    (*store)->Publish(std::move(draft));
    gate_.Open();
  });
  ASSERT_TRUE(file.ok()) << file.status();
  *manifest.add_files() = *file;
  ASSERT_TRUE(Directory().WriteManifest(manifest).ok());
  EXPECT_EQ((*store)->newest()->number, GlobalStep(8));
  ExpectElements(Load(*disk, FromStep7(slices)));
}

TEST_F(DirectoryShardDiskTest, ALoadDoesNotWaitForASave) {
  SaveElements();
  const auto disk = Disk(0);
  auto store = Load(*disk, OptionsFor(OnTwoPs()));
  ASSERT_TRUE(store.ok()) << store.status();
  gate_.Close("g0001-step00000008");
  absl::Notification saved;
  disk->Save(Name(8), 2, {(*store)->Snapshot(), {}},
             [&](const absl::StatusOr<proto::DataFile>&) { saved.Notify(); });
  gate_.AwaitSomebody();
  ExpectElements(Load(*disk, FromStep7(OnTwoPs())));
  EXPECT_FALSE(saved.HasBeenNotified());
  gate_.Open();
  saved.WaitForNotification();
}

TEST_F(DirectoryShardDiskTest, AnAbandonedSaveEndsSoon) {
  SaveElements();
  const auto disk = Disk(0);
  const auto store = Load(*disk, FromStep7(OnTwoPs()));
  ASSERT_TRUE(store.ok()) << store.status();
  gate_.Close("g0001-step00000008");
  const auto saved = Await<proto::DataFile>([&](Reply<proto::DataFile> reply) {
    disk->Save(Name(8), 2, {(*store)->Snapshot(), {}}, std::move(reply));
    gate_.AwaitSomebody();
    disk->AbandonSave();
    gate_.Open();
  });
  EXPECT_TRUE(Fails(saved.status(), absl::StatusCode::kAborted));
  EXPECT_TRUE(Save(*disk, Name(9), 2, (*store)->Snapshot()).ok());
}

TEST_F(DirectoryShardDiskTest, ADiskThatHangsIsNotWaitedForForever) {
  SaveElements();
  const auto disk = Disk(0);
  gate_.Close("g0001-step00000007");
  disk->Load(FromStep7(OnTwoPs()), [](const absl::StatusOr<ShardState>&) {});
  gate_.AwaitSomebody();
  EXPECT_FALSE(disk->Stop(absl::ZeroDuration()));
  gate_.Open();
  EXPECT_TRUE(disk->Stop(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace holdfast

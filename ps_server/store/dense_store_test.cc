// SPDX-License-Identifier: Apache-2.0
#include "ps_server/store/dense_store.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/shared_memory/arena.h"
#include "common/tensor/buffer.h"
#include "common/tensor/initializer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kChunk = kChunkElements;

proto::Variable& AddVariable(proto::Declaration& declaration,
                             const std::string& name,
                             const std::vector<int64_t>& shape, float value) {
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name(name);
  variable.mutable_shape()->Assign(shape.begin(), shape.end());
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_constant()->set_value(value);
  return variable;
}

proto::Slice Place(const std::string& variable, uint64_t begin, uint64_t size,
                   uint32_t ps = 1) {
  proto::Slice slice;
  slice.set_variable(variable);
  slice.set_begin(begin);
  slice.set_size(size);
  slice.set_ps(ps);
  return slice;
}

std::vector<float> Values(const Buffer& buffer) {
  std::vector<float> values(buffer.size() / sizeof(float));
  buffer.CopyTo(values.data());
  return values;
}

// The whole slice `i` of the store's newest version.
std::vector<float> Newest(const DenseStore& store, size_t i) {
  const StoredSlice& slice = store.slices()[i];
  return Values(store.Read(*store.newest(), i, slice.begin, slice.size));
}

std::unique_ptr<DenseStore> Make(
    const proto::Declaration& declaration,
    const std::vector<proto::Slice>& placed,
    const std::vector<std::vector<float>>& slots = {{}},
    SharedArena* arena = nullptr) {
  auto store = DenseStore::Create(declaration, placed, 1, slots, arena);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// A store with a variable of three chunks, the last of 5 elements, a small one,
// and a frozen one.
std::unique_ptr<DenseStore> MakeThree(SharedArena* arena = nullptr) {
  proto::Declaration declaration;
  AddVariable(declaration, "big", {2 * kChunkElements + 5}, 1);
  AddVariable(declaration, "small", {2, 3}, 2);
  AddVariable(declaration, "frozen", {4}, 3).set_trainable(false);
  return Make(declaration,
              {Place("big", 0, 2 * kChunk + 5), Place("small", 0, 6),
               Place("frozen", 0, 4)},
              {{}}, arena);
}

// A draft with `value` in every element; slots have `more` added.
DenseStore::Draft Fill(DenseStore& store, float value, float more = 0) {
  DenseStore::Draft draft = store.Reserve();
  for (size_t i = 0; i < draft.written.size(); ++i) {
    for (size_t c = 0; c < draft.written[i].size(); ++c) {
      const size_t size = store.slices()[i].chunk_size(c);
      std::fill_n(draft.written[i][c].get(), size, value);
      for (const auto& [before, after] : store.slots(draft, i, c)) {
        for (size_t k = 0; k < size; ++k) after[k] = before[k] + more;
      }
    }
  }
  return draft;
}

TEST(StoredSliceTest, Chunks) {
  const struct {
    uint64_t size;
    std::vector<size_t> chunks;
  } kCases[] = {
      {0, {}},
      {1, {1}},
      {kChunk, {kChunk}},
      {kChunk + 1, {kChunk, 1}},
      {3 * kChunk - 1, {kChunk, kChunk, kChunk - 1}},
  };
  for (const auto& c : kCases) {
    StoredSlice slice;
    slice.size = c.size;
    std::vector<size_t> chunks;
    for (size_t i = 0; i < slice.num_chunks(); ++i) {
      chunks.push_back(slice.chunk_size(i));
    }
    EXPECT_EQ(chunks, c.chunks) << c.size;
  }
}

TEST(StoredSliceTest, IsTrainableUnlessItSaysOtherwise) {
  StoredSlice slice;
  EXPECT_TRUE(slice.trainable());
  slice.variable.set_trainable(true);
  EXPECT_TRUE(slice.trainable());
  slice.variable.set_trainable(false);
  EXPECT_FALSE(slice.trainable());
}

TEST(DenseStoreTest, MakesItsOwnSlicesAsVersion0) {
  proto::Declaration declaration;
  AddVariable(declaration, "a", {3}, 1);
  AddVariable(declaration, "b", {}, 2);
  AddVariable(declaration, "c", {0, 5}, 3);
  const auto store = Make(
      declaration, {Place("a", 1, 2), Place("a", 0, 1, 0), Place("b", 0, 1),
                    Place("c", 0, 0), Place("b", 0, 1, 2)});
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->newest()->number, GlobalStep(0));
  ASSERT_THAT(store->slices(), SizeIs(3));
  EXPECT_EQ(store->slices()[0].variable.name(), "a");
  EXPECT_EQ(store->slices()[0].begin, 1u);
  EXPECT_EQ(store->slices()[0].size, 2u);
  EXPECT_THAT(Newest(*store, 0), ElementsAre(1, 1));
  EXPECT_THAT(Newest(*store, 1), ElementsAre(2));
  EXPECT_THAT(Newest(*store, 2), IsEmpty());
}

// However a variable is cut, its first values are those of the whole.
TEST(DenseStoreTest, FirstValuesDoNotDependOnTheCut) {
  const int64_t size = static_cast<int64_t>(kChunk) + 1000;
  proto::Declaration declaration;
  proto::Variable& variable = AddVariable(declaration, "v", {size}, 0);
  variable.mutable_initializer()->mutable_uniform()->set_low(-1);
  variable.mutable_initializer()->mutable_uniform()->set_high(1);
  declaration.set_seed(17);
  std::vector<float> whole(size);
  ASSERT_TRUE(Initialize(variable.initializer(), variable.shape(), "v", 17, 0,
                         absl::MakeSpan(whole))
                  .ok());
  ASSERT_NE(whole[0], whole[1]);

  for (const uint64_t cut : {uint64_t{0}, uint64_t{7}, kChunk, kChunk + 3}) {
    SCOPED_TRACE(cut);
    const auto store = Make(
        declaration, {Place("v", 0, cut), Place("v", cut, whole.size() - cut)});
    ASSERT_NE(store, nullptr);
    std::vector<float> both = Newest(*store, 0);
    const std::vector<float> rest = Newest(*store, 1);
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, whole);
  }
}

TEST(DenseStoreTest, RefusesSlicesThatDoNotFit) {
  proto::Declaration declaration;
  AddVariable(declaration, "a", {2, 3}, 1);
  AddVariable(declaration, "other", {2}, 1).set_optimizer(1);
  AddVariable(declaration, "odd", {2, -3}, 1);
  const uint64_t most = ~uint64_t{0};
  const struct {
    const char* what;
    proto::Slice place;
    std::vector<std::string> text;
  } kCases[] = {
      {"undeclared", Place("x", 0, 1), {"\"x\"", "not declared"}},
      {"too long", Place("a", 0, 7), {"\"a\"", "[0, +7)", "6 elements"}},
      {"ends behind", Place("a", 4, 3), {"\"a\"", "[4, +3)", "6 elements"}},
      {"begins behind", Place("a", 7, 0), {"\"a\"", "6 elements"}},
      {"sum overflows", Place("a", 1, most), {"\"a\"", "6 elements"}},
      {"begin of 2^64 - 1", Place("a", most, 2), {"\"a\"", "6 elements"}},
      {"no such optimizer",
       Place("other", 0, 2),
       {"\"other\"", "optimizer 1 of 1"}},
      {"negative dimension", Place("odd", 0, 0), {"[2,-3]"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    const auto store = DenseStore::Create(declaration, {c.place}, 1, {{}});
    EXPECT_EQ(store.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& text : c.text) {
      EXPECT_THAT(std::string(store.status().message()), HasSubstr(text));
    }
  }
  // Slices that are placed elsewhere are not looked at.
  EXPECT_TRUE(
      DenseStore::Create(declaration, {Place("x", 0, 1, 0)}, 1, {{}}).ok());
}

TEST(DenseStoreTest, FindsTheSliceThatHoldsARange) {
  proto::Declaration declaration;
  AddVariable(declaration, "a", {20}, 1);
  AddVariable(declaration, "b", {3}, 1);
  const auto store = Make(
      declaration, {Place("a", 2, 4), Place("b", 0, 3), Place("a", 10, 5)});
  ASSERT_NE(store, nullptr);
  constexpr size_t kNone = 99;
  const uint64_t most = ~uint64_t{0};
  const struct {
    const char* variable;
    uint64_t begin, size;
    size_t slice;
  } kCases[] = {
      {"a", 2, 4, 0},        {"a", 3, 2, 0},        {"a", 5, 1, 0},
      {"a", 6, 0, 0},        {"a", 10, 5, 2},       {"a", 14, 1, 2},
      {"b", 0, 3, 1},        {"a", 1, 2, kNone},    {"a", 5, 2, kNone},
      {"a", 2, 13, kNone},   {"a", 7, 1, kNone},    {"a", 15, 1, kNone},
      {"b", 0, 4, kNone},    {"x", 0, 1, kNone},    {"a", 3, most, kNone},
      {"a", most, 2, kNone}, {"b", 1, most, kNone},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message()
                 << c.variable << " [" << c.begin << ", +" << c.size << ")");
    const absl::StatusOr<size_t> found =
        store->Find(c.variable, c.begin, c.size);
    if (c.slice != kNone) {
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, c.slice);
    } else {
      EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
      EXPECT_THAT(std::string(found.status().message()),
                  HasSubstr(absl::StrCat("variable \"", c.variable, "\"")));
    }
  }
}

TEST(DenseStoreTest, ReadsAcrossChunksWhereTheyLie) {
  proto::Declaration declaration;
  AddVariable(declaration, "v", {2 * kChunkElements + 10}, 0);
  // The slice begins at element 4, so chunk borders lie at 4 + kChunk and
  // 4 + 2 kChunk.
  const auto store = Make(declaration, {Place("v", 4, 2 * kChunk + 6)});
  ASSERT_NE(store, nullptr);
  DenseStore::Draft draft = store->Reserve();
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < store->slices()[0].chunk_size(c); ++i) {
      // Each element's index in the variable; below 2^24, so exact.
      draft.written[0][c].get()[i] = static_cast<float>(4 + c * kChunk + i);
    }
  }
  store->Publish(std::move(draft));

  const auto version = store->newest();
  const struct {
    uint64_t begin, size;
  } kCases[] = {{4, 3},
                {4, kChunk},
                {kChunk + 3, 2},
                {kChunk + 4, kChunk},
                {10, 2 * kChunk},
                {4, 2 * kChunk + 6},
                {2 * kChunk + 10, 0}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message()
                 << "[" << c.begin << ", +" << c.size << ")");
    const Buffer read = store->Read(*version, 0, c.begin, c.size);
    EXPECT_THAT(read.spans(), SizeIs(c.size > 0 ? 1 : 0));
    const std::vector<float> values = Values(read);
    ASSERT_EQ(values.size(), c.size);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < c.size; ++i) {
      if (values[i] != static_cast<float>(c.begin + i)) ++wrong;
    }
    EXPECT_EQ(wrong, 0u);
  }
  const Buffer read = store->Read(*version, 0, 5, 1);
  EXPECT_EQ(read.spans()[0].data,
            reinterpret_cast<const char*>(version->slices[0][0].get() + 1))
      << "no copy";
}

TEST(DenseStoreTest, SlotsBeginAsToldAndLieBesideTrainableChunks) {
  proto::Declaration declaration;
  AddVariable(declaration, "two", {kChunkElements + 3}, 1).set_optimizer(1);
  AddVariable(declaration, "none", {3}, 1);
  AddVariable(declaration, "frozen", {3}, 1).set_trainable(false);
  declaration.mutable_variables(2)->set_optimizer(1);
  const auto store = Make(
      declaration,
      {Place("two", 0, kChunk + 3), Place("none", 0, 3), Place("frozen", 0, 3)},
      {{}, {0.5f, 0}});
  ASSERT_NE(store, nullptr);
  const DenseStore::Draft draft = store->Reserve();
  for (size_t chunk = 0; chunk < 2; ++chunk) {
    const auto slots = store->slots(draft, 0, chunk);
    ASSERT_THAT(slots, SizeIs(2));
    EXPECT_NE(slots[0].before, slots[1].before);
    for (const auto& slot : slots) EXPECT_EQ(slot.after, slot.before);
    const size_t size = store->slices()[0].chunk_size(chunk);
    const float* first = slots[0].before;
    const float* second = slots[1].before;
    EXPECT_THAT(std::vector<float>(first, first + size), Each(0.5f));
    EXPECT_THAT(std::vector<float>(second, second + size), Each(0.0f));
  }
  EXPECT_EQ(store->num_slots(1), 0u);
  EXPECT_EQ(store->num_slots(2), 0u) << "no step changes it";
  // They stay as they are when a version is published.
  store->slots(draft, 0, 1)[1].after[2] = 7;
  store->Publish(Fill(*store, 1));
  store->PublishUnchanged();
  EXPECT_EQ(store->SlotToLoad(0, 1, 1)[2], 7);
}

// Two slots, the first of a chunk and 3 elements more, and a small variable.
std::unique_ptr<DenseStore> MakeWithSlots() {
  proto::Declaration declaration;
  AddVariable(declaration, "two", {kChunkElements + 3}, 1);
  AddVariable(declaration, "small", {2}, 2);
  return Make(declaration, {Place("two", 0, kChunk + 3), Place("small", 0, 2)},
              {{3, 4}});
}

TEST(DenseStoreTest, ASnapshotIsOfOneVersionWithItsSlots) {
  const auto store = MakeWithSlots();
  ASSERT_NE(store, nullptr);
  store->Publish(Fill(*store, 5, 10));
  const StoreSnapshot held = store->Snapshot();
  DenseStore::Draft draft = Fill(*store, 6, 100);
  EXPECT_EQ(store->SlotToLoad(0, 0, 1)[2], 13) << "nothing before Publish";
  store->Publish(std::move(draft));

  EXPECT_EQ(held.version->number, GlobalStep(1));
  ASSERT_THAT(held.slices, SizeIs(2));
  EXPECT_EQ(held.slices[1].variable.name(), "small");
  EXPECT_EQ(held.version->slices[0][1].get()[2], 5);
  ASSERT_THAT(held.slots, SizeIs(2));
  ASSERT_THAT(held.slots[0], SizeIs(2));
  ASSERT_THAT(held.slots[0][1], SizeIs(2));
  EXPECT_EQ(held.slots[0][0][1].get()[2], 13);
  EXPECT_EQ(held.slots[0][1][1].get()[2], 14);
  EXPECT_EQ(held.slots[1][0][0].get()[0], 13);
  // Changes start from the content that is held.
  EXPECT_EQ(store->SlotToLoad(0, 0, 1)[2], 113);
  EXPECT_EQ(store->SlotToLoad(0, 1, 1)[2], 114);
  EXPECT_EQ(store->SlotToLoad(1, 0, 0)[0], 113);
}

TEST(DenseStoreTest, AHeldSlotGoesToOtherMemoryOnce) {
  const auto store = MakeWithSlots();
  ASSERT_NE(store, nullptr);
  const float* const before = store->SlotToLoad(0, 0, 0);
  const StoreSnapshot held = store->Snapshot();
  store->Publish(Fill(*store, 1));
  const float* const other = store->SlotToLoad(0, 0, 0);
  EXPECT_NE(other, before);
  store->Publish(Fill(*store, 2));
  EXPECT_EQ(store->SlotToLoad(0, 0, 0), other);
  EXPECT_EQ(held.slots[0][0][0].get(), before);
  const StoreSnapshot again = store->Snapshot();
  store->Publish(Fill(*store, 3));
  EXPECT_NE(store->SlotToLoad(0, 0, 0), other);
}

TEST(DenseStoreTest, MemoryOfASnapshotIsUsedAgain) {
  const auto store = MakeWithSlots();
  ASSERT_NE(store, nullptr);
  std::vector<const float*> seen;
  for (int step = 1; step <= 10; ++step) {
    const StoreSnapshot held = store->Snapshot();
    store->Publish(Fill(*store, static_cast<float>(step)));
    seen.push_back(store->SlotToLoad(1, 0, 0));
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  // There are chunks with two elements for the value and two slots and, for the
  // next version, as many again.
  EXPECT_LE(seen.size(), 6u);
}

TEST(DenseStoreTest, IsLoadedInPlace) {
  const auto store = MakeWithSlots();
  ASSERT_NE(store, nullptr);
  store->ValuesToLoad(0, 1)[2] = 50;
  store->SlotToLoad(0, 1, 1)[2] = 60;
  store->SetVersion(GlobalStep(9));
  EXPECT_EQ(store->newest()->number, GlobalStep(9));
  EXPECT_EQ(Newest(*store, 0)[kChunk + 2], 50);
  EXPECT_EQ(Newest(*store, 0)[kChunk + 1], 1);
  EXPECT_EQ(store->SlotToLoad(0, 1, 1)[2], 60);
  EXPECT_EQ(store->SlotToLoad(0, 0, 1)[2], 3);
  EXPECT_EQ(store->Reserve().number, GlobalStep(10));
}

TEST(DenseStoreTest, PublishMakesADraftTheNewestWhole) {
  const auto store = MakeThree();
  ASSERT_NE(store, nullptr);
  const auto before = store->newest();
  DenseStore::Draft draft = Fill(*store, 5);
  EXPECT_EQ(draft.number, GlobalStep(1));
  EXPECT_THAT(draft.written[2], IsEmpty()) << "frozen";
  EXPECT_EQ(store->newest(), before) << "nothing shows before Publish";
  EXPECT_THAT(Newest(*store, 1), Each(2.0f));

  store->Publish(std::move(draft));
  EXPECT_EQ(store->newest()->number, GlobalStep(1));
  EXPECT_THAT(Newest(*store, 0), Each(5.0f));
  EXPECT_THAT(Newest(*store, 1), Each(5.0f));
  EXPECT_THAT(Newest(*store, 2), Each(3.0f));
  EXPECT_EQ(store->newest()->slices[2], before->slices[2])
      << "what no step changes is shared, not copied";
}

TEST(DenseStoreTest, AVersionThatIsHeldNeverChanges) {
  const auto store = MakeThree();
  ASSERT_NE(store, nullptr);
  const auto held = store->newest();
  // Held only by a reader of two elements, across the border of two chunks.
  Buffer piece;
  for (int step = 1; step <= 6; ++step) {
    store->Publish(Fill(*store, static_cast<float>(10 * step)));
    if (step == 2) piece = store->Read(*store->newest(), 0, kChunk - 1, 2);
  }
  EXPECT_EQ(held->number, GlobalStep(0));
  EXPECT_THAT(Values(store->Read(*held, 0, 0, 2 * kChunk + 5)), Each(1.0f));
  EXPECT_THAT(Values(store->Read(*held, 1, 0, 6)), Each(2.0f));
  EXPECT_THAT(Values(piece), ElementsAre(20, 20));
  EXPECT_THAT(Newest(*store, 0), Each(60.0f));
}

TEST(DenseStoreTest, MemoryOfVersionsThatNobodyHoldsIsUsedAgain) {
  const auto store = MakeThree();
  ASSERT_NE(store, nullptr);
  const auto chunks = [&] {
    std::vector<const float*> result;
    for (const auto& slice : store->newest()->slices) {
      for (const auto& chunk : slice) result.push_back(chunk.get());
    }
    return result;
  };
  std::vector<const float*> seen = chunks();
  for (int step = 1; step <= 10; ++step) {
    store->Publish(Fill(*store, 1));
    for (const float* chunk : chunks()) seen.push_back(chunk);
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  // The newest version and the draft: twice the 3 + 1 trainable chunks, and the
  // frozen one.
  EXPECT_EQ(seen.size(), 2 * 4 + 1u);
}

TEST(DenseStoreTest, PublishUnchangedCountsAStepAndSharesAll) {
  const auto store = MakeThree();
  ASSERT_NE(store, nullptr);
  store->Publish(Fill(*store, 5));
  const auto before = store->newest();
  store->PublishUnchanged();
  EXPECT_EQ(store->newest()->number, GlobalStep(2));
  EXPECT_EQ(before->number, GlobalStep(1));
  EXPECT_EQ(store->newest()->slices, before->slices);
}

// ---- In shared memory ----

SharedArena::Options SmallFiles() {
  SharedArena::Options options;
  options.name = "test";
  options.file_bytes = 16 << 20;
  return options;
}

TEST(DenseStoreTest, ValuesOfASliceLieInOnePieceOfSharedMemory) {
  SharedArena arena(SmallFiles());
  const auto store = MakeThree(&arena);
  ASSERT_NE(store, nullptr);
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    for (size_t i = 0; i < 3; ++i) {
      const StoredSlice& slice = store->slices()[i];
      const auto& chunks = store->newest()->slices[i];
      for (size_t c = 1; c < chunks.size(); ++c) {
        EXPECT_EQ(chunks[c].get(), chunks[c - 1].get() + kChunk);
      }
      // From the second element to the last.
      const Buffer read =
          store->Read(*store->newest(), i, slice.begin + 1, slice.size - 1);
      ASSERT_THAT(read.spans(), SizeIs(1));
      const auto whole =
          arena.Find(chunks[0].get(), slice.size * sizeof(float));
      const auto part = arena.Find(read.spans()[0].data, read.size());
      ASSERT_EQ(whole.has_value(), SharedArena::HugePagesWork());
      ASSERT_EQ(part.has_value(), whole.has_value());
      if (!whole.has_value()) continue;
      EXPECT_EQ(part->file, whole->file);
      EXPECT_EQ(part->offset, whole->offset + sizeof(float));
    }
    store->Publish(Fill(*store, static_cast<float>(step)));
  }
}

TEST(DenseStoreTest, SlotsLieInPrivateMemory) {
  SharedArena arena(SmallFiles());
  proto::Declaration declaration;
  AddVariable(declaration, "v", {8}, 1);
  const auto store = Make(declaration, {Place("v", 0, 8)}, {{3, 4}}, &arena);
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(arena.Find(store->SlotToLoad(0, 0, 0), 4).has_value());
  EXPECT_FALSE(arena.Find(store->SlotToLoad(0, 1, 0), 4).has_value());
}

TEST(DenseStoreTest, HeldMemoryIsTheSameWhereverItLies) {
  proto::Declaration declaration;
  // Multiples of 64 bytes, like the arena's memory.
  AddVariable(declaration, "big", {2 * kChunkElements + 16}, 1);
  AddVariable(declaration, "small", {32}, 2);
  const std::vector<proto::Slice> placed = {Place("big", 0, 2 * kChunk + 16),
                                            Place("small", 0, 32)};
  const int64_t values = 4 * (2 * kChunkElements + 16 + 32);
  SharedArena arena(SmallFiles());
  for (SharedArena* const given :
       {static_cast<SharedArena*>(nullptr), &arena}) {
    SCOPED_TRACE(given == nullptr ? "private" : "shared");
    const auto store = Make(declaration, placed, {{1}}, given);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->value_bytes(), values);
    EXPECT_EQ(store->slot_bytes(), values);
    EXPECT_EQ(store->held_bytes(), 2 * values);
    // A version that is read while the next is made.
    for (int step = 0; step < 5; ++step) {
      const auto read = store->newest();
      store->Publish(Fill(*store, 1));
      store->Publish(Fill(*store, 2));
    }
    EXPECT_EQ(store->held_bytes(), values + 3 * values);
  }
}

TEST(DenseStoreTest, TheNextStoreUsesTheMemoryOfTheLast) {
  SharedArena arena(SmallFiles());
  auto store = MakeThree(&arena);
  ASSERT_NE(store, nullptr);
  store->Publish(Fill(*store, 1));
  const int64_t before = arena.bytes();
  for (int generation = 0; generation < 3; ++generation) {
    store = nullptr;
    store = MakeThree(&arena);
    ASSERT_NE(store, nullptr);
    EXPECT_THAT(Newest(*store, 0), Each(1.0f));
    EXPECT_THAT(Newest(*store, 1), Each(2.0f));
    store->Publish(Fill(*store, 7));
  }
  EXPECT_EQ(arena.bytes(), before);
}

TEST(DenseStoreTest, BuffersMayOutliveTheStore) {
  auto store = MakeThree();
  ASSERT_NE(store, nullptr);
  store->Publish(Fill(*store, 5));
  const Buffer kept = store->Read(*store->newest(), 1, 0, 6);
  store = nullptr;
  EXPECT_THAT(Values(kept), Each(5.0f));
}

}  // namespace
}  // namespace holdfast

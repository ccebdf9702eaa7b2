// SPDX-License-Identifier: Apache-2.0
#include "common/shared_memory/arena.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::Optional;
using ::testing::SizeIs;

constexpr size_t kHuge = kHugePageBytes;

SharedArena::Options Small() {
  SharedArena::Options options;
  options.name = "test";
  options.file_bytes = 4 * kHuge;
  return options;
}

std::shared_ptr<char> Take(SharedArena& arena, size_t bytes) {
  auto piece = arena.Take(bytes);
  EXPECT_TRUE(piece.ok()) << piece.status();
  return piece.ok() ? *std::move(piece) : nullptr;
}

TEST(SharedArenaTest, SizesThatDifferTakeFewPieces) {
  SharedArena arena(Small());
  const char* first = nullptr;
  for (const size_t bytes : {kHuge / 2 + 1, kHuge - 1, kHuge}) {
    const auto piece = arena.TakeAtLeast(bytes);
    ASSERT_TRUE(piece.ok()) << piece.status();
    if (first == nullptr) first = piece->get();
    EXPECT_EQ(piece->get(), first) << bytes;
    EXPECT_EQ(arena.bytes(), static_cast<int64_t>(kHuge));
  }
  ASSERT_TRUE(arena.TakeAtLeast(kHuge / 2).ok());
  EXPECT_EQ(arena.bytes(), static_cast<int64_t>(kHuge + kHuge / 2));
  EXPECT_FALSE(arena.TakeAtLeast(~size_t{0}).ok());
}

TEST(SharedArenaTest, PiecesAreAlignedAndApart) {
  SharedArena arena(Small());
  struct Piece {
    std::shared_ptr<char> memory;
    size_t size;
  };
  std::vector<Piece> pieces;
  char mark = 0;
  for (const size_t size :
       {size_t{1}, size_t{64}, size_t{65}, size_t{4096}, kHuge - 1, kHuge,
        kHuge + 5, 2 * kHuge, size_t{3}, 3 * kHuge, 9 * kHuge, size_t{1000}}) {
    SCOPED_TRACE(size);
    pieces.push_back({Take(arena, size), size});
    ASSERT_NE(pieces.back().memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces.back().memory.get()) %
                  (size < kHuge ? 64 : kHuge),
              0u);
    std::memset(pieces.back().memory.get(), ++mark, size);
  }
  mark = 0;
  for (const Piece& piece : pieces) {
    SCOPED_TRACE(piece.size);
    ++mark;
    EXPECT_TRUE(std::all_of(piece.memory.get(), piece.memory.get() + piece.size,
                            [&](char c) { return c == mark; }));
    // Each piece is in one file.
    const auto place = arena.Find(piece.memory.get(), piece.size);
    ASSERT_TRUE(place.has_value());
    const auto files = arena.files();
    ASSERT_GE(place->file, 1u);
    ASSERT_LE(place->file, files.size());
    EXPECT_EQ(files[place->file - 1]->data() + place->offset,
              piece.memory.get());
  }
}

TEST(SharedArenaTest, SmallPiecesShareAFile) {
  SharedArena arena(Small());
  std::vector<std::shared_ptr<char>> pieces;
  for (size_t size = 1; size < 1000; ++size) {
    pieces.push_back(Take(arena, size));
  }
  EXPECT_THAT(arena.files(), SizeIs(1));
  // A file has four huge pages; two pieces of two huge pages and a tail each do
  // not fit.
  pieces.push_back(Take(arena, 2 * kHuge + 1));
  pieces.push_back(Take(arena, 2 * kHuge + 1));
  EXPECT_THAT(arena.files(), SizeIs(2));
  // There is still room between front and back.
  pieces.push_back(Take(arena, kHuge - 64));
  EXPECT_THAT(arena.files(), SizeIs(2));
  pieces.push_back(Take(arena, 5 * kHuge + 64));
  const auto files = arena.files();
  ASSERT_THAT(files, SizeIs(3));
  EXPECT_EQ(files[0]->size(), 4 * kHuge);
  EXPECT_EQ(files[2]->size(), 6 * kHuge) << "one that is longer has its own";
}

TEST(SharedArenaTest, FillsAFileToItsEnd) {
  SharedArena arena(Small());
  std::vector<std::shared_ptr<char>> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(Take(arena, kHuge));
  EXPECT_THAT(arena.files(), SizeIs(1));
  pieces.push_back(Take(arena, 64));
  EXPECT_THAT(arena.files(), SizeIs(2));
  for (size_t i = 1; i < 4 * kHuge / (kHuge / 2); ++i) {
    pieces.push_back(Take(arena, kHuge / 2));
  }
  EXPECT_THAT(arena.files(), SizeIs(2));
  pieces.push_back(Take(arena, kHuge / 2));
  EXPECT_THAT(arena.files(), SizeIs(3));
}

TEST(SharedArenaTest, MemoryIsUsedAgainForTheSameSize) {
  SharedArena arena(Small());
  for (const size_t size : {size_t{100}, kHuge, 2 * kHuge + 100}) {
    SCOPED_TRACE(size);
    std::shared_ptr<char> piece = Take(arena, size);
    const char* const memory = piece.get();
    piece = nullptr;
    const std::shared_ptr<char> other = Take(arena, size - 64);
    EXPECT_NE(other.get(), memory);
    EXPECT_EQ(Take(arena, size).get(), memory);
  }
}

TEST(SharedArenaTest, TakesNoFreshMemoryForWhatWasInUseAtOneTime) {
  SharedArena arena(Small());
  std::set<const char*> first;
  int64_t bytes = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::shared_ptr<char>> pieces;
    for (int i = 0; i < 5; ++i) {
      pieces.push_back(Take(arena, 640));
      if (round == 0) {
        EXPECT_TRUE(first.insert(pieces.back().get()).second);
      } else {
        EXPECT_EQ(first.count(pieces.back().get()), 1u);
      }
    }
    if (round == 0) bytes = arena.bytes();
  }
  EXPECT_EQ(arena.bytes(), bytes);
  EXPECT_EQ(bytes, 5 * 640);
}

TEST(SharedArenaTest, WhatSomebodyRefersToIsNotHandedOut) {
  SharedArena arena(Small());
  std::shared_ptr<char> piece = Take(arena, 8);
  const std::shared_ptr<const char> reader = piece;
  *piece = 42;
  piece = nullptr;
  const std::shared_ptr<char> next = Take(arena, 8);
  EXPECT_NE(next.get(), reader.get());
  *next = 1;
  EXPECT_EQ(*reader, 42);
}

TEST(SharedArenaTest, CountsPiecesInUseAndSpareOnes) {
  SharedArena arena(Small());
  EXPECT_EQ(arena.bytes(), 0);
  std::shared_ptr<char> piece = Take(arena, 128);
  EXPECT_EQ(arena.bytes(), 128);
  piece = nullptr;
  EXPECT_EQ(arena.bytes(), 128);
  piece = Take(arena, 3 * kHuge);
  EXPECT_EQ(arena.bytes(), 128 + static_cast<int64_t>(3 * kHuge));
}

TEST(SharedArenaTest, FindsPlacesUpToTheBorders) {
  SharedArena arena(Small());
  EXPECT_EQ(arena.Find("", 1), std::nullopt) << "there is no file";
  // Each in its own file.
  const auto one = Take(arena, 4 * kHuge), two = Take(arena, 4 * kHuge);
  using Place = SharedArena::Place;
  const size_t size = 4 * kHuge;
  for (const uint32_t file : {1, 2}) {
    SCOPED_TRACE(file);
    const char* const data = (file == 1 ? one : two).get();
    EXPECT_THAT(arena.Find(data, 1), Optional(Place{file, 0}));
    EXPECT_THAT(arena.Find(data, size), Optional(Place{file, 0}));
    EXPECT_THAT(arena.Find(data + 5, size - 5), Optional(Place{file, 5}));
    EXPECT_THAT(arena.Find(data + size - 1, 1),
                Optional(Place{file, size - 1}));
    EXPECT_EQ(arena.Find(data + 5, size - 4), std::nullopt);
    EXPECT_EQ(arena.Find(data + 5, ~size_t{0}), std::nullopt);
  }
  // Before and after the files, which may be adjacent.
  const char* const low = std::min(one.get(), two.get());
  const char* const high = std::max(one.get(), two.get());
  EXPECT_EQ(arena.Find(low - 1, 1), std::nullopt);
  EXPECT_EQ(arena.Find(high + size, 1), std::nullopt);
  int on_stack = 0;
  const std::vector<char> on_heap(100);
  EXPECT_EQ(arena.Find(&on_stack, 1), std::nullopt);
  EXPECT_EQ(arena.Find(on_heap.data(), 100), std::nullopt);
  EXPECT_EQ(arena.Find(nullptr, 0), std::nullopt);
  SharedArena other(Small());
  EXPECT_EQ(arena.Find(Take(other, 64).get(), 64), std::nullopt);
}

TEST(SharedArenaTest, APeerReadsAPieceAtItsPlace) {
  SharedArena arena(Small());
  const auto first = Take(arena, kHuge), piece = Take(arena, 100);
  std::memcpy(piece.get(), "hello", 6);
  const auto place = arena.Find(piece.get(), 100);
  ASSERT_TRUE(place.has_value());
  const auto file = arena.files()[place->file - 1];
  const auto peer =
      PeerFile::Map(UniqueFd(fcntl(file->fd(), F_DUPFD_CLOEXEC, 0)),
                    file->size(), PeerFile::Access::kRead);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_STREQ((*peer)->data() + place->offset, "hello");
  EXPECT_EQ(PeerFile::Map(UniqueFd(fcntl(file->fd(), F_DUPFD_CLOEXEC, 0)),
                          file->size(), PeerFile::Access::kReadWrite)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SharedArenaTest, FilesStayWhereTheyAre) {
  SharedArena arena(Small());
  std::vector<std::shared_ptr<char>> pieces = {Take(arena, 4 * kHuge)};
  const auto before = arena.files();
  for (int i = 0; i < 20; ++i) pieces.push_back(Take(arena, 4 * kHuge));
  const auto after = arena.files();
  ASSERT_THAT(after, SizeIs(21));
  EXPECT_EQ(after[0], before[0]);
}

TEST(SharedArenaTest, ReferencesMayOutliveTheArena) {
  std::optional<SharedArena> arena;
  arena.emplace(Small());
  std::shared_ptr<char> kept = Take(*arena, 8);
  { const std::shared_ptr<char> spare = Take(*arena, 8); }
  const std::weak_ptr<const SealedFile> file = arena->files()[0];
  *kept = 42;
  arena.reset();
  EXPECT_EQ(*kept, 42);
  EXPECT_FALSE(file.expired());
  kept = nullptr;
  EXPECT_TRUE(file.expired());
}

TEST(SharedArenaTest, PiecesOfFormerSizesServeForOthers) {
  SharedArena arena(Small());
  std::vector<std::shared_ptr<char>> former = {
      Take(arena, kHuge), Take(arena, kHuge), Take(arena, 2 * kHuge),
      Take(arena, 4096), Take(arena, 4096)};
  const std::shared_ptr<char> kept = former[0];
  const std::set<const char*> places = {former[1].get(), former[2].get()};
  const int64_t bytes = arena.bytes();
  former[4] = nullptr;  // spare already
  arena.Renew();
  EXPECT_EQ(arena.bytes(), bytes);
  former.clear();
  // Three adjacent huge pages are one range, without `kept`.
  const auto large = Take(arena, 3 * kHuge);
  EXPECT_EQ(places.count(large.get()), 1u);
  EXPECT_TRUE(large.get() + 3 * kHuge <= kept.get() ||
              kept.get() + kHuge <= large.get());
  const auto small = Take(arena, 8192);
  EXPECT_EQ(arena.bytes(), bytes);
  const auto place = arena.Find(large.get(), 3 * kHuge);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(arena.files()[place->file - 1]->data() + place->offset,
            large.get());
  // No former memory is left.
  const auto more = Take(arena, kHuge);
  EXPECT_EQ(arena.bytes(), bytes + static_cast<int64_t>(kHuge));
  EXPECT_NE(more.get(), kept.get());
}

TEST(SharedArenaTest, AfterRenewingSizesAreKeptAsBefore) {
  SharedArena arena(Small());
  { const auto former = Take(arena, 2 * kHuge); }
  arena.Renew();
  const char* memory = nullptr;
  for (int round = 0; round < 3; ++round) {
    const auto piece = Take(arena, kHuge + 64);
    if (round == 0) memory = piece.get();
    EXPECT_EQ(piece.get(), memory);
  }
  EXPECT_EQ(arena.bytes(), static_cast<int64_t>(2 * kHuge));
}

TEST(SharedArenaTest, AsksForWhatCanGoBeforeItTakesMore) {
  SharedArena arena(Small());
  std::vector<std::shared_ptr<char>> others;
  int asked = 0;
  arena.set_reclaim([&] {
    ++asked;
    // No lock is held: this may release memory and query the arena.
    others.clear();
    arena.bytes();
  });
  std::shared_ptr<char> piece = Take(arena, 640);
  EXPECT_EQ(asked, 1);
  const char* const memory = piece.get();
  others.push_back(std::move(piece));
  piece = Take(arena, 640);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(piece.get(), memory);
  piece = nullptr;
  piece = Take(arena, 640);
  EXPECT_EQ(asked, 2) << "one was spare";
  EXPECT_EQ(arena.bytes(), 640);
}

TEST(SharedArenaTest, TellsWhenTheSystemHasNoMore) {
  SharedArena arena(Small());
  const std::shared_ptr<char> small = Take(arena, 64);
  for (const size_t size : {~size_t{0}, ~size_t{0} / 2, size_t{1} << 62}) {
    EXPECT_EQ(arena.Take(size).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = arena.Take(4 * kHuge);
  const auto fits = arena.Take(100);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(fits.ok()) << "the file that is there has room";
  EXPECT_EQ(arena.bytes(), 64 + 128);
  EXPECT_NE(Take(arena, 4 * kHuge), nullptr) << "it goes on";
}

TEST(SharedArenaTest, TellsOfHugePagesAsAFileDoes) {
  const auto file =
      *SealedFile::Create("t", kHuge, SealedFile::Writers::kOwner);
  EXPECT_EQ(SharedArena::HugePagesWork(), file->MakeHuge(0, kHuge));
}

// Two threads take, mark, look up and release memory. Memory that is handed out
// twice at the same time would lose its mark.
TEST(SharedArenaTest, ServesSeveralThreads) {
  SharedArena arena(Small());
  const auto work = [&arena](char mark) {
    std::shared_ptr<char> held;
    size_t held_size = 0;
    int wrong = 0;
    for (int i = 0; i < 20000; ++i) {
      const size_t size = 64 << i % 3;
      auto piece = arena.Take(size);
      if (!piece.ok() || !arena.Find(piece->get(), size).has_value()) {
        return -1;
      }
      std::memset(piece->get(), mark, size);
      if (held != nullptr && std::count(held.get(), held.get() + held_size,
                                        mark) != static_cast<int>(held_size)) {
        ++wrong;
      }
      held = *std::move(piece);
      held_size = size;
    }
    return wrong;
  };
  int wrong_of_other = 0;
  std::thread other([&] { wrong_of_other = work(1); });
  EXPECT_EQ(work(2), 0);
  other.join();
  EXPECT_EQ(wrong_of_other, 0);
  EXPECT_THAT(arena.files(), SizeIs(1));
}

}  // namespace
}  // namespace holdfast

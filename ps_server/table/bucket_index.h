// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TABLE_BUCKET_INDEX_H_
#define HOLDFAST_PS_SERVER_TABLE_BUCKET_INDEX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace holdfast {

// Finds the rows of one bucket: maps their ids to their places (row_slab.h).
//
// It is a hash table in groups of one cache line. A group has 12 entries: a
// place of 4 bytes and, for each, a tag of 8 bits of the row's hash, or 0 if
// the entry is free. Ids are stored only in the rows, so a search compares the
// ids of rows with the right tag; about 2 % of searches look at another row
// first. (The layout is that of F14 in Facebook's Folly; table_index_benchmark
// compares it with others.)
//
// An entry is in the first group with room, starting at its home group. Each
// group counts the entries that are in a later group because this one was full.
// So a search ends at the first group whose count is 0, and erasing leaves no
// tombstones.
//
// A bucket is a 16,384th part of a table, so growth, which rehashes all of the
// bucket's entries, is short.
//
// Thread-compatible.
class BucketIndex {
 public:
  BucketIndex() = default;
  ~BucketIndex() { Delete(groups_); }
  BucketIndex(const BucketIndex&) = delete;
  BucketIndex& operator=(const BucketIndex&) = delete;

  uint32_t size() const { return size_; }
  int64_t bytes() const { return int64_t{num_groups_} * sizeof(Group); }

  // Prefetches the line that Find reads first.
  void Prefetch(uint64_t hash) const {
    if (num_groups_ > 0) __builtin_prefetch(&groups_[HomeOf(hash)]);
  }

  // The first place that Find would look at, or `none`. It is mostly the place
  // that Find returns, so it can be used to prefetch the row.
  uint32_t Candidate(uint64_t hash, uint32_t none) const {
    return Find(hash, none, [](uint32_t) { return true; });
  }

  // The place, among those with the tag of `hash`, for which is_it(place) is
  // true; `none` if there is no such place.
  template <typename IsIt>
  uint32_t Find(uint64_t hash, uint32_t none, IsIt is_it) const {
    const Entry entry = FindEntry(hash, is_it);
    return entry.group == nullptr ? none : entry.group->places[entry.index];
  }

  // Adds an entry, which must not exist yet. If existing entries have to move,
  // calls hash_of(place) for each of them, and will_ask(place) some time before
  // that.
  template <typename HashOf, typename WillAsk>
  void Insert(uint64_t hash, uint32_t place, HashOf hash_of, WillAsk will_ask) {
    if (size_ == num_groups_ * kLoad) Grow(hash_of, will_ask);
    Put(hash, place);
    ++size_;
  }

  // Removes the entry with `place`, which must exist.
  void Erase(uint64_t hash, uint32_t place) {
    const Entry entry =
        FindEntry(hash, [place](uint32_t other) { return other == place; });
    entry.group->tags[entry.index] = 0;
    for (size_t g = HomeOf(hash); &groups_[g] != entry.group; g = Next(g)) {
      // A counter at its maximum may stand for more entries than it says, so it
      // stays there.
      if (groups_[g].passed != kMostPassed) --groups_[g].passed;
    }
    --size_;
  }

  // Calls visit(place) for each entry, in no particular order; and
  // will_visit(place) some time before.
  template <typename WillVisit, typename Visit>
  void ForEach(WillVisit will_visit, Visit visit) const {
    constexpr size_t kAhead = 2;
    for (size_t g = 0; g < num_groups_ + kAhead; ++g) {
      if (g < num_groups_) groups_[g].ForEach(will_visit);
      if (g >= kAhead) groups_[g - kAhead].ForEach(visit);
    }
  }

 private:
  static constexpr size_t kEntries = 12;
  // The average number of used entries per group at which the index grows.
  static constexpr uint32_t kLoad = 10;
  static constexpr uint8_t kMostPassed = 255;

  struct alignas(64) Group {
    // The tags of the entries; 0 means that the entry is free.
    uint8_t tags[kEntries];
    // The number of entries that have their home in this group or an earlier
    // one, and are in a later group.
    uint8_t passed;
    uint8_t unused[3];
    uint32_t places[kEntries];

    // The entries with the tag, as a bit mask.
    uint32_t Match(uint8_t tag) const {
#if defined(__SSE2__)
      const __m128i line =
          _mm_load_si128(reinterpret_cast<const __m128i*>(tags));
      const __m128i equal =
          _mm_cmpeq_epi8(line, _mm_set1_epi8(static_cast<char>(tag)));
      return _mm_movemask_epi8(equal) & ((1 << kEntries) - 1);
#else
      uint32_t found = 0;
      for (size_t i = 0; i < kEntries; ++i) found |= (tags[i] == tag) << i;
      return found;
#endif
    }
    template <typename Visit>
    void ForEach(Visit visit) const {
      for (size_t i = 0; i < kEntries; ++i) {
        if (tags[i] != 0) visit(places[i]);
      }
    }
  };
  static_assert(sizeof(Group) == 64);

  struct Entry {
    Group* group;
    size_t index;
  };

  static uint8_t TagOf(uint64_t hash) {
    const uint8_t tag = hash & 0xff;
    return tag == 0 ? 1 : tag;
  }
  // The home group of a hash, from bits of the hash that neither the tag nor
  // the bucket uses.
  size_t HomeOf(uint64_t hash) const {
    return (hash >> 18 & 0xffffffff) * num_groups_ >> 32;
  }
  size_t Next(size_t group) const {
    return group + 1 == num_groups_ ? 0 : group + 1;
  }

  template <typename IsIt>
  Entry FindEntry(uint64_t hash, IsIt is_it) const {
    if (num_groups_ == 0) return {nullptr, 0};
    const uint8_t tag = TagOf(hash);
    size_t g = HomeOf(hash);
    for (uint32_t i = 0; i < num_groups_; ++i, g = Next(g)) {
      Group& group = groups_[g];
      for (uint32_t found = group.Match(tag); found != 0; found &= found - 1) {
        const size_t index = __builtin_ctz(found);
        if (is_it(group.places[index])) return {&group, index};
      }
      if (group.passed == 0) break;
    }
    return {nullptr, 0};
  }

  void Put(uint64_t hash, uint32_t place) {
    for (size_t g = HomeOf(hash);; g = Next(g)) {
      Group& group = groups_[g];
      const uint32_t free = group.Match(0);
      if (free != 0) {
        const size_t index = __builtin_ctz(free);
        group.tags[index] = TagOf(hash);
        group.places[index] = place;
        return;
      }
      if (group.passed != kMostPassed) ++group.passed;
    }
  }

  template <typename HashOf, typename WillAsk>
  void Grow(HashOf hash_of, WillAsk will_ask) {
    // Grows by half: if it doubled, an index would be half empty at worst.
    const uint32_t grown = std::max(num_groups_ + 1, num_groups_ * 3 / 2);
    auto* const memory =
        static_cast<Group*>(::operator new(grown * sizeof(Group), kAlignment));
    std::uninitialized_value_construct_n(memory, grown);
    BucketIndex next;
    next.groups_ = memory;
    next.num_groups_ = grown;
    ForEach(will_ask, [&](uint32_t place) { next.Put(hash_of(place), place); });
    std::swap(groups_, next.groups_);
    num_groups_ = grown;
  }

  static constexpr std::align_val_t kAlignment{alignof(Group)};
  static void Delete(Group* groups) { ::operator delete(groups, kAlignment); }

  Group* groups_ = nullptr;
  uint32_t num_groups_ = 0;
  uint32_t size_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_BUCKET_INDEX_H_

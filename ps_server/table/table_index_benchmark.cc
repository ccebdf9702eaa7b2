// SPDX-License-Identifier: Apache-2.0

// Measures the memory and the speed of a table's rows, for our index and for
// others, compared with random reads of the same memory.
//
//   table_index_benchmark --index=own --rows=10000000 --floats=16 --read=16
//
// --index   own           BucketIndex, as BucketStore has it
//           abseil        absl::flat_hash_map<id, place>
//           abseil_place  absl::flat_hash_set<place>, which looks at the rows
//                         for their ids
//           boost         boost::unordered_map<id, place>
//           robin         tsl::robin_map<id, place>, where the system has it
// --rows    rows that are made, of random ids
// --floats  of a row: values and slots
// --read    of these so many are read by a lookup: the values
//
// Each has one index for each bucket, as a table needs it. A run measures one
// index, because memory freed by one would be counted for the next. It prints,
// as one line of names and figures:
//
//   bytes/row  growth of the resident memory (VmRSS), for each row
//   make_ns    time to make a row and write its floats
//   pause_us   the longest time that 64 rows took, in CPU time of the thread:
//              growth of indexes and slabs, and page faults; and after the
//              slash, how many times it was more than 1 ms
//   find_ns    time to find a row and add up its values, in batches of 65,536
//   read_ns    time to add up the values of rows at known places, which are
//              prefetched: a limit for any index
//   of_reads   read_ns / find_ns
//   lines_ns   as read_ns, with another random line for each row, since every
//              index has to read one
//   of_lines   lines_ns / find_ns
//
// Lookups in the others prefetch what their interfaces allow: Abseil's the
// group of the index; all of them the row, once its place is known.

#include <time.h>

#include <algorithm>
#include <boost/unordered_map.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/tensor/row_bucket.h"
#include "ps_server/table/bucket_store.h"
#include "ps_server/table/row_slab.h"
#if __has_include(<tsl/robin_map.h>)
#include <tsl/robin_map.h>
#endif

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = 65536;

struct Options {
  std::string index = "own";
  uint64_t rows = 10'000'000;
  size_t floats = 16;
  size_t read = 16;
};

uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmRSS:") continue;
    uint64_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

double CpuMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

float Sum(const RowHeader* row, size_t size) {
  float sum = 0;
  for (size_t i = 0; i < size; ++i) sum += row->floats()[i];
  return sum;
}

void Fetch(const void* row, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(row) + at);
  }
  __builtin_prefetch(static_cast<const char*>(row) + bytes - 1);
}

// The hash of an id, for containers that need not mix it again.
struct Hashed {
  size_t operator()(uint64_t id) const { return HashRowId(id); }
};

class OwnRows {
 public:
  explicit OwnRows(const Options& options) : store_(options.floats, {}) {}
  RowHeader* Make(uint64_t id) {
    const uint64_t hash = HashRowId(id);
    return store_.StripeOf(hash).Insert(hash, id);
  }
  template <typename Visit>
  void Find(absl::Span<const uint64_t> ids, size_t bytes, Visit visit) {
    store_.FindMany(ids, bytes, [&](size_t, RowHeader* row) { visit(row); });
  }

 private:
  BucketStore store_;
};

// A container from id to place for each bucket.
template <typename Map, bool kPrefetches>
class MappedRows {
 public:
  explicit MappedRows(const Options& options) : maps_(kRowBuckets) {
    for (uint32_t i = 0; i < kStripes; ++i) {
      slabs_.push_back(std::make_unique<RowSlab>(options.floats));
    }
  }
  RowHeader* Make(uint64_t id) {
    const uint32_t bucket = BucketOfRow(id);
    RowSlab& slab = *slabs_[StripeOfBucket(bucket)];
    const uint32_t place = slab.Take();
    maps_[bucket].emplace(id, place);
    RowHeader* const row = slab.At(place);
    row->set_id(id);
    return row;
  }
  template <typename Visit>
  void Find(absl::Span<const uint64_t> ids, size_t bytes, Visit visit) {
    constexpr size_t kBlock = 16;
    const RowHeader* rows[kBlock];
    for (size_t at = 0; at < ids.size(); at += kBlock) {
      const auto block = ids.subspan(at, kBlock);
      if constexpr (kPrefetches) {
        for (const uint64_t id : block) maps_[BucketOfRow(id)].prefetch(id);
      }
      for (size_t i = 0; i < block.size(); ++i) {
        const uint32_t bucket = BucketOfRow(block[i]);
        const auto found = maps_[bucket].find(block[i]);
        rows[i] = slabs_[StripeOfBucket(bucket)]->At(found->second);
        Fetch(rows[i], bytes);
      }
      for (size_t i = 0; i < block.size(); ++i) visit(rows[i]);
    }
  }

 private:
  std::vector<std::unique_ptr<RowSlab>> slabs_;
  std::vector<Map> maps_;
};

// Abseil's table of places alone.
class PlacedRows {
 public:
  explicit PlacedRows(const Options& options) {
    for (uint32_t i = 0; i < kStripes; ++i) {
      slabs_.push_back(std::make_unique<RowSlab>(options.floats));
    }
    for (uint32_t i = 0; i < kRowBuckets; ++i) {
      const IdOf id_of{slabs_[StripeOfBucket(i)].get()};
      sets_.emplace_back(0, Hash{id_of}, Equal{id_of});
    }
  }
  RowHeader* Make(uint64_t id) {
    const uint32_t bucket = BucketOfRow(id);
    RowSlab& slab = *slabs_[StripeOfBucket(bucket)];
    const uint32_t place = slab.Take();
    RowHeader* const row = slab.At(place);
    row->set_id(id);
    sets_[bucket].insert(place);
    return row;
  }
  template <typename Visit>
  void Find(absl::Span<const uint64_t> ids, size_t bytes, Visit visit) {
    constexpr size_t kBlock = 16;
    for (size_t at = 0; at < ids.size(); at += kBlock) {
      const auto block = ids.subspan(at, kBlock);
      for (const uint64_t id : block) sets_[BucketOfRow(id)].prefetch(id);
      for (const uint64_t id : block) {
        const uint32_t bucket = BucketOfRow(id);
        const RowHeader* const row =
            slabs_[StripeOfBucket(bucket)]->At(*sets_[bucket].find(id));
        Fetch(row, bytes);
        visit(row);
      }
    }
  }

 private:
  struct IdOf {
    const RowSlab* slab;
    uint64_t operator()(uint32_t place) const { return slab->At(place)->id(); }
    uint64_t operator()(uint64_t id) const { return id; }
  };
  struct Hash {
    using is_transparent = void;
    IdOf id_of;
    template <typename Key>
    size_t operator()(Key key) const {
      return HashRowId(id_of(key));
    }
  };
  struct Equal {
    using is_transparent = void;
    IdOf id_of;
    template <typename A, typename B>
    bool operator()(A a, B b) const {
      return id_of(a) == id_of(b);
    }
  };

  std::vector<std::unique_ptr<RowSlab>> slabs_;
  std::vector<absl::flat_hash_set<uint32_t, Hash, Equal>> sets_;
};

template <typename Rows>
void Measure(const Options& options) {
  const auto id_of = [](uint64_t i) {
    // Any bijection other than the hash.
    return (i * 0x9e3779b97f4a7c15) ^ 0x5851f42d4c957f2d;
  };
  // Indexed by the number of the row, so that both tests can use it.
  std::vector<RowHeader*> places(options.rows);
  for (RowHeader*& place : places) place = nullptr;
  const uint64_t before = ResidentBytes();
  Rows rows(options);
  double pause = 0;
  int long_pauses = 0;
  const auto begin = Clock::now();
  constexpr uint64_t kGroup = 64;
  for (uint64_t i = 0; i < options.rows;) {
    const double start = CpuMicroseconds();
    const uint64_t end = std::min(options.rows, i + kGroup);
    for (; i < end; ++i) {
      RowHeader* const row = rows.Make(id_of(i));
      row->Set(1, 1);
      std::fill_n(row->floats(), options.floats, 1.0f);
      places[i] = row;
    }
    const double took = CpuMicroseconds() - start;
    pause = std::max(pause, took);
    long_pauses += took > 1000;
  }
  const std::chrono::duration<double, std::nano> made = Clock::now() - begin;
  const double bytes = ResidentBytes() - before;

  const size_t read_bytes = sizeof(RowHeader) + options.read * sizeof(float);
  // As large as the lines of an index, at 5 bytes per entry.
  std::vector<uint64_t> lines(options.rows * 5 / sizeof(uint64_t) + 8, 1);
  std::vector<const uint64_t*> line_of(kBatch);
  std::vector<double> finds, reads, both;
  float sum = 0;
  uint64_t random = 1;
  std::vector<uint64_t> ids(kBatch);
  std::vector<const RowHeader*> known(kBatch);
  constexpr int kRounds = 101;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kBatch; ++i) {
      random = random * 6364136223846793005 + 1442695040888963407;
      ids[i] = id_of((random >> 11) % options.rows);
    }
    const auto start = Clock::now();
    rows.Find(ids, read_bytes,
              [&](const RowHeader* row) { sum += Sum(row, options.read); });
    finds.push_back(
        std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    const auto measure_reads = [&](bool and_lines, std::vector<double>* times) {
      // Different ones each time: the last are in the caches by now.
      for (size_t i = 0; i < kBatch; ++i) {
        random = random * 6364136223846793005 + 1442695040888963407;
        known[i] = places[(random >> 11) % options.rows];
        random = random * 6364136223846793005 + 1442695040888963407;
        line_of[i] = &lines[(random >> 11) % lines.size()];
      }
      const auto start = Clock::now();
      constexpr size_t kAhead = 16;
      for (size_t i = 0; i < kBatch + kAhead; ++i) {
        if (i < kBatch) {
          Fetch(known[i], read_bytes);
          if (and_lines) __builtin_prefetch(line_of[i]);
        }
        if (i >= kAhead) {
          sum += Sum(known[i - kAhead], options.read);
          if (and_lines) sum += *line_of[i - kAhead];
        }
      }
      times->push_back(
          std::chrono::duration<double, std::nano>(Clock::now() - start)
              .count());
    };
    measure_reads(false, &reads);
    measure_reads(true, &both);
  }
  const auto tenth = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 10] / kBatch;
  };
  const double find = tenth(finds);
  const double read = tenth(reads);
  const double with_line = tenth(both);
  std::printf(
      "index %s rows %llu floats %zu read %zu bytes/row %.1f make_ns %.0f "
      "pause_us %.0f/%d find_ns %.1f read_ns %.1f of_reads %.2f "
      "lines_ns %.1f of_lines %.2f (sum %g)\n",
      options.index.c_str(), static_cast<unsigned long long>(options.rows),
      options.floats, options.read, bytes / options.rows,
      made.count() / options.rows, pause, long_pauses, find, read, read / find,
      with_line, with_line / find, sum);
}

bool Run(const Options& options) {
  if (options.index == "own") {
    Measure<OwnRows>(options);
  } else if (options.index == "abseil") {
    Measure<MappedRows<absl::flat_hash_map<uint64_t, uint32_t, Hashed>, true>>(
        options);
  } else if (options.index == "abseil_place") {
    Measure<PlacedRows>(options);
  } else if (options.index == "boost") {
    Measure<
        MappedRows<boost::unordered_map<uint64_t, uint32_t, Hashed>, false>>(
        options);
#if __has_include(<tsl/robin_map.h>)
  } else if (options.index == "robin") {
    Measure<MappedRows<tsl::robin_map<uint64_t, uint32_t, Hashed>, false>>(
        options);
#endif
  } else {
    return false;
  }
  return true;
}

// Returns false if an argument is not understood.
bool Parse(absl::Span<char* const> arguments, Options* options) {
  for (absl::string_view argument : arguments) {
    if (absl::ConsumePrefix(&argument, "--index=")) {
      options->index = std::string(argument);
    } else if (!((absl::ConsumePrefix(&argument, "--rows=") &&
                  absl::SimpleAtoi(argument, &options->rows)) ||
                 (absl::ConsumePrefix(&argument, "--floats=") &&
                  absl::SimpleAtoi(argument, &options->floats)) ||
                 (absl::ConsumePrefix(&argument, "--read=") &&
                  absl::SimpleAtoi(argument, &options->read)))) {
      return false;
    }
  }
  return options->rows > 0 && options->read <= options->floats;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  holdfast::Options options;
  if (!holdfast::Parse(absl::MakeSpan(argv + 1, argc - 1), &options) ||
      !holdfast::Run(options)) {
    std::fprintf(stderr, "table_index_benchmark: see its source for flags\n");
    return 2;
  }
}

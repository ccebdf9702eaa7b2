// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/embedding_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/sha256.h"
#include "common/tensor/encoding.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps_server/shard/apply_step.h"
#include "ps_server/store/dense_store.h"
#include "ps_server/table/testing/table_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr EmbeddingTable::Kind kRow = EmbeddingTable::Kind::kRow;
constexpr EmbeddingTable::Kind kCandidate = EmbeddingTable::Kind::kCandidate;

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// A row's id, step, count and floats.
using State = std::vector<std::tuple<EmbeddingTable::Kind, uint64_t, uint64_t,
                                     uint32_t, std::vector<float>>>;

// The whole state of tables that each have part of the buckets, in the order of
// buckets.
State StateOf(const std::vector<std::unique_ptr<EmbeddingTable>>& parts) {
  State state;
  for (const auto& table : parts) {
    for (uint32_t b = table->buckets().begin; b < table->buckets().end; ++b) {
      for (const EmbeddingTable::Kind kind : {kRow, kCandidate}) {
        for (const RowHeader* const row : table->Sorted(kind, b)) {
          state.emplace_back(
              kind, row->id(), row->step(), row->count(),
              std::vector<float>(row->floats(),
                                 row->floats() + table->floats(kind)));
        }
      }
    }
  }
  return state;
}

std::string DigestOf(
    const std::vector<std::unique_ptr<EmbeddingTable>>& parts) {
  std::vector<std::string> digests;
  for (const auto& table : parts) {
    for (uint32_t b = table->buckets().begin; b < table->buckets().end; ++b) {
      digests.push_back(table->BucketDigest(b));
    }
  }
  EXPECT_EQ(digests.size(), kRowBuckets);
  return DigestOfTable(parts[0]->declared(), digests);
}

// The table's buckets on `num_ps` ps.
std::vector<std::unique_ptr<EmbeddingTable>> MakeParts(
    const proto::EmbeddingTable& declared, const std::string& optimizer,
    uint32_t num_ps) {
  std::vector<std::unique_ptr<EmbeddingTable>> parts;
  for (uint32_t ps = 0; ps < num_ps; ++ps) {
    EmbeddingTable::Options options;
    options.seed = 42;
    options.buckets = BucketsOfPs(ps, num_ps);
    parts.push_back(MakeEmbeddingTable(declared, optimizer, options));
  }
  return parts;
}

// A dense variable "t" [rows, length] that is trained by the code of dense
// steps.
class Dense {
 public:
  Dense(int64_t rows, uint32_t length, const proto::Initializer& initializer,
        const std::string& optimizer, uint64_t seed)
      : length_(length), values_(rows * length) {
    proto::Declaration declaration;
    declaration.set_seed(seed);
    proto::Variable& variable = *declaration.add_variables();
    variable.set_name("t");
    variable.add_shape(rows);
    variable.add_shape(length);
    variable.set_dtype(proto::FLOAT32);
    *variable.mutable_initializer() = initializer;
    proto::Slice slice;
    slice.set_variable("t");
    slice.set_size(rows * length);
    optimizers_.push_back(
        MakeOptimizer(ParseText<proto::Optimizer>(optimizer)));
    store_ = *DenseStore::Create(declaration, {slice}, 0,
                                 {optimizers_[0]->initial_slots()});
  }

  // Rows that a push does not have are 0 in its gradient.
  void Step(const std::vector<Gradients>& pushes,
            const std::vector<float>& weights, float divisor,
            std::optional<float> clip_value,
            const proto::StepScalars& scalars) {
    GradientSum sum;
    for (size_t i = 0; i < pushes.size(); ++i) {
      std::vector<float> gradient(values_, 0.0f);
      for (const auto& [id, row] : pushes[i]) {
        std::copy(row.begin(), row.end(), gradient.begin() + id * length_);
      }
      sum.terms.push_back(
          {weights[i], {{{proto::EXACT, values_, BytesOf(gradient)}}}});
    }
    sum.weight_divisor = divisor;
    ApplyOptions options;
    options.clip_value = clip_value;
    holdfast::ApplyStep(sum, {scalars}, optimizers_, options, store_.get());
  }

  std::vector<float> Values() const {
    std::vector<float> values(values_);
    store_->Read(*store_->newest(), 0, 0, values_).CopyTo(values.data());
    return values;
  }

 private:
  const uint32_t length_;
  const size_t values_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::unique_ptr<DenseStore> store_;
};

// Random steps of several pushes, each with some of the rows, against the code
// of dense variables: gradients with zeros of both signs, large and small ones,
// first values that are -0, weights that are not 1, divisors whose reciprocal
// is not exact, and clipping.
TEST(EmbeddingTableTest, EqualsADenseVariableBitForBit_B6) {
  constexpr int64_t kRows = 100;
  const std::string optimizers[] = {
      "learning_rate: 0.3 sgd {}", "learning_rate: 0.3 adagrad {}",
      "learning_rate: 0.3 adagrad { initial_accumulator_value: 0 }"};
  int seed = 0;
  for (const std::string& optimizer : optimizers) {
    for (const std::string first :
         {"uniform { low: -1 high: 1 }", "constant { value: -0.0 }",
          "normal { stddev: 0.1 }"}) {
      for (const uint32_t length : {1, 3, 16, 200}) {
        const proto::EmbeddingTable declared =
            Declared(length, "initializer { " + first + " }");
        EmbeddingTable::Options options;
        options.seed = ++seed;
        const auto table = MakeEmbeddingTable(declared, optimizer, options);
        Dense dense(kRows, length, declared.initializer(), optimizer, seed);
        std::mt19937 random(seed);
        const auto uniform = [&random](float low, float high) {
          return std::uniform_real_distribution<float>(low, high)(random);
        };
        for (int step = 0; step < 30; ++step) {
          std::vector<Gradients> pushes(1 + random() % 4);
          std::vector<float> weights;
          for (Gradients& push : pushes) {
            weights.push_back(random() % 2 == 0 ? 1.0f : uniform(0.1f, 3));
            for (uint32_t i = random() % 30; i > 0; --i) {
              std::vector<float>& gradient = push[random() % kRows];
              gradient.clear();
              for (uint32_t j = 0; j < length; ++j) {
                const float small = std::ldexp(uniform(-1, 1), -30);
                const float choices[] = {0.0f, -0.0f, uniform(-1, 1), small,
                                         uniform(-100, 100)};
                gradient.push_back(choices[random() % 5]);
              }
            }
          }
          const float divisors[] = {1, 2, 3, 7.5f};
          const float divisor = divisors[random() % 4];
          std::optional<float> clip;
          if (random() % 3 == 0) clip = uniform(0.1f, 2);
          const proto::StepScalars scalars = Rate(uniform(0.01f, 1));
          dense.Step(pushes, weights, divisor, clip, scalars);

          std::vector<ReceivedRows> received;
          for (const Gradients& push : pushes) {
            received.push_back(Received(declared, push));
          }
          RowSum sum;
          sum.divisor = divisor;
          for (size_t i = 0; i < pushes.size(); ++i) {
            sum.terms.push_back({{&received[i]}, weights[i]});
          }
          ApplyRowsOptions apply;
          apply.clip_value = clip;
          table->ApplyStep(sum, scalars, apply);
        }
        std::vector<uint64_t> ids;
        for (uint64_t id = 0; id < kRows; ++id) ids.push_back(id);
        std::vector<float> values(kRows * length);
        table->Read(ids, values.data());
        ASSERT_EQ(Bits(values), Bits(dense.Values()))
            << optimizer << " " << first << " " << length;
      }
    }
  }
}

// In float32 2^24 + 1 is 2^24 (a tie, to even), so the order of the pushes
// shows: (2^24 + 1) + 1 = 2^24, and (1 + 1) + 2^24 = 2^24 + 2.
TEST(EmbeddingTableTest, OneRowOfSeveralPushesInTheirOrder) {
  const proto::EmbeddingTable declared = Declared(1, "");
  const Gradients big = {{5, {0x1p24f}}};
  const Gradients one = {{5, {1}}, {6, {1}}};
  auto table = MakeEmbeddingTable(declared, "learning_rate: 1 sgd {}");
  Step(table.get(), {big, one, one}, Rate(1));
  EXPECT_THAT(ReadRow(*table, 5), ElementsAre(-0x1p24f));
  EXPECT_THAT(ReadRow(*table, 6), ElementsAre(-2));
  table = MakeEmbeddingTable(declared, "learning_rate: 1 sgd {}");
  Step(table.get(), {one, one, big}, Rate(1));
  EXPECT_THAT(ReadRow(*table, 5), ElementsAre(-(0x1p24f + 2)));
}

TEST(EmbeddingTableTest, ReadsMakeNothing_B1) {
  const auto table = MakeEmbeddingTable(
      Declared(4, "initializer { uniform { low: -1 high: 1 } }"),
      "learning_rate: 1 adagrad {}");
  Step(table.get(), {{{1, {1, 2, 3, 4}}}}, Rate(1));
  const int64_t bytes = table->bytes();
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < 1'000'000; ++i)
    ids.push_back(i * 0x9e3779b97f4a7c15);
  std::vector<float> values(ids.size() * 4);
  table->Read(ids, values.data());
  EXPECT_EQ(table->rows(), 1);
  EXPECT_EQ(table->bytes(), bytes);
  // The values read are those of the row once it is made, here by a gradient of
  // 0.
  const std::vector<float> first(values.end() - 4, values.end());
  Step(table.get(), {{{ids.back(), {0, 0, 0, 0}}}}, Rate(1));
  EXPECT_EQ(table->rows(), 2);
  EXPECT_EQ(ReadRow(*table, ids.back()), first);
}

TEST(EmbeddingTableTest, StepsWithoutPushesCount) {
  const auto table =
      MakeEmbeddingTable(Declared(1, ""), "learning_rate: 1 sgd {}");
  EXPECT_EQ(table->version(), GlobalStep(0));
  table->ApplyStep({}, Rate(1), {});
  EXPECT_EQ(table->version(), GlobalStep(1));
  Step(table.get(), {{{9, {1}}}}, Rate(1));
  const auto rows = table->Sorted(kRow, BucketOfRow(9));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0]->step(), 2u);
  EXPECT_EQ(rows[0]->count(), 1u);
}

// Admission by hand: two pushes of step 1 have the row, one of step 3, and the
// fourth push is in step 4, whose whole gradient counts.
TEST(EmbeddingTableTest, ARowIsAdmittedByItsNthPush_B7) {
  const auto table = MakeEmbeddingTable(Declared(1, "min_count: 4"),
                                        "learning_rate: 1 sgd {}");
  const Gradients push = {{9, {1}}};
  Step(table.get(), {push, push}, Rate(1));
  EXPECT_EQ(table->rows(), 0);
  EXPECT_EQ(table->candidates(), 1);
  Step(table.get(), {}, Rate(1));
  Step(table.get(), {push}, Rate(1));
  const auto candidates = table->Sorted(kCandidate, BucketOfRow(9));
  ASSERT_THAT(candidates, SizeIs(1));
  EXPECT_EQ(candidates[0]->count(), 3u);
  EXPECT_EQ(candidates[0]->step(), 3u);
  EXPECT_THAT(ReadRow(*table, 9), ElementsAre(0));
  Step(table.get(), {push, push}, Rate(1));
  EXPECT_EQ(table->rows(), 1);
  EXPECT_EQ(table->candidates(), 0);
  EXPECT_THAT(ReadRow(*table, 9), ElementsAre(-2));
  EXPECT_EQ(table->Sorted(kRow, BucketOfRow(9))[0]->count(), 5u);
}

// Each row is removed at the first sweep of its bucket that finds it 100 steps
// old or older: buckets are swept every 25 steps, bucket b at versions whose
// remainder is b. Candidates likewise.
TEST(EmbeddingTableTest, ExpiresAtFixedSteps_B8) {
  for (const std::string min_count : {"", " min_count: 1000"}) {
    const auto table =
        MakeEmbeddingTable(Declared(1, "expire_after_steps: 100" + min_count),
                           "learning_rate: 1 sgd {}");
    Gradients push;
    for (uint64_t id = 0; id < 500; ++id) push[id] = {1};
    Step(table.get(), {push}, Rate(1));
    const EmbeddingTable::Kind kind = min_count.empty() ? kRow : kCandidate;
    for (uint64_t version = 2; version <= 130; ++version) {
      table->ApplyStep({}, Rate(1), {});
      for (uint64_t id = 0; id < 500; ++id) {
        const uint32_t bucket = BucketOfRow(id);
        uint64_t gone = 101;
        while (gone % 25 != bucket % 25) ++gone;
        const auto there = table->Sorted(kind, bucket);
        EXPECT_EQ(
            std::any_of(there.begin(), there.end(),
                        [id](const RowHeader* row) { return row->id() == id; }),
            version < gone)
            << id << " " << version;
      }
    }
    EXPECT_EQ(table->rows() + table->candidates(), 0);
  }
}

// Ids of one bucket.
std::vector<uint64_t> IdsOf(uint32_t bucket, size_t count) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; ids.size() < count; ++id) {
    if (BucketOfRow(id) == bucket) ids.push_back(id);
  }
  return ids;
}

std::vector<uint64_t> IdsIn(const EmbeddingTable& table, uint32_t bucket) {
  std::vector<uint64_t> ids;
  for (const RowHeader* const row : table.Sorted(kRow, bucket)) {
    ids.push_back(row->id());
  }
  return ids;
}

TEST(EmbeddingTableTest, TheLeastRecentlyTouchedGoFirst_B9) {
  // Three rows per bucket; what exceeds a multiple of 16,384 does not count.
  const auto table = MakeEmbeddingTable(Declared(1, "max_rows: 49152"),
                                        "learning_rate: 1 sgd {}");
  const std::vector<uint64_t> ids = IdsOf(77, 8);
  Step(table.get(), {{{ids[3], {1}}}}, Rate(1));
  Step(table.get(), {{{ids[1], {1}}, {ids[2], {1}}}}, Rate(1));
  Step(table.get(), {{{ids[3], {1}}}}, Rate(1));
  EXPECT_THAT(IdsIn(*table, 77), ElementsAre(ids[1], ids[2], ids[3]));
  // 1 and 2 are of one step: the lower id goes.
  Step(table.get(), {{{ids[0], {1}}}}, Rate(1));
  EXPECT_THAT(IdsIn(*table, 77), ElementsAre(ids[0], ids[2], ids[3]));
  // More than the bucket may have, in one step: the highest stay.
  Step(table.get(),
       {{{ids[4], {1}}, {ids[5], {1}}, {ids[6], {1}}, {ids[7], {1}}}}, Rate(1));
  EXPECT_THAT(IdsIn(*table, 77), ElementsAre(ids[5], ids[6], ids[7]));
  EXPECT_THAT(ReadRow(*table, ids[4]), ElementsAre(0));
}

// A naive table of SGD with rate 1, gradients of 1, and zeros at first.
class Naive {
 public:
  Naive(uint32_t min_count, uint64_t expire_after, size_t cap)
      : min_count_(min_count), expire_after_(expire_after), cap_(cap) {}

  void Step(const std::vector<std::vector<uint64_t>>& pushes) {
    ++version_;
    std::map<uint64_t, uint32_t> touched;
    for (const auto& push : pushes) {
      for (const uint64_t id : push) ++touched[id];
    }
    for (const auto& [id, count] : touched) {
      if (rows_.count(id) == 0) {
        Entry& candidate = candidates_[id];
        candidate.count += count;
        candidate.step = version_;
        if (candidate.count < min_count_) continue;
        rows_[id].count = candidate.count - count;
        candidates_.erase(id);
      }
      Entry& row = rows_[id];
      row.count += count;
      row.step = version_;
      row.value -= static_cast<float>(count);
    }
    for (auto* const entries : {&rows_, &candidates_}) {
      const uint64_t period = std::clamp<uint64_t>(expire_after_ / 4, 1, 16384);
      std::map<uint32_t, std::vector<std::pair<uint64_t, uint64_t>>> by_bucket;
      for (auto entry = entries->begin(); entry != entries->end();) {
        const uint32_t bucket = BucketOfRow(entry->first);
        if (bucket % period == version_ % period &&
            version_ - entry->second.step >= expire_after_) {
          entry = entries->erase(entry);
        } else {
          by_bucket[bucket].emplace_back(entry->second.step, entry->first);
          ++entry;
        }
      }
      for (auto& [bucket, ages] : by_bucket) {
        std::sort(ages.rbegin(), ages.rend());
        for (; ages.size() > cap_; ages.pop_back()) {
          entries->erase(ages.back().second);
        }
      }
    }
  }

  State state() const {
    State state;
    for (const EmbeddingTable::Kind kind : {kRow, kCandidate}) {
      for (const auto& [id, entry] : kind == kRow ? rows_ : candidates_) {
        std::vector<float> floats;
        if (kind == kRow) floats.push_back(entry.value);
        state.emplace_back(kind, id, entry.step, entry.count, floats);
      }
    }
    const auto bucket_of = [](const State::value_type& entry) {
      return BucketOfRow(std::get<1>(entry));
    };
    std::stable_sort(state.begin(), state.end(),
                     [&](const auto& a, const auto& b) {
                       return bucket_of(a) < bucket_of(b);
                     });
    return state;
  }

 private:
  struct Entry {
    uint64_t step = 0;
    uint32_t count = 0;
    float value = 0;
  };
  const uint32_t min_count_;
  const uint64_t expire_after_;
  const size_t cap_;
  uint64_t version_ = 0;
  std::map<uint64_t, Entry> rows_;
  std::map<uint64_t, Entry> candidates_;
};

// Random steps over ids of few buckets, so that these get full, on 1, 2 and 4
// ps, with and without threads, against the naive table.
TEST(EmbeddingTableTest, AdmissionExpiryAndCapOnAnyNumberOfPs_B10) {
  std::vector<uint64_t> ids;
  for (const uint32_t bucket : {0, 1, 4095, 4096, 8192, 12288, 16383}) {
    for (const uint64_t id : IdsOf(bucket, 80)) ids.push_back(id);
  }
  const struct {
    uint32_t min_count;
    uint64_t expire_after;
    uint32_t cap;
  } kCases[] = {{1, 1000, 1000}, {3, 1000, 1000}, {1, 9, 1000}, {1, 1000, 10},
                {2, 9, 8},       {3, 20, 20},     {2, 2, 1},    {1, 1000, 48}};
  for (const auto& test : kCases) {
    proto::EmbeddingTable declared = Declared(1, "");
    declared.set_min_count(test.min_count);
    declared.set_expire_after_steps(test.expire_after);
    declared.set_max_rows(uint64_t{test.cap} * kRowBuckets);
    const std::string optimizer = "learning_rate: 1 sgd {}";
    Naive naive(test.min_count, test.expire_after, test.cap);
    auto one = MakeParts(declared, optimizer, 1);
    auto two = MakeParts(declared, optimizer, 2);
    auto four = MakeParts(declared, optimizer, 4);
    std::mt19937 random(test.cap + test.min_count);
    for (int step = 0; step < 60; ++step) {
      std::vector<std::vector<uint64_t>> pushes(random() % 4);
      std::vector<Gradients> gradients(pushes.size());
      for (size_t i = 0; i < pushes.size(); ++i) {
        for (uint32_t n = random() % 40; n > 0; --n) {
          const uint64_t id = ids[random() % ids.size()];
          if (gradients[i].emplace(id, std::vector<float>{1}).second) {
            pushes[i].push_back(id);
          }
        }
      }
      naive.Step(pushes);
      for (auto* const parts : {&one, &two, &four}) {
        for (const auto& table : *parts) Step(table.get(), gradients, Rate(1));
      }
    }
    const State state = StateOf(one);
    EXPECT_EQ(state, naive.state()) << test.cap;
    EXPECT_EQ(StateOf(two), state);
    EXPECT_EQ(StateOf(four), state);
    EXPECT_EQ(DigestOf(two), DigestOf(one));
    EXPECT_EQ(DigestOf(four), DigestOf(one));
  }
}

TEST(EmbeddingTableTest, ThreadsChangeNothing_B10) {
  const proto::EmbeddingTable declared = Declared(
      2,
      "min_count: 2 expire_after_steps: 6 initializer { normal { stddev: 1 "
      "} } max_rows: 32768");
  const std::string optimizer = "learning_rate: 0.1 adam {}";
  const auto alone = MakeEmbeddingTable(declared, optimizer);
  const auto helped = MakeEmbeddingTable(declared, optimizer);
  ThreadPool threads(4, "table");
  std::mt19937 random(1);
  for (int step = 0; step < 8; ++step) {
    std::vector<ReceivedRows> received;
    for (int i = 0; i < 3; ++i) {
      Gradients push;
      for (int n = 0; n < 10000; ++n) {
        push[random() % 20000] = {static_cast<float>(random() % 100), 1};
      }
      received.push_back(Received(declared, push));
    }
    RowSum sum{{{{&received[0]}, 1}, {{&received[1]}, 2}, {{&received[2]}, 1}},
               4};
    proto::StepScalars scalars = Rate(0.1f);
    scalars.set_bias_correction1(0.5f);
    scalars.set_bias_correction2(0.5f);
    ApplyRowsOptions options;
    alone->ApplyStep(sum, scalars, options);
    options.threads = &threads;
    options.simd = Simd::kPlain;
    helped->ApplyStep(sum, scalars, options);
  }
  EXPECT_GT(alone->rows(), 5000);
  EXPECT_EQ(helped->rows(), alone->rows());
  for (const EmbeddingTable* const table : {alone.get(), helped.get()}) {
    const RowTotals& totals = table->totals();
    EXPECT_EQ(table->rows(),
              totals.admissions - totals.expirations - totals.evictions);
    EXPECT_EQ(totals.evictions, alone->totals().evictions);
    EXPECT_EQ(totals.expirations, alone->totals().expirations);
  }
  for (uint32_t bucket = 0; bucket < kRowBuckets; bucket += 5) {
    ASSERT_EQ(helped->BucketDigest(bucket), alone->BucketDigest(bucket));
  }
  // Not all of them have rows.
  std::vector<uint64_t> ids(25000);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> values(2 * ids.size());
  EXPECT_EQ(alone->Read(ids, values.data()), alone->rows());
  std::vector<float> also(values.size());
  EXPECT_EQ(helped->Read(ids, also.data(), &threads), alone->rows());
  EXPECT_EQ(also, values);
}

// By hand: a read of 3 ids finds 1 row, 1 id becomes a row at its third push,
// and a row that is loaded counts as not admitted.
TEST(EmbeddingTableTest, CountsAdmissionsAndTheRowsThatReadsFind) {
  const auto table = MakeEmbeddingTable(Declared(1, "min_count: 3"),
                                        "learning_rate: 1 sgd {}");
  ASSERT_TRUE(table->LoadValues(7, {1.0f}).ok());
  const std::vector<uint64_t> ids = {7, 8, 9};
  std::vector<float> values(ids.size());
  EXPECT_EQ(table->Read(ids, values.data()), 1);
  Step(table.get(), {{{7, {1}}, {8, {1}}}, {{8, {1}}}}, Rate(1));
  EXPECT_EQ(table->totals().admissions, 0);
  const GlobalStep held = table->Hold();
  Step(table.get(), {{{8, {1}}, {9, {1}}}}, Rate(1));
  EXPECT_EQ(table->totals().admissions, 1);
  EXPECT_EQ(table->Read(ids, values.data()), 2);
  EXPECT_EQ(table->ReadHeld(held, ids, values.data()), 1);
  EXPECT_EQ(table->Read({}, values.data()), 0);
  // A row that is there is not admitted again.
  Step(table.get(), {{{7, {1}}, {8, {1}}}}, Rate(1));
  EXPECT_EQ(table->totals().admissions, 1);
  EXPECT_EQ(table->totals().expirations, 0);
  EXPECT_EQ(table->totals().evictions, 0);
}

// Every row that has been made is there, has expired, or was evicted;
// candidates that are removed are not counted.
TEST(EmbeddingTableTest, CountsWhatExpiresAndWhatIsEvicted) {
  const auto table = MakeEmbeddingTable(
      Declared(1, "min_count: 2 expire_after_steps: 4 max_rows: 49152"),
      "learning_rate: 1 sgd {}");
  const std::vector<uint64_t> ids = IdsOf(77, 9);
  Gradients push;
  for (size_t i = 0; i < 5; ++i) push[ids[i]] = {1};
  // 5 rows, of which the bucket may have 3; and as many candidates, of 4.
  Step(table.get(), {push, push}, Rate(1));
  EXPECT_EQ(table->totals().admissions, 5);
  EXPECT_EQ(table->totals().evictions, 2);
  push.clear();
  for (size_t i = 5; i < 9; ++i) push[ids[i]] = {1};
  Step(table.get(), {push}, Rate(1));
  EXPECT_EQ(table->candidates(), 3);
  EXPECT_EQ(table->totals().evictions, 2);
  EXPECT_EQ(table->totals().expirations, 0);
  // The rows of step 1 expire at step 5, the candidates of step 2 at step 6.
  for (int step = 3; step <= 5; ++step) Step(table.get(), {}, Rate(1));
  EXPECT_EQ(table->rows(), 0);
  EXPECT_EQ(table->totals().expirations, 3);
  Step(table.get(), {}, Rate(1));
  EXPECT_EQ(table->candidates(), 0);
  EXPECT_EQ(table->totals().admissions, 5);
  EXPECT_EQ(table->totals().expirations, 3);
  EXPECT_EQ(table->totals().evictions, 2);
}

// The digest of one row by hand: id 1 and the value -1, little-endian; the
// digests of all other buckets are of nothing.
TEST(EmbeddingTableTest, DigestByHand) {
  auto parts = MakeParts(Declared(1, ""), "learning_rate: 1 sgd {}", 1);
  Step(parts[0].get(), {{{1, {1}}}}, Rate(1));
  const uint32_t bucket = BucketOfRow(1);
  const std::string row("\x01\0\0\0\0\0\0\0\0\0\x80\xbf", 12);
  EXPECT_EQ(parts[0]->BucketDigest(bucket), Sha256::Hex(row));
  EXPECT_EQ(parts[0]->BucketDigest(bucket + 1), Sha256::Hex(""));
  std::string all("t\0[*,1]\0", 8);
  for (uint32_t i = 0; i < kRowBuckets; ++i) {
    all += Sha256::Hex(i == bucket ? row : "");
  }
  EXPECT_EQ(DigestOf(parts), Sha256::Hex(all));
}

// Versions that are held while rows are made, changed, admitted, removed for
// their age and evicted, against copies of all the state.
TEST(EmbeddingTableTest, HeldVersionsAreAsTheyWere_B11) {
  const std::vector<uint64_t> ids = IdsOf(300, 40);
  const proto::EmbeddingTable declared =
      Declared(1, "min_count: 2 expire_after_steps: 8 max_rows: 163840");
  for (int seed = 0; seed < 10; ++seed) {
    const auto table = MakeEmbeddingTable(declared, "learning_rate: 1 sgd {}");
    std::mt19937 random(seed);
    using Rows = std::vector<std::tuple<uint64_t, uint64_t, uint32_t, float>>;
    const auto rows_at = [&table](EmbeddingTable::Kind kind,
                                  std::optional<GlobalStep> held) {
      Rows rows;
      for (const RowHeader* const row : table->Sorted(kind, 300, held)) {
        rows.emplace_back(row->id(), row->step(), row->count(),
                          kind == kRow ? row->floats()[0] : 0);
      }
      return rows;
    };
    struct Copy {
      Rows rows, candidates;
      std::vector<float> values;
    };
    std::multimap<GlobalStep, Copy> held;
    for (int step = 0; step < 80; ++step) {
      Gradients push;
      for (uint32_t n = random() % 8; n > 0; --n) {
        push[ids[random() % ids.size()]] = {static_cast<float>(random() % 9)};
      }
      Step(table.get(), {push}, Rate(1));
      if (random() % 3 == 0) {
        Copy copy{rows_at(kRow, std::nullopt),
                  rows_at(kCandidate, std::nullopt),
                  std::vector<float>(ids.size())};
        table->Read(ids, copy.values.data());
        held.emplace(table->Hold(), copy);
        // Held twice, so it takes two releases.
        if (random() % 2 == 0) held.emplace(table->Hold(), copy);
      }
      if (!held.empty() && random() % 3 == 0) {
        const auto gone = std::next(held.begin(), random() % held.size());
        table->Release(gone->first);
        held.erase(gone);
      }
      for (const auto& [version, copy] : held) {
        ASSERT_EQ(rows_at(kRow, version), copy.rows) << seed << " " << step;
        ASSERT_EQ(rows_at(kCandidate, version), copy.candidates);
        std::vector<float> values(ids.size());
        table->ReadHeld(version, ids, values.data());
        ASSERT_EQ(values, copy.values);
      }
    }
    for (const auto& [version, copy] : held) table->Release(version);
    EXPECT_EQ(table->held_bytes(), 0);
  }
}

// Rows and candidates that were written from a held version and loaded on
// another number of ps go on as if nothing had happened.
TEST(EmbeddingTableTest, LoadedOnAnotherNumberOfPs_B14) {
  const proto::EmbeddingTable declared = Declared(
      2,
      "min_count: 2 expire_after_steps: 12 max_rows: 32768 initializer { "
      "uniform { low: -1 high: 1 } }");
  const std::string optimizer = "learning_rate: 0.1 adagrad {}";
  std::mt19937 random(5);
  const auto random_push = [&random] {
    Gradients push;
    for (int n = 0; n < 300; ++n) {
      push[random() % 2000] = {static_cast<float>(random() % 9), 0.5f};
    }
    return push;
  };
  auto two = MakeParts(declared, optimizer, 2);
  for (int step = 0; step < 20; ++step) {
    const Gradients push = random_push();
    for (const auto& table : two) Step(table.get(), {push}, Rate(0.1f));
  }
  auto three = MakeParts(declared, optimizer, 3);
  for (const auto& to : three) {
    to->SetVersion(two[0]->version());
    for (const auto& from : two) {
      for (uint32_t b = to->buckets().begin; b < to->buckets().end; ++b) {
        if (!from->buckets().Contains(b)) continue;
        for (const EmbeddingTable::Kind kind : {kRow, kCandidate}) {
          for (const RowHeader* const row : from->Sorted(kind, b)) {
            EXPECT_TRUE(to->Load(kind, row->id(), row->step(), row->count(),
                                 {row->floats(), from->floats(kind)})
                            .ok());
          }
        }
      }
    }
  }
  EXPECT_EQ(StateOf(three), StateOf(two));
  for (int step = 0; step < 20; ++step) {
    const Gradients push = random_push();
    for (auto* const parts : {&two, &three}) {
      for (const auto& table : *parts) Step(table.get(), {push}, Rate(0.1f));
    }
  }
  EXPECT_EQ(StateOf(three), StateOf(two));
  EXPECT_EQ(DigestOf(three), DigestOf(two));
}

TEST(EmbeddingTableTest, WhatCannotBeLoaded) {
  EmbeddingTable::Options options;
  options.buckets = {1, kRowBuckets};
  const auto table = MakeEmbeddingTable(Declared(2, ""),
                                        "learning_rate: 1 adagrad {}", options);
  const std::vector<float> floats(4);
  const auto error = [&](uint64_t id, uint64_t step, uint32_t count,
                         size_t size) {
    const absl::Status status =
        table->Load(kRow, id, step, count, absl::MakeSpan(floats).first(size));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_TRUE(table->Load(kRow, 1, 1, 1, floats).ok());
  EXPECT_THAT(error(1, 1, 1, 4), HasSubstr("table \"t\": row 1 occurs twice"));
  EXPECT_THAT(error(2, 1, 1, 3), HasSubstr("has 3 float32, must have 4"));
  EXPECT_THAT(error(0, 1, 1, 4), HasSubstr("is in bucket 0, which is not on"));
  EXPECT_THAT(error(2, uint64_t{1} << 40, 1, 4), HasSubstr("out of range"));
  EXPECT_THAT(error(2, 1, 1 << 24, 4), HasSubstr("out of range"));
  EXPECT_EQ(table->rows(), 1);
}

TEST(EmbeddingTableTest, AFullTableSaysSo_B13) {
  EmbeddingTable::Options options;
  options.max_bytes = 10000;
  const auto table =
      MakeEmbeddingTable(Declared(2, ""), "learning_rate: 1 sgd {}", options);
  // 16 + 8 bytes a row, and 10 for its index.
  EXPECT_TRUE(table->CheckRoom(294).ok());
  const absl::Status status = table->CheckRoom(295);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("table \"t\" is full: it has 0 rows in 0 bytes, and 295 "
                "more of 34 bytes do not fit in its 10000"));
  EXPECT_TRUE(table->CheckRoom(193, 3400).ok());
  EXPECT_FALSE(table->CheckRoom(195, 3400).ok()) << "others have a third";
  Step(table.get(), {{{1, {1, 1}}, {2, {1, 1}}}}, Rate(1));
  EXPECT_EQ(table->CountAbsent(std::vector<uint64_t>{1, 2, 3, 4, 5}), 3);
  EXPECT_FALSE(table->CheckRoom(294).ok());
}

TEST(EmbeddingTableTest, ATableThatMayEvictHasItsRoomAtTheBeginning) {
  const proto::EmbeddingTable declared = Declared(2, "max_rows: 16384");
  const auto optimizer = ParseText<proto::Optimizer>("learning_rate: 1 sgd {}");
  EmbeddingTable::Options options;
  options.max_bytes = 16384 * 34 - 1;
  const absl::Status status =
      EmbeddingTable::Create(declared, optimizer, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("table \"t\": max_rows 16384 means up to 16384 rows on "
                        "this ps, of 557056 bytes in all"));
  options.max_bytes += 1;
  const absl::StatusOr<std::unique_ptr<EmbeddingTable>> table =
      EmbeddingTable::Create(declared, optimizer, options);
  ASSERT_TRUE(table.ok());
  EXPECT_TRUE((*table)->CheckRoom(1'000'000'000).ok());
}

TEST(EmbeddingTableTest, DeclarationsThatAreRefused) {
  const auto error = [](proto::EmbeddingTable declared) {
    const absl::Status status =
        EmbeddingTable::Create(
            declared, ParseText<proto::Optimizer>("learning_rate: 1 sgd {}"),
            {})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("table \"t\""));
    return std::string(status.message());
  };
  EXPECT_THAT(error(Declared(0, "")),
              HasSubstr("row_length: must be at least"));
  EXPECT_THAT(error(Declared(1, "max_rows: 16383")), HasSubstr("max_rows"));
  EXPECT_THAT(error(Declared(1, "initializer { he {} }")),
              HasSubstr("depend on the number of rows"));
  proto::EmbeddingTable table = Declared(1, "");
  table.clear_max_rows_per_push();
  EXPECT_THAT(error(table), HasSubstr("max_rows_per_push"));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/embedding_table.h"

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/validate.h"
#include "common/tensor/row_encoding.h"
#include "glog/logging.h"

namespace holdfast {

namespace {

// Unlike a float, it may have any alignment and alias anything.
using UnalignedFloat = float __attribute__((aligned(1), may_alias));

// The number of rows of a step or a read from which helpers are called
// (ps_server/shard/apply_step.cc gives the reason).
constexpr size_t kWorthHelpers = 4096;

// The number of rows that a thread reads at a time: about 50 us of work.
constexpr size_t kReadAtATime = 1024;

// The maximum number of bytes of an index for each of its rows: a line of 64
// for 10 rows, and half as much again just after it has grown.
constexpr int64_t kIndexBytesPerRow = 10;

// Up to this many changed ids are kept, however small the table is.
constexpr int64_t kManyChanges = 4096;

}  // namespace

// The gradients of a step, sorted by stripe; within a stripe by push, in the
// order of S; within a push by id.
class EmbeddingTable::SortedItems {
 public:
  explicit SortedItems(const RowSum& sum)
      : num_terms_(sum.terms.size()), begins_(kStripes * num_terms_ + 1, 0) {
    for (const RowTerm& term : sum.terms) {
      for (const ReceivedRows* const part : term.parts) {
        size_ += part->ids().size();
      }
    }
    // Arrays, because a vector would clear its memory first.
    items_.reset(new Item[size_]);
    const std::unique_ptr<uint8_t[]> stripes(new uint8_t[size_]);
    static_assert(kStripes <= 256);
    size_t row = 0;
    for (size_t t = 0; t < num_terms_; ++t) {
      for (const ReceivedRows* const part : sum.terms[t].parts) {
        for (const uint64_t id : part->ids()) {
          const uint32_t stripe = StripeOfBucket(BucketOfRow(id));
          stripes[row++] = static_cast<uint8_t>(stripe);
          ++begins_[stripe * num_terms_ + t];
        }
      }
    }
    size_t begin = 0;
    for (size_t& count : begins_) begin += std::exchange(count, begin);
    std::vector<size_t> next = begins_;
    row = 0;
    for (size_t t = 0; t < num_terms_; ++t) {
      const RowTerm& term = sum.terms[t];
      for (const ReceivedRows* const part : term.parts) {
        const absl::Span<const uint64_t> ids = part->ids();
        for (size_t i = 0; i < ids.size(); ++i) {
          items_[next[stripes[row++] * num_terms_ + t]++] = {
              ids[i], part->gradient(i), term.weight};
        }
      }
    }
  }

  size_t size() const { return size_; }
  bool Has(uint32_t stripe) const {
    return BeginOf(stripe) < BeginOf(stripe + 1);
  }
  absl::Span<Item> Of(uint32_t stripe) {
    return {items_.get() + BeginOf(stripe),
            BeginOf(stripe + 1) - BeginOf(stripe)};
  }
  // The indices in Of(stripe) at which the items of each push begin.
  std::vector<size_t> RunsOf(uint32_t stripe) const {
    std::vector<size_t> runs(begins_.begin() + stripe * num_terms_,
                             begins_.begin() + (stripe + 1) * num_terms_);
    for (size_t& begin : runs) begin -= BeginOf(stripe);
    return runs;
  }
  size_t num_terms() const { return num_terms_; }

 private:
  size_t BeginOf(uint32_t stripe) const { return begins_[stripe * num_terms_]; }

  const size_t num_terms_;
  // Indexed by stripe and push; the end follows.
  std::vector<size_t> begins_;
  size_t size_ = 0;
  std::unique_ptr<Item[]> items_;
};

// Works on rows at one step, on one stripe after the other. Keeps its memory
// from stripe to stripe, because threads would wait for the lock of the
// process's heap.
class EmbeddingTable::StripeUpdate {
 public:
  StripeUpdate(EmbeddingTable* table, uint64_t version, const RowSum& sum,
               const proto::StepScalars& scalars,
               const ApplyRowsOptions& options)
      : table_(*table),
        version_(version),
        sum_(sum),
        scalars_(scalars),
        options_(options),
        length_(table->declared_.row_length()),
        at_a_time_(RowsAtATime(table->declared_.row_length())),
        gradients_(at_a_time_ * length_) {
    pending_.reserve(at_a_time_);
  }

  void Run(uint32_t stripe, SortedItems* items) {
    stripe_ = stripe;
    touched_.reset();
    Update(Merge(stripe, items));
    Sweep(&table_.rows_);
    Sweep(&table_.candidates_);
    if (table_.declared_.has_max_rows()) {
      for (uint32_t i = 0; i < kStripeBuckets; ++i) {
        if (!touched_[i]) continue;
        const uint32_t bucket = stripe_ * kStripeBuckets + i;
        KeepCap(bucket, &table_.rows_);
        KeepCap(bucket, &table_.candidates_);
      }
    }
  }

  // The totals of all stripes that it has worked on.
  const RowTotals& totals() const { return totals_; }

 private:
  static bool ById(const Item& a, const Item& b) { return a.id < b.id; }

  // Merges all items into one run, in which items of the same id are in the
  // order of S.
  absl::Span<const Item> Merge(uint32_t stripe, SortedItems* sorted) {
    const absl::Span<Item> items = sorted->Of(stripe);
    if (sorted->num_terms() <= 1) return items;
    std::vector<size_t> runs = sorted->RunsOf(stripe);
    merged_.resize(items.size());
    Item* from = items.data();
    Item* to = merged_.data();
    while (runs.size() > 1) {
      std::vector<size_t> longer;
      for (size_t i = 0; i < runs.size(); i += 2) {
        const auto begin_of = [&](size_t run) {
          return run < runs.size() ? runs[run] : items.size();
        };
        std::merge(from + begin_of(i), from + begin_of(i + 1),
                   from + begin_of(i + 1), from + begin_of(i + 2),
                   to + begin_of(i), ById);
        longer.push_back(begin_of(i));
      }
      std::swap(from, to);
      runs = std::move(longer);
    }
    return {from, items.size()};
  }

  void Update(absl::Span<const Item> items) {
    ids_.clear();
    begins_.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0 && items[i].id == items[i - 1].id) continue;
      ids_.push_back(items[i].id);
      begins_.push_back(i);
    }
    begins_.push_back(items.size());
    table_.rows_.store.FindMany(
        ids_, sizeof(RowHeader) + table_.rule_->floats() * sizeof(float),
        [&](size_t i, RowHeader* row) {
          // Gradients are in the order of ids, across all stripes.
          constexpr size_t kAhead = 8;
          const size_t ahead = std::min(begins_[i] + kAhead, items.size() - 1);
          const auto* const next =
              static_cast<const char*>(items[ahead].gradient);
          for (size_t at = 0; at < length_ * sizeof(float); at += 64) {
            __builtin_prefetch(next + at);
          }
          Touch(row, items.subspan(begins_[i], begins_[i + 1] - begins_[i]));
        });
    Flush();
  }

  // Applies `items`, which are those of one id, to `row`, the id's row. If the
  // id has none, `row` is null, and `items` are applied to a new row if the id
  // is admitted.
  void Touch(RowHeader* row, absl::Span<const Item> items) {
    const uint64_t id = items[0].id;
    const uint64_t hash = HashRowId(id);
    touched_[BucketOfHash(hash) % kStripeBuckets] = true;
    if (row != nullptr) {
      table_.rows_.store.BeforeChange(hash, row);
      LogTouch(ChangeLog::kRow, *row);
      row->Set(version_, row->count() + items.size());
    } else {
      row = Admit(hash, id, items.size());
      if (row == nullptr) return;
    }
    AddUp(items, &gradients_[pending_.size() * length_]);
    pending_.push_back(row->floats());
    if (pending_.size() == at_a_time_) Flush();
  }

  // Makes the row of an id that has none; returns null if it is not admitted.
  RowHeader* Admit(uint64_t hash, uint64_t id, uint64_t pushes) {
    const uint32_t min_count = table_.declared_.min_count();
    if (min_count > 1) {
      Part& candidates = table_.candidates_;
      RowStripe& stripe = candidates.store.stripe(stripe_);
      RowHeader* candidate = stripe.Find(hash, id);
      if (candidate != nullptr) pushes += candidate->count();
      if (pushes < min_count) {
        if (candidate == nullptr) {
          candidate = stripe.Insert(hash, id);
          table_.changes_.Add(ChangeLog::kCandidate, stripe_, id);
        } else {
          candidates.store.BeforeChange(hash, candidate);
          LogTouch(ChangeLog::kCandidate, *candidate);
        }
        candidate->Set(version_, pushes);
        return nullptr;
      }
      if (candidate != nullptr) Remove(candidate, &candidates);
    }
    RowHeader* const row = table_.rows_.store.stripe(stripe_).Insert(hash, id);
    table_.changes_.Add(ChangeLog::kRow, stripe_, id);
    row->Set(version_, pushes);
    table_.initializer_.Fill(id, absl::MakeSpan(row->floats(), length_));
    table_.rule_->InitializeSlots(row->floats());
    ++totals_.admissions;
    return row;
  }

  // Adds up a row's gradients as Optimizer::Apply does for a variable's
  // elements, in which pushes that do not have the row would count as 0.
  void AddUp(absl::Span<const Item> items, float* sum) const {
    // The only number that leaves every other unchanged when it is added.
    std::fill_n(sum, length_, -0.0f);
    for (const Item& item : items) {
      const auto* const gradient =
          static_cast<const UnalignedFloat*>(item.gradient);
      const float weight = item.weight;
      if (options_.clip_value.has_value()) {
        const float clip = *options_.clip_value;
        for (size_t i = 0; i < length_; ++i) {
          const float g = gradient[i];
          const float below = g > clip ? clip : g;
          sum[i] += weight * (below < -clip ? -clip : below);
        }
      } else {
        for (size_t i = 0; i < length_; ++i) sum[i] += weight * gradient[i];
      }
    }
    if (items.size() < sum_.terms.size()) {
      for (size_t i = 0; i < length_; ++i) sum[i] += 0.0f;
    }
    if (sum_.divisor != 1) {
      for (size_t i = 0; i < length_; ++i) sum[i] /= sum_.divisor;
    }
  }

  void Flush() {
    if (pending_.empty()) return;
    table_.rule_->Apply(options_.simd, scalars_, pending_, gradients_.data());
    pending_.clear();
  }

  // Removes the expired rows of the buckets whose turn it is.
  void Sweep(Part* part) {
    if (!table_.declared_.has_expire_after_steps()) return;
    const uint64_t expire_after = table_.declared_.expire_after_steps();
    const BucketRange& all = table_.buckets();
    const uint32_t begin = std::max(all.begin, stripe_ * kStripeBuckets);
    const uint32_t end = std::min(all.end, (stripe_ + 1) * kStripeBuckets);
    for (uint32_t bucket = table_.FirstSwept(version_, begin); bucket < end;
         bucket += table_.sweep_period()) {
      std::vector<const RowHeader*> expired;
      part->store.stripe(stripe_).ForEach(bucket, [&](const RowHeader* row) {
        if (version_ - row->step() >= expire_after) expired.push_back(row);
      });
      for (const RowHeader* const row : expired) Remove(row, part);
      if (part == &table_.rows_) totals_.expirations += expired.size();
    }
  }

  // Removes rows of a bucket until it has no more than it may have.
  void KeepCap(uint32_t bucket, Part* part) {
    const uint32_t cap = table_.cap();
    const BucketStore& store = part->store;
    if (store.RowsOf(bucket) <= cap) return;
    std::vector<Dated>& oldest = part->oldest[stripe_][bucket];
    while (store.RowsOf(bucket) > cap) {
      if (oldest.empty()) {
        store.stripe(stripe_).ForEach(bucket, [&](const RowHeader* row) {
          oldest.emplace_back(row->step(), row->id());
        });
        const size_t kept = oldest.size() - cap + cap / 16;
        if (kept < oldest.size()) {
          std::nth_element(oldest.begin(), oldest.begin() + kept, oldest.end());
          oldest.resize(kept);
        }
        std::sort(oldest.rbegin(), oldest.rend());
        oldest.shrink_to_fit();
      }
      const auto [step, id] = oldest.back();
      oldest.pop_back();
      const RowHeader* const row =
          store.stripe(stripe_).Find(HashRowId(id), id);
      if (row == nullptr || row->step() != step) continue;
      Remove(row, part);
      if (part == &table_.rows_) ++totals_.evictions;
    }
  }

  // Must be called before the step is set.
  void LogTouch(ChangeLog::Kind kind, const RowHeader& row) {
    if (table_.changes_.IsFirstTouch(row.step())) {
      table_.changes_.Add(kind, stripe_, row.id());
    }
  }

  void Remove(const RowHeader* row, Part* part) {
    const uint64_t id = row->id();
    const uint64_t hash = HashRowId(id);
    part->store.BeforeChange(hash, row);
    part->store.stripe(stripe_).Erase(hash, id);
    table_.changes_.Add(part == &table_.rows_ ? ChangeLog::kRemovedRow
                                              : ChangeLog::kRemovedCandidate,
                        stripe_, id);
  }

  EmbeddingTable& table_;
  const uint64_t version_;
  const RowSum& sum_;
  const proto::StepScalars& scalars_;
  const ApplyRowsOptions& options_;
  const size_t length_;
  const size_t at_a_time_;
  // The stripe that is being worked on.
  uint32_t stripe_ = 0;
  std::vector<Item> merged_;
  std::vector<uint64_t> ids_;
  // Indexed by id; the end follows.
  std::vector<size_t> begins_;
  // Rows whose gradients are summed but not applied yet, and these gradients.
  std::vector<float*> pending_;
  std::vector<float> gradients_;
  // Buckets of the stripe with rows that the step touches.
  std::bitset<kStripeBuckets> touched_;
  RowTotals totals_;
};

absl::StatusOr<std::unique_ptr<EmbeddingTable>> EmbeddingTable::Create(
    const proto::EmbeddingTable& declared, const proto::Optimizer& optimizer,
    const Options& options) {
  if (absl::Status valid = ValidateMessage(declared); !valid.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", declared.name(), "\": ", valid.message()));
  }
  if (!IsRowPush(declared.push()) || !IsRowPull(declared.pull())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", declared.name(), "\": gradients of rows are pushed as ",
        "EXACT, FLOAT16, BFLOAT16 or INT8, and values pulled as EXACT, FLOAT16 "
        "or BFLOAT16"));
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto initializer,
      RowInitializer::Create(declared.initializer(), declared.row_length(),
                             declared.name(), options.seed));
  HOLDFAST_ASSIGN_OR_RETURN(auto rule, MakeRowRule(declared, optimizer));
  auto table = std::unique_ptr<EmbeddingTable>(new EmbeddingTable(
      declared, std::move(initializer), std::move(rule), options));
  if (table->MaxBytes() > options.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "table \"", declared.name(), "\": max_rows ", declared.max_rows(),
        " means up to ", table->MaxRows(), " rows on this ps, of ",
        table->MaxBytes(), " bytes in all, but the table may have only ",
        options.max_bytes, ": give the ps more memory, or declare fewer rows"));
  }
  return table;
}

EmbeddingTable::EmbeddingTable(const proto::EmbeddingTable& declared,
                               RowInitializer initializer,
                               std::unique_ptr<RowRule> rule,
                               const Options& options)
    : rule_(std::move(rule)),
      shared_(std::make_shared<SharedRows>(declared, rule_->floats(),
                                           options.buckets)),
      declared_(shared_->declared),
      initializer_(std::move(initializer)),
      max_bytes_(options.max_bytes),
      rows_{shared_->rows, {}},
      candidates_{shared_->candidates, {}} {}

uint32_t EmbeddingTable::cap() const {
  const uint64_t part = declared_.max_rows() / kRowBuckets;
  return static_cast<uint32_t>(
      std::min<uint64_t>(part, std::numeric_limits<uint32_t>::max()));
}

int64_t EmbeddingTable::MaxRows() const {
  return declared_.has_max_rows() ? int64_t{cap()} * buckets().size() : 0;
}

int64_t EmbeddingTable::MaxBytes() const { return MaxRows() * BytesPerRow(); }

uint32_t EmbeddingTable::sweep_period() const {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(declared_.expire_after_steps() / 4, 1, kRowBuckets));
}

uint32_t EmbeddingTable::FirstSwept(uint64_t version, uint32_t begin) const {
  const uint32_t period = sweep_period();
  const auto turn = static_cast<uint32_t>(version % period);
  return begin + (turn + period - begin % period) % period;
}

int64_t EmbeddingTable::BytesPerRow() const {
  int64_t bytes = static_cast<int64_t>(RowSlab::RowBytes(rule_->floats())) +
                  kIndexBytesPerRow;
  if (declared_.min_count() > 1) {
    bytes += static_cast<int64_t>(RowSlab::RowBytes(0)) + kIndexBytesPerRow;
  }
  return bytes;
}

int64_t EmbeddingTable::Read(absl::Span<const uint64_t> ids, float* values,
                             ThreadPool* threads) const {
  const size_t length = declared_.row_length();
  // Returns the number of rows that exist. Those that do not are counted,
  // because they cost more than the counting anyway.
  const auto work = [&](size_t piece) {
    size_t absent = 0;
    const absl::Span<const uint64_t> some =
        ids.subspan(piece * kReadAtATime, kReadAtATime);
    float* to = values + piece * kReadAtATime * length;
    rows_.store.FindMany(
        some, sizeof(RowHeader) + length * sizeof(float),
        [&](size_t i, const RowHeader* row) {
          if (row != nullptr) {
            std::memcpy(to, row->floats(), length * sizeof(float));
          } else {
            ++absent;
            initializer_.Fill(some[i], absl::MakeSpan(to, length));
          }
          to += length;
        });
    return static_cast<int64_t>(some.size() - absent);
  };
  const size_t pieces = (ids.size() + kReadAtATime - 1) / kReadAtATime;
  int64_t found = 0;
  if (threads != nullptr && ids.size() >= kWorthHelpers) {
    std::vector<int64_t> found_in(pieces);
    threads->ParallelFor(pieces, [&](size_t i) { found_in[i] = work(i); });
    for (const int64_t in_piece : found_in) found += in_piece;
  } else {
    for (size_t i = 0; i < pieces; ++i) found += work(i);
  }
  return found;
}

int64_t EmbeddingTable::ReadHeld(GlobalStep version,
                                 absl::Span<const uint64_t> ids,
                                 float* values) const {
  const size_t length = declared_.row_length();
  int64_t found = 0;
  for (const uint64_t id : ids) {
    const RowHeader* const row = rows_.store.FindHeld(version.value(), id);
    if (row != nullptr) {
      std::memcpy(values, row->floats(), length * sizeof(float));
      ++found;
    } else {
      initializer_.Fill(id, absl::MakeSpan(values, length));
    }
    values += length;
  }
  return found;
}

int64_t EmbeddingTable::CountAbsent(absl::Span<const uint64_t> ids) const {
  int64_t absent = 0;
  rows_.store.FindMany(
      ids, sizeof(RowHeader),
      [&](size_t, const RowHeader* row) { absent += row == nullptr; });
  return absent;
}

absl::Status EmbeddingTable::CheckRoom(int64_t more_rows,
                                       int64_t others_bytes) const {
  // Create has checked that all permitted rows fit.
  if (declared_.has_max_rows()) return absl::OkStatus();
  const int64_t grown =
      std::max<int64_t>(0, more_rows - rows_.store.free_rows());
  const int64_t per_row = BytesPerRow();
  if (grown <= (max_bytes_ - others_bytes - bytes()) / per_row) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "table \"", declared_.name(), "\" is full: it has ", rows(), " rows in ",
      bytes(), " bytes, and ", more_rows, " more of ", per_row,
      " bytes do not fit in its ", max_bytes_ - others_bytes,
      ": give the ps more memory (--memory_limit), or declare max_rows or "
      "expire_after_steps"));
}

void EmbeddingTable::ApplyStep(const RowSum& sum,
                               const proto::StepScalars& scalars,
                               const ApplyRowsOptions& options) {
  const uint64_t version = version_.next().value();
  CHECK_LE(version, RowHeader::kMaxStep);
  ReleaseUnneeded();
  SortedItems items(sum);
  std::vector<uint32_t> stripes;
  for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
    const uint32_t begin = std::max(buckets().begin, stripe * kStripeBuckets);
    const uint32_t end = std::min(buckets().end, (stripe + 1) * kStripeBuckets);
    const bool swept = declared_.has_expire_after_steps() && begin < end &&
                       FirstSwept(version, begin) < end;
    if (swept || items.Has(stripe)) stripes.push_back(stripe);
  }
  const bool helped =
      options.threads != nullptr && items.size() >= kWorthHelpers;
  std::vector<RowTotals> totals(helped ? options.threads->threads() : 1);
  std::atomic<size_t> next{0};
  const auto work = [&](size_t thread) {
    StripeUpdate update(this, version, sum, scalars, options);
    for (size_t i; (i = next.fetch_add(1)) < stripes.size();) {
      const CopyMutex::Changing lock(&shared_->stripes[stripes[i]]);
      update.Run(stripes[i], &items);
    }
    totals[thread] = update.totals();
  };
  if (helped) {
    options.threads->ParallelFor(totals.size(), work);
  } else {
    work(0);
  }
  for (const RowTotals& more : totals) {
    totals_.admissions += more.admissions;
    totals_.expirations += more.expirations;
    totals_.evictions += more.evictions;
  }
  version_ = version_.next();
  // A checkpoint of so many changes is hardly smaller than one of all rows.
  const int64_t changed = changes_.num_ids();
  if (changed > kManyChanges && changed > (rows() + candidates()) / 4) {
    changes_.Pause();
  }
}

GlobalStep EmbeddingTable::Hold() {
  if (++holds_[version_] == 1) {
    const CopyMutex::Changing lock(&shared_->holds);
    rows_.store.Hold(version_.value());
    candidates_.store.Hold(version_.value());
  }
  return version_;
}

void EmbeddingTable::Release(GlobalStep version) {
  const auto held = holds_.find(version);
  CHECK(held != holds_.end());
  if (--held->second > 0) return;
  holds_.erase(held);
  const CopyMutex::Changing lock(&shared_->holds);
  rows_.store.Release(version.value());
  candidates_.store.Release(version.value());
}

TableSnapshot EmbeddingTable::Snapshot(std::optional<GlobalStep> since,
                                       bool changes) {
  ReleaseUnneeded();
  TableSnapshot::Contents contents;
  auto changed = changes_.Since(since.value_or(version_), version_);
  if (since.has_value() && changed.has_value()) {
    contents.since = since;
    contents.changed = *std::move(changed);
    contents.changes = changes;
  }
  if (contents.changes) {
    for (uint32_t b = buckets().begin; b < buckets().end; ++b) {
      contents.num_rows.push_back(rows_.store.RowsOf(b));
      contents.num_candidates.push_back(candidates_.store.RowsOf(b));
    }
  }
  const uint64_t bytes =
      rows() * (sizeof(RowHeader) + rule_->floats() * sizeof(float)) +
      candidates() * sizeof(RowHeader);
  return TableSnapshot(shared_, Hold(), bytes, std::move(contents));
}

void EmbeddingTable::ReleaseUnneeded() {
  std::vector<GlobalStep> unneeded;
  {
    const absl::MutexLock lock(&shared_->unneeded_mutex);
    unneeded.swap(shared_->unneeded);
  }
  for (const GlobalStep version : unneeded) Release(version);
}

std::vector<const RowHeader*> EmbeddingTable::Sorted(
    Kind kind, uint32_t bucket, std::optional<GlobalStep> held) const {
  const BucketStore& store = part(kind).store;
  std::vector<const RowHeader*> rows;
  const auto add = [&rows](const RowHeader* row) { rows.push_back(row); };
  if (held.has_value()) {
    store.ForEachHeld(held->value(), bucket, add);
  } else {
    store.stripe(StripeOfBucket(bucket)).ForEach(bucket, add);
  }
  std::sort(
      rows.begin(), rows.end(),
      [](const RowHeader* a, const RowHeader* b) { return a->id() < b->id(); });
  return rows;
}

absl::Status EmbeddingTable::Load(Kind kind, uint64_t id, uint64_t step,
                                  uint32_t count,
                                  absl::Span<const float> floats) {
  const auto error = [&](auto&&... what) {
    return absl::DataLossError(absl::StrCat("table \"", declared_.name(),
                                            "\": row ", id, " ", what...));
  };
  const uint64_t hash = HashRowId(id);
  if (!buckets().Contains(BucketOfHash(hash))) {
    return error("is in bucket ", BucketOfHash(hash),
                 ", which is not on this ps");
  }
  if (floats.size() != this->floats(kind)) {
    return error("has ", floats.size(), " float32, must have ",
                 this->floats(kind));
  }
  if (step > RowHeader::kMaxStep || count > RowHeader::kMaxCount) {
    return error("has step ", step, " and count ", count,
                 ", which are out of range");
  }
  RowStripe& stripe =
      (kind == Kind::kRow ? rows_ : candidates_).store.StripeOf(hash);
  if (stripe.Find(hash, id) != nullptr ||
      (kind == Kind::kCandidate &&
       rows_.store.StripeOf(hash).Find(hash, id) != nullptr)) {
    return error("occurs twice");
  }
  RowHeader* const row = stripe.Insert(hash, id);
  row->Set(step, count);
  std::copy(floats.begin(), floats.end(), row->floats());
  return absl::OkStatus();
}

absl::Status EmbeddingTable::LoadValues(uint64_t id,
                                        absl::Span<const float> values) {
  std::vector<float> floats(values.begin(), values.end());
  if (values.size() == declared_.row_length()) {
    floats.resize(rule_->floats());
    rule_->InitializeSlots(floats.data());
  }
  return Load(Kind::kRow, id, 0, 0, floats);
}

std::string EmbeddingTable::BucketDigest(uint32_t bucket) const {
  RowsDigest digest;
  for (const RowHeader* const row : Sorted(Kind::kRow, bucket)) {
    digest.Add(row->id(),
               absl::MakeConstSpan(row->floats(), declared_.row_length()));
  }
  return digest.HexDigest();
}

}  // namespace holdfast

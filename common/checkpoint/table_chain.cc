// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/table_chain.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

absl::Status Ignore(uint64_t, bool) { return absl::OkStatus(); }

BucketRange Intersection(const BucketRange& a, const BucketRange& b) {
  const uint32_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

TableChain::TableChain(std::vector<Link> links)
    : links_(std::move(links)), bytes_(links_.size()) {}

absl::Status TableChain::Check() const {
  for (const Link& link : links_) {
    if (link.table->floats_per_row() != floats_per_row()) {
      const RowExtent& odd = link.table->extents().front();
      return odd.Damaged(
          odd.buckets().begin,
          absl::StrCat("rows have ", odd.floats_per_row(),
                       " float32; in a later checkpoint they have ",
                       floats_per_row()));
    }
  }
  for (const RowExtent& extent : own().extents()) {
    if (!extent.is_delta()) continue;
    const BucketRange& buckets = extent.buckets();
    for (uint32_t bucket = buckets.begin; bucket < buckets.end; ++bucket) {
      const size_t base = BaseOf(bucket);
      if (base == links_.size()) {
        return extent.Damaged(bucket,
                              "no checkpoint of its chain has all rows");
      }
      uint64_t rows = 0;
      uint64_t candidates = 0;
      for (size_t i = 0; i <= base; ++i) {
        const StoredBucket contents =
            links_[i].table->ExtentOf(bucket).Contents(bucket);
        rows += contents.rows;
        candidates += contents.candidates;
      }
      const StoredBucket contents = extent.Contents(bucket);
      if (contents.all_rows > rows || contents.all_candidates > candidates) {
        return extent.Damaged(
            bucket, absl::StrCat("should have ", contents.all_rows,
                                 " rows and ", contents.all_candidates,
                                 " candidates, more than its chain has"));
      }
    }
  }
  return absl::OkStatus();
}

StoredCounts TableChain::Count(BucketRange buckets) const {
  StoredCounts counts;
  for (const RowExtent& extent : own().extents()) {
    const BucketRange part = Intersection(extent.buckets(), buckets);
    if (part.size() == 0) continue;
    counts.bytes += extent.Bytes(part);
    for (uint32_t bucket = part.begin; bucket < part.end; ++bucket) {
      const StoredBucket contents = extent.Contents(bucket);
      counts.rows += contents.all_rows;
      counts.candidates += contents.all_candidates;
      const size_t base = extent.is_delta() ? BaseOf(bucket) : 0;
      for (size_t i = 1; i <= base; ++i) {
        counts.bytes +=
            links_[i].table->ExtentOf(bucket).Bytes({bucket, bucket + 1});
      }
    }
  }
  return counts;
}

absl::Status TableChain::Read(BucketRange buckets,
                              CheckpointReader::VisitRow visit) {
  for (const RowExtent& extent : own().extents()) {
    const BucketRange part = Intersection(extent.buckets(), buckets);
    absl::Status read;
    if (!extent.is_delta()) {
      read = part.size() == 0
                 ? absl::OkStatus()
                 : extent.Read(part, links_[0].block, visit, Ignore);
      if (!read.ok()) return read;
      continue;
    }
    for (uint32_t bucket = part.begin; bucket < part.end; ++bucket) {
      read = ReadMerged(bucket, visit);
      if (!read.ok()) return read;
    }
  }
  return absl::OkStatus();
}

size_t TableChain::BaseOf(uint32_t bucket) const {
  size_t i = 0;
  while (i < links_.size() && links_[i].table->ExtentOf(bucket).is_delta()) {
    ++i;
  }
  return i;
}

absl::Status TableChain::ReadNewer(uint32_t bucket, size_t count,
                                   RowExtent::VisitRemoved visit_removed) {
  changes_.clear();
  for (size_t i = 0; i < count; ++i) {
    absl::Status read = links_[i].table->ExtentOf(bucket).ReadBucket(
        bucket, links_[i].block, &bytes_[i],
        [&](const StoredRow& row) {
          changes_.push_back(
              {row.id, i,
               row.is_candidate ? Change::Kind::kCandidate : Change::Kind::kRow,
               row});
          return absl::OkStatus();
        },
        [&](uint64_t id, bool as_candidate) {
          changes_.push_back({id, i, Change::Kind::kRemoved, {}});
          return visit_removed(id, as_candidate);
        });
    if (!read.ok()) return read;
  }
  // Within one link, an id's row or candidate comes before its removal.
  std::sort(
      changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
        return std::tie(a.id, a.link, a.kind) < std::tie(b.id, b.link, b.kind);
      });
  const auto both = std::adjacent_find(
      changes_.begin(), changes_.end(), [](const Change& a, const Change& b) {
        return a.id == b.id && a.link == b.link &&
               b.kind == Change::Kind::kCandidate;
      });
  if (both != changes_.end()) {
    return links_[both->link].table->ExtentOf(bucket).Damaged(
        bucket, absl::StrCat("row ", both->id, " is also a candidate"));
  }
  changes_.erase(std::unique(changes_.begin(), changes_.end(),
                             [](const Change& a, const Change& b) {
                               return a.id == b.id;
                             }),
                 changes_.end());
  return absl::OkStatus();
}

absl::Status TableChain::Merge(uint32_t bucket, size_t count,
                               CheckpointReader::VisitRow visit_row,
                               RowExtent::VisitRemoved visit_removed) {
  const size_t base = BaseOf(bucket);
  absl::Status status = ReadNewer(bucket, std::min(base, count), visit_removed);
  if (!status.ok()) return status;

  auto kind = Change::Kind::kRow;
  auto next = changes_.begin();
  // Visits changes of the kind with ids below `end`.
  const auto visit_changes = [&](const std::optional<uint64_t>& end) {
    for (; next != changes_.end() && !(end.has_value() && next->id >= *end);
         ++next) {
      if (next->kind != kind) continue;
      absl::Status visited = visit_row(next->row);
      if (absl::IsDataLoss(visited)) {
        visited = links_[next->link].table->ExtentOf(bucket).Damaged(
            bucket, visited.message());
      }
      if (!visited.ok()) return visited;
    }
    return absl::OkStatus();
  };
  const auto begin_candidates = [&] {
    if (kind == Change::Kind::kCandidate) return absl::OkStatus();
    absl::Status visited = visit_changes(std::nullopt);
    kind = Change::Kind::kCandidate;
    next = changes_.begin();
    return visited;
  };
  if (base < count) {
    // The base's rows are visited in place, without copying. An error of
    // another link must not be reported under the base's name.
    absl::Status of_changes;
    status = links_[base].table->ExtentOf(bucket).Read(
        {bucket, bucket + 1}, links_[base].block,
        [&](const StoredRow& row) {
          if (row.is_candidate) of_changes.Update(begin_candidates());
          if (of_changes.ok()) of_changes.Update(visit_changes(row.id));
          if (!of_changes.ok()) return absl::CancelledError();
          const bool replaced = next != changes_.end() && next->id == row.id;
          return replaced ? absl::OkStatus() : visit_row(row);
        },
        visit_removed);
    if (!of_changes.ok()) return of_changes;
    if (!status.ok()) return status;
  }
  status = begin_candidates();
  return status.ok() ? visit_changes(std::nullopt) : status;
}

absl::Status TableChain::ReadMerged(uint32_t bucket,
                                    CheckpointReader::VisitRow visit) {
  uint64_t rows = 0;
  uint64_t candidates = 0;
  absl::Status read = Merge(
      bucket, links_.size(),
      [&](const StoredRow& row) {
        ++(row.is_candidate ? candidates : rows);
        return visit(row);
      },
      Ignore);
  if (!read.ok()) return read;
  const RowExtent& extent = own().ExtentOf(bucket);
  const StoredBucket contents = extent.Contents(bucket);
  if (rows == contents.all_rows && candidates == contents.all_candidates) {
    return absl::OkStatus();
  }
  return extent.Damaged(
      bucket,
      absl::StrCat("has ", rows, " rows and ", candidates,
                   " candidates including those of its chain, but should have ",
                   contents.all_rows, " and ", contents.all_candidates));
}

absl::Status TableChain::ReadChanges(
    BucketRange buckets, uint64_t since_step, absl::Span<const Link> line,
    CheckpointReader::VisitRow visit_row,
    CheckpointReader::VisitRemoved visit_removed) {
  const size_t in_chain = std::min(line.size(), links_.size());
  std::vector<uint64_t> rows;
  std::vector<uint64_t> removed;
  std::vector<uint64_t> gone;
  const auto note_removed = [&](uint64_t id, bool as_candidate) {
    if (!as_candidate) removed.push_back(id);
    return absl::OkStatus();
  };
  for (uint32_t bucket = buckets.begin; bucket < buckets.end; ++bucket) {
    rows.clear();
    removed.clear();
    gone.clear();
    // Rows that only older checkpoints have did not change after `since_step`.
    absl::Status read = Merge(
        bucket, in_chain,
        [&](const StoredRow& row) {
          if (row.is_candidate) return absl::OkStatus();
          rows.push_back(row.id);
          return row.step > since_step ? visit_row(row) : absl::OkStatus();
        },
        note_removed);
    for (size_t i = std::min(BaseOf(bucket) + 1, in_chain);
         read.ok() && i < line.size(); ++i) {
      read = line[i].table->ExtentOf(bucket).Read(
          {bucket, bucket + 1}, line[i].block,
          [](const StoredRow&) { return absl::OkStatus(); }, note_removed);
    }
    if (!read.ok()) return read;
    std::sort(removed.begin(), removed.end());
    removed.erase(std::unique(removed.begin(), removed.end()), removed.end());
    std::set_difference(removed.begin(), removed.end(), rows.begin(),
                        rows.end(), std::back_inserter(gone));
    for (const uint64_t id : gone) {
      HOLDFAST_RETURN_IF_ERROR(visit_removed(bucket, id));
    }
  }
  return absl::OkStatus();
}

}  // namespace holdfast

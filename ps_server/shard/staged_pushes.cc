// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/staged_pushes.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {

void StagedPushes::Configure(const std::vector<StoredSlice>* slices,
                             std::vector<proto::EmbeddingTable> tables,
                             const PushMemory::Options& options) {
  slices_ = slices;
  tables_ = std::move(tables);
  absent_rows_.assign(tables_.size(), 0);
  memory_ = PushMemory(options);
}

absl::Status StagedPushes::Add(StagedPart part, bool reserved) {
  auto it = pushes_.find(part.push);
  if (it == pushes_.end()) {
    HOLDFAST_RETURN_IF_ERROR(memory_.CheckRoom(part.push, reserved));
    StagedPush fresh;
    fresh.reserved = reserved;
    fresh.step = part.step;
    fresh.num_parts = part.num_parts;
    HOLDFAST_RETURN_IF_ERROR(CheckFits(fresh, part));
    memory_.Take(part.push.from.worker, reserved);
    it = pushes_.emplace(part.push, std::move(fresh)).first;
  } else {
    StagedPush& held = it->second;
    // [H8] The part may have been offered before.
    if (held.step == part.step && held.num_parts != part.num_parts &&
        IsWhole(part.push)) {
      return absl::OkStatus();
    }
    // [H9]
    if (held.step != part.step || held.num_parts > part.num_parts) {
      return absl::InvalidArgumentError(absl::StrCat(
          part.push.ToString(), ": a part of step ", part.step.value(), " in ",
          part.num_parts, " parts, after one of step ", held.step.value(),
          " in ", held.num_parts));
    }
    // [H8]
    const bool anew = held.num_parts < part.num_parts;
    if (!anew && held.parts.count(part.part) > 0) return absl::OkStatus();
    const StagedPush none;
    HOLDFAST_RETURN_IF_ERROR(CheckFits(anew ? none : held, part));
    if (anew) {
      Empty(&held);
      held.num_parts = part.num_parts;
    }
  }

  StagedPush& push = it->second;
  push.parts.insert(part.part);
  for (GradientPiece& piece : part.pieces) {
    const int64_t bytes = static_cast<int64_t>(piece.elements.data.size());
    push.bytes += bytes;
    memory_.AddBytes(bytes);
    if (piece.size() > 0) {
      push.pieces[piece.slice].emplace(piece.begin, std::move(piece));
    }
  }
  for (StagedRows& rows : part.rows) {
    push.bytes += rows.bytes;
    memory_.AddBytes(rows.bytes);
    if (rows.rows->ids().empty()) continue;
    absent_rows_[rows.table] += rows.absent;
    push.rows[rows.table].emplace(rows.rows->ids().front(), std::move(rows));
  }
  if (push.parts.size() == push.num_parts) {
    if (absl::Status status = CheckCovered(push); !status.ok()) {
      const std::string name = it->first.ToString();
      Drop(it);
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is dropped: ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status StagedPushes::CheckFits(const StagedPush& push,
                                     const StagedPart& part) const {
  absl::Status status = CheckNoOverlap(push, part);
  return status.ok() ? CheckRows(push, part) : status;
}

void StagedPushes::Empty(StagedPush* push) {
  memory_.AddBytes(-push->bytes);
  push->bytes = 0;
  push->parts.clear();
  push->pieces.clear();
  for (const auto& [table, parts] : push->rows) {
    for (const auto& [first, rows] : parts) absent_rows_[table] -= rows.absent;
  }
  push->rows.clear();
}

absl::Status StagedPushes::CheckRows(const StagedPush& push,
                                     const StagedPart& part) const {
  for (size_t table = 0; !part.rows.empty() && table < tables_.size();
       ++table) {
    std::vector<absl::Span<const uint64_t>> runs;
    for (const StagedRows& rows : part.rows) {
      if (rows.table == table) runs.push_back(rows.rows->ids());
    }
    if (const auto held = push.rows.find(table); held != push.rows.end()) {
      for (const auto& [first, rows] : held->second) {
        runs.push_back(rows.rows->ids());
      }
    }
    const auto error = [&](auto... what) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", tables_[table].name(), "\": ", what...,
                       " in ", part.push.ToString()));
    };
    uint64_t count = 0;
    for (const auto& ids : runs) count += ids.size();
    if (count > tables_[table].max_rows_per_push()) {
      return error(count, " rows, but max_rows_per_push is ",
                   tables_[table].max_rows_per_push(), ",");
    }
    runs.erase(std::remove_if(runs.begin(), runs.end(),
                              [](const auto& ids) { return ids.empty(); }),
               runs.end());
    std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) {
      return a.front() < b.front();
    });
    for (size_t i = 1; i < runs.size(); ++i) {
      if (runs[i].front() <= runs[i - 1].back()) {
        return error("rows beginning with ", runs[i].front(),
                     " came after others ", "up to ", runs[i - 1].back());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StagedPushes::CheckNoOverlap(const StagedPush& push,
                                          const StagedPart& part) const {
  const auto twice = [&](const GradientPiece& piece) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable \"", (*slices_)[piece.slice].variable.name(),
        "\": elements [", piece.begin, ", ", piece.begin + piece.size(),
        ") came twice in ", part.push.ToString()));
  };
  // The part's own pieces must not overlap either.
  std::vector<const GradientPiece*> own;
  for (const GradientPiece& piece : part.pieces) {
    if (piece.size() > 0) own.push_back(&piece);
  }
  std::sort(own.begin(), own.end(), [](const auto* a, const auto* b) {
    return std::tie(a->slice, a->begin) < std::tie(b->slice, b->begin);
  });
  for (size_t i = 0; i < own.size(); ++i) {
    const GradientPiece& piece = *own[i];
    if (i > 0 && own[i - 1]->slice == piece.slice &&
        own[i - 1]->begin + own[i - 1]->size() > piece.begin) {
      return twice(piece);
    }
    const auto held = push.pieces.find(piece.slice);
    if (held == push.pieces.end()) continue;
    const auto after = held->second.lower_bound(piece.begin);
    if (after != held->second.end() &&
        after->first < piece.begin + piece.size()) {
      return twice(piece);
    }
    if (after == held->second.begin()) continue;
    const auto& [begin, before] = *std::prev(after);
    if (begin + before.size() > piece.begin) return twice(piece);
  }
  return absl::OkStatus();
}

absl::Status StagedPushes::CheckCovered(const StagedPush& push) const {
  for (size_t i = 0; i < slices_->size(); ++i) {
    const StoredSlice& slice = (*slices_)[i];
    if (!slice.trainable() || slice.size == 0) continue;
    uint64_t covered = 0;
    if (const auto pieces = push.pieces.find(i); pieces != push.pieces.end()) {
      for (const auto& [begin, piece] : pieces->second) covered += piece.size();
    }
    if (covered != slice.size) {
      return absl::InternalError(
          absl::StrCat("variable \"", slice.variable.name(), "\": ", covered,
                       " of ", slice.size, " elements came in ",
                       push.parts.size(), " of ", push.num_parts, " parts"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StagedPushes::Whole> StagedPushes::Find(const PushId& id) const {
  const auto it = pushes_.find(id);
  if (it == pushes_.end()) {
    return absl::InternalError(
        absl::StrCat(id.ToString(), " is not on this ps"));
  }
  const StagedPush& push = it->second;
  if (absl::Status status = CheckCovered(push); !status.ok()) {
    return absl::InternalError(
        absl::StrCat(id.ToString(), ": ", status.message()));
  }
  if (push.parts.size() != push.num_parts) {
    return absl::InternalError(absl::StrCat(id.ToString(), ": ",
                                            push.parts.size(), " of ",
                                            push.num_parts, " parts came"));
  }
  Whole whole;
  whole.step = push.step;
  whole.gradient.resize(slices_->size());
  for (const auto& [slice, pieces] : push.pieces) {
    for (const auto& [begin, piece] : pieces) {
      whole.gradient[slice].push_back(piece.elements);
    }
  }
  whole.rows.resize(tables_.size());
  for (const auto& [table, parts] : push.rows) {
    for (const auto& [first, rows] : parts) {
      whole.rows[table].push_back(rows.rows.get());
    }
  }
  return whole;
}

// A push whose last part leaves elements uncovered is dropped.
bool StagedPushes::IsWhole(const PushId& push) const {
  const auto it = pushes_.find(push);
  return it != pushes_.end() && it->second.parts.size() == it->second.num_parts;
}

bool StagedPushes::Has(const StagedPart& part) const {
  const auto it = pushes_.find(part.push);
  return it != pushes_.end() &&
         (IsWhole(part.push) || (it->second.num_parts == part.num_parts &&
                                 it->second.parts.count(part.part) > 0));
}

void StagedPushes::CountAbsent(const ShardTables& tables) {
  for (auto& [id, push] : pushes_) {
    for (auto& [table, parts] : push.rows) {
      for (auto& [first, rows] : parts) {
        absent_rows_[table] -= rows.absent;
        tables.CountAbsent(&rows);
        absent_rows_[table] += rows.absent;
      }
    }
  }
}

void StagedPushes::Reserve(const PushId& push) {
  const auto it = pushes_.find(push);
  if (it == pushes_.end() || it->second.reserved) return;
  it->second.reserved = true;
  memory_.Reserve(push.from.worker);
}

void StagedPushes::Drop(const PushId& push) {
  const auto it = pushes_.find(push);
  if (it != pushes_.end()) Drop(it);
}

void StagedPushes::DropAll(const WorkerLife& from) {
  auto it = pushes_.lower_bound({from, PushSequence(0)});
  while (it != pushes_.end() && !(from < it->first.from)) it = Drop(it);
}

std::vector<PushId> StagedPushes::DropThrough(GlobalStep step) {
  std::vector<PushId> dropped;
  for (auto it = pushes_.begin(); it != pushes_.end();) {
    if (it->second.step <= step) {
      dropped.push_back(it->first);
      it = Drop(it);
    } else {
      ++it;
    }
  }
  return dropped;
}

void StagedPushes::Clear() {
  for (auto it = pushes_.begin(); it != pushes_.end();) it = Drop(it);
}

StagedPushes::Pushes::iterator StagedPushes::Drop(Pushes::iterator push) {
  Empty(&push->second);
  memory_.Release(push->first.from.worker, push->second.reserved);
  return pushes_.erase(push);
}

}  // namespace holdfast

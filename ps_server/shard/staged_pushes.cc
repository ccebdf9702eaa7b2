#include "ps_server/shard/staged_pushes.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

void StagedPushes::Configure(const std::vector<StoredSlice>* slices,
                             size_t max_pushes_per_worker) {
  slices_ = slices;
  max_pushes_per_worker_ = max_pushes_per_worker;
}

absl::Status StagedPushes::Add(StagedPart part) {
  auto it = pushes_.find(part.push);
  if (it == pushes_.end()) {
    size_t& held = pushes_by_worker_[part.push.from.worker];
    if (held >= max_pushes_per_worker_) {
      return absl::ResourceExhaustedError(
          absl::StrCat(part.push.ToString(), ": ", held,
                       " pushes of this worker wait for their step already"));
    }
    StagedPush fresh;
    fresh.step = part.step;
    fresh.num_parts = part.num_parts;
    if (absl::Status status = CheckNoOverlap(fresh, part); !status.ok()) {
      return status;
    }
    ++held;
    it = pushes_.emplace(part.push, std::move(fresh)).first;
  } else {
    if (it->second.step != part.step ||
        it->second.num_parts != part.num_parts) {
      return absl::InvalidArgumentError(absl::StrCat(
          part.push.ToString(), ": a part of step ", part.step.value(), " in ",
          part.num_parts, " parts, after one of step ", it->second.step.value(),
          " in ", it->second.num_parts));
    }
    if (it->second.parts.count(part.part) > 0) return absl::OkStatus();
    if (absl::Status status = CheckNoOverlap(it->second, part); !status.ok()) {
      return status;
    }
  }

  StagedPush& push = it->second;
  push.parts.insert(part.part);
  for (GradientPiece& piece : part.pieces) {
    const int64_t bytes = static_cast<int64_t>(piece.data.size());
    push.bytes += bytes;
    bytes_ += bytes;
    if (piece.size > 0) {
      push.pieces[piece.slice].emplace(piece.begin, std::move(piece));
    }
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

absl::Status StagedPushes::CheckNoOverlap(const StagedPush& push,
                                          const StagedPart& part) const {
  const auto twice = [&](const GradientPiece& piece) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable \"", (*slices_)[piece.slice].variable.name(),
        "\": elements [", piece.begin, ", ", piece.begin + piece.size,
        ") came twice in ", part.push.ToString()));
  };
  // Those of the part itself must not overlap either.
  std::vector<const GradientPiece*> own;
  for (const GradientPiece& piece : part.pieces) {
    if (piece.size > 0) own.push_back(&piece);
  }
  std::sort(own.begin(), own.end(), [](const auto* a, const auto* b) {
    return std::tie(a->slice, a->begin) < std::tie(b->slice, b->begin);
  });
  for (size_t i = 0; i < own.size(); ++i) {
    const GradientPiece& piece = *own[i];
    if (i > 0 && own[i - 1]->slice == piece.slice &&
        own[i - 1]->begin + own[i - 1]->size > piece.begin) {
      return twice(piece);
    }
    const auto held = push.pieces.find(piece.slice);
    if (held == push.pieces.end()) continue;
    const auto after = held->second.lower_bound(piece.begin);
    if (after != held->second.end() &&
        after->first < piece.begin + piece.size) {
      return twice(piece);
    }
    if (after == held->second.begin()) continue;
    const auto& [begin, before] = *std::prev(after);
    if (begin + before.size > piece.begin) return twice(piece);
  }
  return absl::OkStatus();
}

absl::Status StagedPushes::CheckCovered(const StagedPush& push) const {
  for (size_t i = 0; i < slices_->size(); ++i) {
    const StoredSlice& slice = (*slices_)[i];
    if (!slice.trainable() || slice.size == 0) continue;
    uint64_t covered = 0;
    if (const auto pieces = push.pieces.find(i); pieces != push.pieces.end()) {
      for (const auto& [begin, piece] : pieces->second) covered += piece.size;
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

absl::StatusOr<std::vector<Buffer>> StagedPushes::Find(const PushId& id,
                                                       GlobalStep step) const {
  const auto it = pushes_.find(id);
  if (it == pushes_.end()) {
    return absl::InternalError(
        absl::StrCat(id.ToString(), " is not on this ps"));
  }
  const StagedPush& push = it->second;
  if (push.step != step) {
    return absl::InternalError(absl::StrCat(id.ToString(), " is of step ",
                                            push.step.value(), ", not ",
                                            step.value()));
  }
  if (absl::Status status = CheckCovered(push); !status.ok()) {
    return absl::InternalError(
        absl::StrCat(id.ToString(), ": ", status.message()));
  }
  if (push.parts.size() != push.num_parts) {
    return absl::InternalError(absl::StrCat(id.ToString(), ": ",
                                            push.parts.size(), " of ",
                                            push.num_parts, " parts came"));
  }
  std::vector<Buffer> by_slice(slices_->size());
  for (const auto& [slice, pieces] : push.pieces) {
    for (const auto& [begin, piece] : pieces) {
      by_slice[slice].Append(piece.data);
    }
  }
  return by_slice;
}

std::vector<PushId> StagedPushes::DropThrough(GlobalStep step) {
  std::vector<PushId> dropped;
  for (auto it = pushes_.begin(); it != pushes_.end();) {
    const auto next = std::next(it);
    if (it->second.step <= step) {
      dropped.push_back(it->first);
      Drop(it);
    }
    it = next;
  }
  return dropped;
}

void StagedPushes::Clear() {
  pushes_.clear();
  pushes_by_worker_.clear();
  bytes_ = 0;
}

void StagedPushes::Drop(Pushes::iterator push) {
  bytes_ -= push->second.bytes;
  const auto held = pushes_by_worker_.find(push->first.from.worker);
  if (--held->second == 0) pushes_by_worker_.erase(held);
  pushes_.erase(push);
}

}  // namespace holdfast

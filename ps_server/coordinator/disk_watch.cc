// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/disk_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace holdfast {

void DiskWatch::Begin(uint32_t num_ps, absl::Time now) {
  Shard shard;
  shard.moved_at = now;
  shards_.assign(num_ps, shard);
}

void DiskWatch::OnProgress(uint32_t ps, const proto::DiskProgress& progress,
                           absl::Time now) {
  if (ps >= shards_.size() || shards_[ps].done) return;
  Shard& shard = shards_[ps];
  shard.progress = progress;
  if (progress.bytes_done() <= shard.most_bytes) return;
  shard.most_bytes = progress.bytes_done();
  shard.moved_at = now;
}

void DiskWatch::OnDone(uint32_t ps, absl::Time now) {
  if (ps >= shards_.size() || shards_[ps].done) return;
  Shard& shard = shards_[ps];
  shard.done = true;
  shard.moved_at = now;
  shard.progress.set_bytes_done(shard.progress.bytes_total());
}

absl::Time DiskWatch::standing_since() const {
  absl::Time slowest = absl::InfiniteFuture();
  absl::Time last_done = absl::InfinitePast();
  for (const Shard& shard : shards_) {
    if (shard.done) {
      last_done = std::max(last_done, shard.moved_at);
    } else {
      slowest = std::min(slowest, shard.moved_at);
    }
  }
  return slowest == absl::InfiniteFuture() ? last_done : slowest;
}

bool DiskWatch::all_done() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const Shard& shard) { return shard.done; });
}

std::string DiskWatch::Describe(uint32_t ps) const {
  if (ps >= shards_.size()) return "";
  const proto::DiskProgress& progress = shards_[ps].progress;
  if (progress.bytes_total() == 0) return "";
  constexpr std::pair<const char*, int> kUnits[] = {
      {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (const auto& [unit, shift] : kUnits) {
    if (progress.bytes_total() >> shift < 10) continue;
    return absl::StrCat(progress.bytes_done() >> shift, " of ",
                        progress.bytes_total() >> shift, " ", unit);
  }
  return absl::StrCat(progress.bytes_done(), " of ", progress.bytes_total(),
                      " bytes");
}

void DiskWatch::AddTo(proto::GetStatusResponse* status) const {
  for (const Shard& shard : shards_) {
    *status->add_disk_progress() = shard.progress;
  }
}

}  // namespace holdfast

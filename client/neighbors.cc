// SPDX-License-Identifier: Apache-2.0
#include "client/neighbors.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "glog/logging.h"

namespace holdfast::client {

Neighbors::Neighbors(std::vector<std::string> ps_names, std::string directory,
                     HostMemory* host_memory)
    : ps_names_(std::move(ps_names)),
      directory_(std::move(directory)),
      host_memory_(host_memory),
      regions_({.name = "gradients"}),
      ps_(ps_names_.size()) {
  regions_.set_reclaim([this] { Sweep(); });
  for (size_t ps = 0; ps < ps_names_.size(); ++ps) {
    kept_.push_back(std::make_shared<std::atomic<int>>(0));
  }
}

absl::StatusOr<std::shared_ptr<Link>> Neighbors::Greet(
    const absl::StatusOr<proto::LinkResponse>& offer) {
  if (!offer.ok()) return offer.status();
  if (directory_.empty() || !offer->refusal().empty()) {
    return Link::Greet(*offer, &regions_, host_memory_);
  }
  proto::LinkResponse here = *offer;
  const std::filesystem::path name =
      std::filesystem::path(offer->path()).filename();
  here.set_path(std::filesystem::path(directory_) / name);
  std::error_code code;
  if (!std::filesystem::exists(here.path(), code)) {
    return absl::NotFoundError(absl::StrCat("its socket, ", name.string(),
                                            ", is not in ", directory_,
                                            ", the directory of this task"));
  }
  return Link::Greet(here, &regions_, host_memory_);
}

void Neighbors::Join(uint32_t ps,
                     const absl::StatusOr<proto::LinkResponse>& offer,
                     absl::Duration timeout) {
  absl::StatusOr<std::shared_ptr<Link>> made = Greet(offer);
  if (!made.ok()) {
    absl::MutexLock lock(&mutex_);
    return Settle(ps, made);
  }
  const absl::Time until = SteadyNow() + kWelcome;
  const absl::Status welcome = (*made)->AwaitWelcome(timeout);
  absl::MutexLock lock(&mutex_);
  if (absl::IsDeadlineExceeded(welcome)) {
    ps_[ps].arriving = *std::move(made);
    ps_[ps].arriving_until = until;
  } else {
    Settle(ps, welcome.ok() ? std::move(made) : welcome);
  }
}

void Neighbors::LookForArrival(uint32_t ps) {
  Ps& peer = ps_[ps];
  if (peer.arriving == nullptr) return;
  const absl::Status welcome =
      peer.arriving->AwaitWelcome(absl::ZeroDuration());
  if (absl::IsDeadlineExceeded(welcome) && SteadyNow() < peer.arriving_until) {
    return;
  }
  const std::shared_ptr<Link> arrived = std::move(peer.arriving);
  peer.arriving = nullptr;
  if (welcome.ok()) {
    Settle(ps, arrived);
  } else {
    Settle(ps, welcome);
  }
}

void Neighbors::Settle(uint32_t ps,
                       const absl::StatusOr<std::shared_ptr<Link>>& made) {
  Ps& peer = ps_[ps];
  if (!made.ok()) {
    absl::string_view why = made.status().message();
    // Errors of calls begin with the name.
    absl::ConsumePrefix(&why, absl::StrCat(ps_names_[ps], ": "));
    if (peer.refusal != why) {
      LOG(INFO) << ps_names_[ps] << ": tensors pass over the network: " << why;
      peer.refusal = std::string(why);
    }
    return;
  }
  peer.refusal.clear();
  LOG(INFO) << ps_names_[ps] << ": tensors pass through shared memory";
  const std::shared_ptr<Link> former = std::exchange(peer.link, *made);
  if (former != nullptr && former->holds()) former_.push_back(former);
}

std::vector<bool> Neighbors::linked() {
  absl::MutexLock lock(&mutex_);
  std::vector<bool> linked;
  for (uint32_t ps = 0; ps < ps_.size(); ++ps) {
    LookForArrival(ps);
    linked.push_back(ps_[ps].link != nullptr && ps_[ps].link->usable());
  }
  return linked;
}

std::shared_ptr<const void> Neighbors::Keep(uint32_t ps) {
  const std::shared_ptr<std::atomic<int>>& kept = kept_[ps];
  int count = *kept;
  do {
    if (count >= kMaxKept) return nullptr;
  } while (!kept->compare_exchange_weak(count, count + 1));
  return std::shared_ptr<const void>(
      kept.get(), [kept](const void*) { kept->fetch_sub(1); });
}

std::shared_ptr<Link> Neighbors::link(uint32_t ps) {
  absl::MutexLock lock(&mutex_);
  LookForArrival(ps);
  return ps_[ps].link;
}

void Neighbors::set_on_lost(std::function<void(uint32_t ps)> on_lost) {
  absl::MutexLock lock(&lost_mutex_);
  on_lost_ = std::move(on_lost);
}

void Neighbors::Lose(uint32_t ps) {
  {
    absl::MutexLock lock(&mutex_);
    if (ps_[ps].arriving != nullptr) return;
  }
  absl::MutexLock lock(&lost_mutex_);
  if (on_lost_) on_lost_(ps);
}

void Neighbors::Sweep() {
  std::vector<std::shared_ptr<Link>> links;
  std::vector<std::shared_ptr<Link>> over;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  for (const Ps& peer : ps_) {
    if (peer.link != nullptr) links.push_back(peer.link);
  }
  links.insert(links.end(), former_.begin(), former_.end());
  for (const std::shared_ptr<Link>& link : links) link->Sweep();
  const auto idle = std::stable_partition(
      former_.begin(), former_.end(),
      [](const std::shared_ptr<Link>& link) { return link->holds(); });
  over.assign(idle, former_.end());
  former_.erase(idle, former_.end());
}

}  // namespace holdfast::client

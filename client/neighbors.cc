#include "client/neighbors.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"

namespace holdfast::client {

Neighbors::Neighbors(std::vector<std::string> ps_names)
    : ps_names_(std::move(ps_names)),
      regions_({.name = "gradients"}),
      ps_(ps_names_.size()) {
  regions_.set_reclaim([this] { Sweep(); });
  for (size_t ps = 0; ps < ps_names_.size(); ++ps) {
    kept_.push_back(std::make_shared<std::atomic<int>>(0));
  }
}

void Neighbors::Join(uint32_t ps,
                     const absl::StatusOr<proto::LinkResponse>& offer,
                     absl::Duration timeout) {
  const absl::StatusOr<std::shared_ptr<Link>> made =
      offer.ok() ? Link::Make(*offer, &regions_, timeout) : offer.status();
  std::shared_ptr<Link> former;  // goes without the lock
  absl::MutexLock lock(&mutex_);
  Ps& peer = ps_[ps];
  if (!made.ok()) {
    absl::string_view why = made.status().message();
    // Errors of calls begin with it.
    absl::ConsumePrefix(&why, absl::StrCat(ps_names_[ps], ": "));
    if (peer.refusal != why) {
      LOG(INFO) << ps_names_[ps] << ": tensors pass over the network: " << why;
      peer.refusal = std::string(why);
    }
    return;
  }
  peer.refusal.clear();
  LOG(INFO) << ps_names_[ps] << ": tensors pass through shared memory";
  former = std::exchange(peer.link, *made);
  if (former != nullptr && former->holds()) former_.push_back(former);
}

std::vector<bool> Neighbors::linked() {
  absl::MutexLock lock(&mutex_);
  std::vector<bool> linked;
  for (const Ps& peer : ps_) {
    linked.push_back(peer.link != nullptr && peer.link->usable());
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
  return ps_[ps].link;
}

void Neighbors::set_on_lost(std::function<void(uint32_t ps)> on_lost) {
  absl::MutexLock lock(&lost_mutex_);
  on_lost_ = std::move(on_lost);
}

void Neighbors::Lose(uint32_t ps) {
  absl::MutexLock lock(&lost_mutex_);
  if (on_lost_) on_lost_(ps);
}

void Neighbors::Sweep() {
  std::vector<std::shared_ptr<Link>> links;
  std::vector<std::shared_ptr<Link>> over;  // go without the lock
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

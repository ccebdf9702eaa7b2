// SPDX-License-Identifier: Apache-2.0
#include "client/linking.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "client/rpc.h"
#include "common/shared_memory/link_socket.h"

namespace holdfast::client {
namespace {

// The time limit for making all links of a generation.
constexpr absl::Duration kAll = absl::Seconds(2);
// A link that the ps refuses or breaks is not requested again with every call.
constexpr absl::Duration kAskAgain = absl::Seconds(1);

}  // namespace

Linking::Linking(std::shared_ptr<Context> context)
    : context_(std::move(context)),
      neighbors_(context_->transport.neighbors()),
      boot_id_(neighbors_ != nullptr ? BootId() : ""),
      ask_again_(context_->num_ps(), absl::InfinitePast()),
      calls_(context_) {
  if (neighbors_ == nullptr) return;
  neighbors_->set_on_lost([this](uint32_t ps) { LinkAgain(ps); });
}

Linking::~Linking() {
  if (neighbors_ != nullptr) neighbors_->set_on_lost(nullptr);
}

proto::LinkRequest Linking::Request() const {
  proto::LinkRequest request;
  request.set_boot_id(boot_id_);
  return request;
}

void Linking::LinkAll(absl::Time deadline) {
  if (neighbors_ == nullptr || boot_id_.empty()) return;
  const absl::Time until = std::min(deadline, context_->transport.Now() + kAll);
  const std::vector<bool> linked = neighbors_->linked();
  // Indexed by ps. Linked ps are not asked.
  std::vector<std::optional<absl::StatusOr<proto::LinkResponse>>> offers(
      linked.size());
  size_t missing = std::count(linked.begin(), linked.end(), false);
  if (missing == 0) return;
  CallGroup calls(context_);
  for (uint32_t ps = 0; ps < linked.size(); ++ps) {
    if (linked[ps]) continue;
    calls.Start(rpc::kLink, ps, Request(),
                [&, ps](absl::StatusOr<proto::LinkResponse> offer) {
                  absl::MutexLock lock(&context_->mutex);
                  offers[ps] = std::move(offer);
                  --missing;
                  return Next::kDone;
                });
  }
  const absl::Status status = calls.Await(
      until, [&] { return missing == 0; },
      [] { return "links to the ps tasks of this host"; });
  calls.Cancel();
  // Stop if the job has ended or the caller has given up.
  if (absl::IsAborted(status) || absl::IsCancelled(status)) return;
  for (uint32_t ps = 0; ps < linked.size(); ++ps) {
    if (linked[ps]) continue;
    const absl::Duration left = until - context_->transport.Now();
    neighbors_->Join(
        ps, offers[ps].value_or(status),
        std::clamp(left, absl::ZeroDuration(), Neighbors::kWelcome));
  }
}

void Linking::LinkAgain(uint32_t ps) {
  {
    absl::MutexLock lock(&context_->mutex);
    if (context_->transport.Now() < ask_again_[ps]) return;
    ask_again_[ps] = absl::InfiniteFuture();
  }
  calls_.Start(rpc::kLink, ps, Request(),
               [this, ps](const absl::StatusOr<proto::LinkResponse>& offer) {
                 // The polling thread must not wait here.
                 neighbors_->Join(ps, offer, absl::ZeroDuration());
                 absl::MutexLock lock(&context_->mutex);
                 ask_again_[ps] = context_->transport.Now() + kAskAgain;
                 return Next::kDone;
               });
}

}  // namespace holdfast::client

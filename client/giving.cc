// SPDX-License-Identifier: Apache-2.0
#include "client/giving.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast::client {

Giving::Giving(std::shared_ptr<Context> context, const proto::Sender& sender,
               Values values)
    : context_(std::move(context)),
      sender_(std::make_shared<const proto::Sender>(sender)),
      values_(std::move(values)),
      satisfied_(context_->num_ps()),
      calls_(context_, sender_) {
  for (uint32_t ps = 0; ps < context_->num_ps(); ++ps) Offer(ps, {});
}

Giving::~Giving() {
  calls_.Cancel();
  loan_.AwaitReturn();
}

bool Giving::over() const {
  return !error_.ok() || std::find(satisfied_.begin(), satisfied_.end(),
                                   false) == satisfied_.end();
}

bool Giving::done() const {
  absl::MutexLock lock(&context_->mutex);
  return over() || calls_.IsOver();
}

absl::Status Giving::Await(absl::Time deadline) {
  const absl::Status status = calls_.Await(
      deadline, [this] { return over(); }, [this] { return Missing(); });
  calls_.Cancel();
  loan_.AwaitReturn();
  absl::MutexLock lock(&context_->mutex);
  if (!error_.ok()) return error_;
  return context_->IsRolledBack(*sender_) ? absl::OkStatus() : status;
}

std::string Giving::Missing() const {
  std::vector<std::string> names;
  for (uint32_t ps = 0; ps < satisfied_.size(); ++ps) {
    if (!satisfied_[ps]) names.push_back(context_->ps_names[ps]);
  }
  return absl::StrCat("first values to be taken by ",
                      absl::StrJoin(names, ", "));
}

void Giving::Offer(uint32_t ps, WithTensors<proto::GiveRequest> request) {
  calls_.Start(rpc::kGive, ps, std::move(request),
               [this, ps](const absl::StatusOr<proto::GiveResponse>& answer) {
                 return OnAnswer(ps, answer);
               });
}

Next Giving::OnAnswer(uint32_t ps,
                      const absl::StatusOr<proto::GiveResponse>& answer) {
  absl::StatusOr<WithTensors<proto::GiveRequest>> next =
      answer.ok() ? RequestOf(ps, *answer) : answer.status();
  if (next.ok() && !next->tensors.empty()) {
    Offer(ps, *std::move(next));
    return Next::kDone;
  }
  absl::MutexLock lock(&context_->mutex);
  if (next.ok()) {
    satisfied_[ps] = true;
  } else if (error_.ok()) {
    error_ = next.status();
  }
  return Next::kDone;
}

absl::StatusOr<WithTensors<proto::GiveRequest>> Giving::RequestOf(
    uint32_t ps, const proto::GiveResponse& answer) const {
  WithTensors<proto::GiveRequest> request;
  for (const proto::ReadRange& range : answer.wanted()) {
    const auto found = values_.find(range.variable());
    if (found == values_.end() || range.begin() > found->second.size() ||
        range.size() > found->second.size() - range.begin()) {
      return absl::InternalError(
          absl::StrCat(context_->ps_names[ps], ": it wants first values [",
                       range.begin(), ", +", range.size(), ") of variable \"",
                       range.variable(), "\", which is not declared as given"));
    }
    TensorPiece& piece = request.tensors.emplace_back();
    piece.variable = range.variable();
    piece.begin = range.begin();
    piece.data =
        Buffer::FromMemory(found->second.data() + range.begin(),
                           range.size() * sizeof(float), loan_.owner());
  }
  return request;
}

}  // namespace holdfast::client

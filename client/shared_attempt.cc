// SPDX-License-Identifier: Apache-2.0
#include "client/shared_attempt.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rpc.h"
#include "common/base/status_macros.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/encoding.h"
#include "proto/shard.pb.h"

namespace holdfast::client {
namespace {

using Ranges = google::protobuf::RepeatedPtrField<proto::ReadRange>;

// The ranges of a request that reads values; null for other requests.
const Ranges* RangesOf(const Rpc& rpc,
                       const google::protobuf::Message& request) {
  if (&rpc == &rpc::kPull) {
    return &static_cast<const proto::PullRequest&>(request).ranges();
  }
  if (&rpc == &rpc::kPushPull) {
    return &static_cast<const proto::PushPullRequest&>(request).ranges();
  }
  return nullptr;
}

bool IsPush(const Rpc& rpc) {
  return &rpc == &rpc::kPush || &rpc == &rpc::kPushPull;
}

// The minimum number of rows for which a loan is offered. A request does not
// say how long they are: the ps lends them if they have kMinLentBytes.
constexpr uint64_t kMinLentRows = 16;

bool MayBeLent(const proto::ReadRange& range) {
  if (range.encoding() != proto::EXACT) return false;
  return range.has_rows() ? range.rows().num_rows() >= kMinLentRows
                          : range.size() >= kMinLentBytes / sizeof(float);
}

bool MayBeLent(const TensorPiece& piece) {
  return piece.data.size() >= kMinLentBytes;
}

// The maximum size of a piece in a message: see EncodedBytes in
// common/rpc/tensor_codec.h.
uint64_t SentBytes(const TensorPiece& piece) {
  constexpr uint64_t kSurrounding = 200;
  return kSurrounding + piece.variable.size() + 10 * piece.shape.size() +
         (piece.rows.has_value() ? piece.rows->ids().size() : 0) +
         (piece.shared.has_value() ? 0 : piece.data.size());
}

template <typename Items>
bool AnyMayBeLent(const Items& items) {
  return std::any_of(items.begin(), items.end(),
                     [](const auto& item) { return MayBeLent(item); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedAttempt>> SharedAttempt::Begin(
    Neighbors* neighbors, const Attempt& attempt) {
  const Ranges* const ranges = RangesOf(*attempt.rpc, *attempt.request);
  const bool pushes =
      IsPush(*attempt.rpc) && AnyMayBeLent(attempt.request_tensors);
  const bool reads = ranges != nullptr && AnyMayBeLent(*ranges);
  if (!pushes && !reads) return nullptr;
  std::shared_ptr<Link> link = neighbors->link(attempt.ps);
  if (link == nullptr) return nullptr;
  std::unique_ptr<SharedAttempt> shared(
      new SharedAttempt(std::move(link), &attempt));
  if (shared->link_->usable()) {
    shared->link_->Sweep();
    if (reads) shared->OfferReads();
    shared->Lend();
  } else {
    shared->tensors_.assign(attempt.request_tensors.begin(),
                            attempt.request_tensors.end());
  }
  if (absl::Status status = shared->CheckSize(); !status.ok()) {
    if (!shared->link_->usable()) neighbors->Lose(attempt.ps);
    return status;
  }
  if (shared->gradients_.empty() && shared->values_.empty()) return nullptr;
  return shared;
}

SharedAttempt::~SharedAttempt() {
  for (const proto::Loan& loan : gradients_) link_->TakeBack(loan);
  for (const proto::Loan& loan : values_) link_->Return(loan);
}

void SharedAttempt::OfferReads() {
  request_.reset(attempt_.request->New());
  request_->CopyFrom(*attempt_.request);
  auto& ranges = const_cast<Ranges&>(*RangesOf(*attempt_.rpc, *request_));
  for (proto::ReadRange& range : ranges) {
    if (!MayBeLent(range)) continue;
    std::optional<proto::Loan> loan = link_->OfferRead();
    if (!loan.has_value()) return;
    values_.push_back(*loan);
    *range.mutable_loan() = *std::move(loan);
  }
}

void SharedAttempt::Lend() {
  tensors_.assign(attempt_.request_tensors.begin(),
                  attempt_.request_tensors.end());
  for (TensorPiece& piece : tensors_) {
    piece.shared = link_->Lend(piece.data);
    if (piece.shared.has_value()) gradients_.push_back(piece.shared->loan());
  }
}

absl::Status SharedAttempt::CheckSize() const {
  uint64_t sent = request().ByteSizeLong();
  for (const TensorPiece& piece : tensors_) sent += SentBytes(piece);
  uint64_t read = 0;
  if (const Ranges* ranges = RangesOf(*attempt_.rpc, request())) {
    // Rows come together with so few elements that everything fits, lent or not
    // (PushExchange::FitsRows).
    for (const proto::ReadRange& range : *ranges) {
      if (range.has_loan() || range.has_rows()) continue;
      read += EncodedBytes(range.encoding(), range.size(), 0);
    }
  }
  if (sent <= kMaxMessageBytes && read <= kMaxPullBytes) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(
      link_->usable() ? "not all of its tensors can be lent at the moment"
                      : "the link to its shared memory is lost",
      ": ", std::max(sent, read), " bytes are more than a message holds"));
}

absl::Status SharedAttempt::TakeValues(std::vector<TensorPiece>* tensors) {
  for (TensorPiece& piece : *tensors) {
    if (!piece.shared.has_value()) continue;
    const proto::Loan& loan = piece.shared->loan();
    const auto found = std::find_if(values_.begin(), values_.end(),
                                    [&](const proto::Loan& offered) {
                                      return offered.link() == loan.link() &&
                                             offered.slot() == loan.slot() &&
                                             offered.serial() == loan.serial();
                                    });
    if (found == values_.end()) {
      return absl::InternalError(
          absl::StrCat("values of \"", piece.variable,
                       "\" are under a loan that was not "
                       "offered for them"));
    }
    HOLDFAST_ASSIGN_OR_RETURN(auto data, link_->Read(*piece.shared));
    piece.data = std::move(data);
    piece.shared.reset();
    values_.erase(found);
  }
  return absl::OkStatus();
}

}  // namespace holdfast::client

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_SHARED_ATTEMPT_H_
#define HOLDFAST_CLIENT_SHARED_ATTEMPT_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/link.h"
#include "client/neighbors.h"
#include "client/transport.h"
#include "common/tensor/tensor_piece.h"
#include "google/protobuf/message.h"

namespace holdfast::client {

// What one attempt of a call lends to a neighbor, and reads from its memory
// (docs/protocol/same_host.md). Each attempt has its own loans, which end when
// this object is destroyed, with two exceptions: loans of values that were read
// end with the values, and the owners of gradients that the ps holds are kept
// for it.
//
// Thread-compatible.
class SharedAttempt {
 public:
  // Makes the loans of `attempt`, which must outlive the object. Returns null
  // if the attempt must be sent as it is.
  // Errors: OUT_OF_RANGE [H6] if the attempt is larger than a message, and not
  // all of it can be lent: it has to be sent in parts. A lost link is reported
  // to `neighbors`.
  static absl::StatusOr<std::unique_ptr<SharedAttempt>> Begin(
      Neighbors* neighbors, const Attempt& attempt);
  ~SharedAttempt();

  SharedAttempt(const SharedAttempt&) = delete;
  SharedAttempt& operator=(const SharedAttempt&) = delete;

  // The request and the tensors that must be sent instead of the attempt's own.
  const google::protobuf::Message& request() const {
    return request_ != nullptr ? *request_ : *attempt_.request;
  }
  absl::Span<const TensorPiece> request_tensors() const { return tensors_; }

  // Called once with the answer's tensors, if it arrives; provides a buffer for
  // each piece that is in shared memory.
  // Errors: INTERNAL if a piece is in no known memory, or under no loan of this
  // attempt.
  absl::Status TakeValues(std::vector<TensorPiece>* tensors);

 private:
  SharedAttempt(std::shared_ptr<Link> link, const Attempt* attempt)
      : link_(std::move(link)), attempt_(*attempt) {}

  void Lend();
  void OfferReads();
  absl::Status CheckSize() const;

  const std::shared_ptr<Link> link_;
  const Attempt& attempt_;
  // The request that is sent. Null if the attempt's own request is sent.
  std::unique_ptr<google::protobuf::Message> request_;
  std::vector<TensorPiece> tensors_;
  std::vector<proto::Loan> gradients_;
  // The loans of values that were not read.
  std::vector<proto::Loan> values_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_SHARED_ATTEMPT_H_

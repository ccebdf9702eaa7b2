// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_LOAN_H_
#define HOLDFAST_CLIENT_LOAN_H_

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"

namespace holdfast::client {

// The caller's memory, lent to messages that gRPC sends without a copy.
// Every message that refers to the memory keeps a copy of owner(); once the
// last copy is gone, the memory belongs to the caller again.
//
// An abandoned call may still be in the middle of being written to a connection
// whose peer does not read; this ends when the peer reads again, or when
// keepalive closes the connection (common/rpc/channel.h).
//
// Thread-compatible; owners may be released on any thread.
class Loan {
 public:
  Loan() {
    auto returned = std::make_shared<absl::Notification>();
    returned_ = returned;
    owner_ = std::shared_ptr<const void>(
        returned.get(), [returned](const void*) { returned->Notify(); });
  }

  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Waits until nothing refers to the memory. From then on owner() must not be
  // used.
  void AwaitReturn() {
    owner_.reset();
    returned_->WaitForNotification();
  }

 private:
  std::shared_ptr<absl::Notification> returned_;
  std::shared_ptr<const void> owner_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LOAN_H_

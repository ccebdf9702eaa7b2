#ifndef HOLDFAST_CLIENT_LOAN_H_
#define HOLDFAST_CLIENT_LOAN_H_

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"

namespace holdfast::client {

// The caller's memory, lent to messages that gRPC sends from where it lies. Who
// refers to the memory keeps owner(), and the memory is the caller's again when
// nobody does.
//
// A call that is given up may still be in the middle of being written to a
// connection whose peer does not read; that ends when the peer goes on, or the
// connection with its keepalive (common/rpc/channel.h).
//
// Thread-compatible; owners may go on any thread.
class Loan {
 public:
  Loan() {
    auto returned = std::make_shared<absl::Notification>();
    returned_ = returned;
    owner_ = std::shared_ptr<const void>(
        returned.get(), [returned](const void*) { returned->Notify(); });
  }

  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Waits until nobody refers to the memory. No more owners may be taken.
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

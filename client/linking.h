// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_LINKING_H_
#define HOLDFAST_CLIENT_LINKING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/call_group.h"
#include "client/context.h"
#include "client/neighbors.h"
#include "proto/shard.pb.h"

namespace holdfast::client {

// Makes a client's Neighbors establish links (docs/protocol/same_host.md,
// "Making a link"): once the variables exist, and again, at most once per
// second, when a link is lost although its ps is alive.
//
// Does nothing if the transport has no Neighbors. Thread-safe.
class Linking {
 public:
  explicit Linking(std::shared_ptr<Context> context);
  ~Linking();

  // Asks each ps without a link for one, and waits for all of them, for at most
  // 2 seconds and no longer than `deadline`.
  void LinkAll(absl::Time deadline) ABSL_LOCKS_EXCLUDED(context_->mutex);

 private:
  void LinkAgain(uint32_t ps) ABSL_LOCKS_EXCLUDED(context_->mutex);
  proto::LinkRequest Request() const;

  const std::shared_ptr<Context> context_;
  Neighbors* const neighbors_;
  const std::string boot_id_;
  // Indexed by ps: the time before which LinkAgain does not ask again;
  // InfiniteFuture while a request is unanswered.
  std::vector<absl::Time> ask_again_ ABSL_GUARDED_BY(context_->mutex);
  CallGroup calls_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_LINKING_H_

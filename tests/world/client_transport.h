// SPDX-License-Identifier: Apache-2.0

// The network of a simulated world as seen by a client (client/transport.h).
#ifndef HOLDFAST_TESTS_WORLD_CLIENT_TRANSPORT_H_
#define HOLDFAST_TESTS_WORLD_CLIENT_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/random/bit_gen_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/transport.h"
#include "tests/world/message.h"

namespace holdfast::sim {

// Attempts are messages of the world and pauses are its timers, so the world's
// scheduler decides when they end. Attempts have no deadline of their own.
// Nothing may block: before calling Wait, the user of the client checks that a
// handle is done.
//
// In a job that lends there is a link to each ps. It has no files and no board:
// lent bytes travel in the message, and the scheduler decides whether they can
// be lent [H6].
class ClientTransport : public client::Transport {
 public:
  // The client runs in the process of `node`, which must end before the world
  // does. `on_event` is called after each event that the client hears of.
  ClientTransport(World* world, Node node, uint64_t seed,
                  std::function<void()> on_event);

  absl::Time Now() const override;
  std::shared_ptr<AttemptOperation> Prepare(client::Attempt attempt) override;
  std::shared_ptr<Operation> After(absl::Duration delay,
                                   absl::AnyInvocable<void()> over) override;
  void Wait(absl::FunctionRef<bool()> over, absl::Time until) override;
  std::vector<bool> linked() override;
  absl::Mutex& mutex() override { return mutex_; }
  absl::BitGenRef random() override { return random_; }

 private:
  class Pause;
  class Sending;

  // Whether a message with `tensor_bytes` bytes of tensors can be exchanged
  // with a ps.
  bool Fits(uint64_t tensor_bytes);

  World* const world_;
  const Node node_;
  std::mt19937_64 random_;
  const std::function<void()> on_event_;
  absl::Mutex mutex_;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_CLIENT_TRANSPORT_H_

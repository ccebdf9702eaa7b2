// SPDX-License-Identifier: Apache-2.0

// What a simulated world leaves to others: when things happen, and whether they
// happen.
#ifndef HOLDFAST_TESTS_WORLD_SCHEDULER_H_
#define HOLDFAST_TESTS_WORLD_SCHEDULER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "tests/world/message.h"

namespace holdfast::sim {

// A unit that dies as a whole. Ps i is process i, and ps 0 includes the
// coordinator; worker processes follow.
using Process = int;
inline constexpr Process kFirstWorkerProcess = kMaxPs;

enum class DiskFault { kNone, kBeforeItIsDone, kAfterItWasDone };

// Observes messages and time.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnSent(Node from, Node to,
                      const google::protobuf::Message& request) {}
  virtual void OnArrival(Node from, Node to,
                         const google::protobuf::Message& request) {}
  // The machine has answered, within an event of its own. `response` is null if
  // the answer is an error.
  virtual void OnAnswered(Node from, Node to,
                          const google::protobuf::Message& request,
                          const google::protobuf::Message* response) {}
  virtual void OnHeard(Node by, const google::protobuf::Message& response) {}
  virtual void OnTick() {}
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // `message` is in flight from here on, and the scheduler decides what becomes
  // of it: it calls World::Deliver, Fail and Repeat. `call` is null for answers
  // and repeats.
  virtual void OnSent(Message* message, OpenCall* call) = 0;
  // Asks the scheduler to call World::RunTimers at `due` or later.
  virtual void OnTimer(absl::Time due) {}
  // A number from 0 to `below` - 1; 0 stands for the usual case.
  virtual uint64_t Random(uint64_t below) = 0;
  bool Happens(int of_1000) {
    return of_1000 > 0 && Random(1000) >= 1000 - static_cast<uint64_t>(of_1000);
  }
  absl::Duration RandomDuration(absl::Duration longest) {
    return absl::Microseconds(Random(1 + absl::ToInt64Microseconds(longest)));
  }
  // The fault of the request that the disk is about to execute.
  virtual DiskFault NextDiskFault(bool is_read) = 0;
  // Whether `client` and a ps can lend each other the next tensors. Called for
  // each message that must be lent (World::MustBeLent).
  virtual bool Lends(Node client) { return true; }
  // The requests of `node` in `lane` of the disk (Disk) should finish soon.
  virtual void Hurry(Node node, int lane) {}
  // Whether a message that is not stray is lost when its sender or receiver
  // dies.
  virtual bool Breaks(const Message& message) = 0;
  virtual void OnCrash(Process process) {}
  // A process has exited on its own; `for_good` if its work is done.
  virtual void OnExit(Process process, bool for_good) = 0;
  // An operator has stopped the job, and all processes have ended: they should
  // be started again.
  virtual void OnStopped() = 0;
  // For printing.
  virtual void Trace(const std::string& what) {}
  virtual void TraceDelivery(const Message& message) {}
  virtual bool tracing() const { return false; }
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SCHEDULER_H_

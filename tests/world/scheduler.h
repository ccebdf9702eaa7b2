// What a simulated world leaves to others: when things happen, and whether they
// do.
#ifndef HOLDFAST_TESTS_WORLD_SCHEDULER_H_
#define HOLDFAST_TESTS_WORLD_SCHEDULER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "tests/world/message.h"

namespace holdfast::sim {

// What dies as a whole. Ps i is process i, and ps 0 has the coordinator; worker
// processes come after.
using Process = int;
inline constexpr Process kFirstWorkerProcess = kMaxPs;

enum class DiskFault { kNone, kBeforeItIsDone, kAfterItWasDone };

// Looks at what passes.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnSent(Node from, Node to,
                      const google::protobuf::Message& request) {}
  virtual void OnArrival(Node from, Node to,
                         const google::protobuf::Message& request) {}
  // The machine has answered, from inside an event of its own; null: with an
  // error.
  virtual void OnAnswered(Node from, Node to,
                          const google::protobuf::Message& request,
                          const google::protobuf::Message* response) {}
  virtual void OnHeard(Node by, const google::protobuf::Message& response) {}
  virtual void OnTick() {}
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // `message` is in flight from here on: World::Deliver, Lose, Repeat and
  // HoldUp are the scheduler's to call. `call` is null for answers and repeats.
  virtual void OnSent(Message* message, OpenCall* call) = 0;
  // To call World::RunTimers at `due`, or later.
  virtual void OnTimer(absl::Time due) {}
  // From 0 to `below` - 1; 0 is what usually happens.
  virtual uint64_t Random(uint64_t below) = 0;
  bool Happens(int of_1000) {
    return of_1000 > 0 && Random(1000) >= 1000 - static_cast<uint64_t>(of_1000);
  }
  absl::Duration RandomDuration(absl::Duration longest) {
    return absl::Microseconds(Random(1 + absl::ToInt64Microseconds(longest)));
  }
  // Of what the disk is just asked for.
  virtual DiskFault NextDiskFault(bool is_read) = 0;
  // Whether `client` and a ps can lend each other what one of them is about to;
  // asked for each message that must be lent (World::MustBeLent).
  virtual bool Lends(Node client) { return true; }
  // What `node` has asked of the disk by `lane` (Disk) is to end soon.
  virtual void Hurry(Node node, int lane) {}
  // A message that is not stray, when its sender or receiver dies.
  virtual bool Breaks(const Message& message) = 0;
  virtual void OnCrash(Process process) {}
  // A process has ended by itself; `for_good`: with its work done.
  virtual void OnExit(Process process, bool for_good) = 0;
  // An operator has stopped the job, and all processes have ended: they are to
  // be started again.
  virtual void OnStopped() = 0;
  // For people.
  virtual void Trace(const std::string& what) {}
  virtual void TraceDelivery(const Message& message) {}
  virtual bool tracing() const { return false; }
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_SCHEDULER_H_

// SPDX-License-Identifier: Apache-2.0

// A schedule of everything that happens to a cluster so small that its
// schedules can be enumerated: two shards, one of them with the coordinator,
// two workers and an operator. Every deviation from the canonical order is
// chosen explicitly.
#ifndef HOLDFAST_TESTS_EXPLORATION_SCHEDULE_H_
#define HOLDFAST_TESTS_EXPLORATION_SCHEDULE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/world/job.h"
#include "tests/world/message.h"
#include "tests/world/scheduler.h"
#include "tests/world/stop_command.h"
#include "tests/world/worker.h"
#include "tests/world/world.h"

namespace holdfast::exploration {

inline constexpr absl::Duration kRound = absl::Seconds(1);
// The number of rounds after which a process that is reborn late comes back,
// and the latest messages arrive. Any process or call that could be given up
// has been given up by then.
inline constexpr int kLate = 7;

// How long a message is held up.
struct Delay {
  // Places in the canonical order, in links of the chain that led to it.
  int hops = 0;
  // 1: when nothing else is in flight; 1 + n: n rounds later.
  int hold = 0;
  // Until the next generation trains; hops are counted from there.
  bool until_next_generation = false;
};

// A possible event. All except kNext are deviations from the canonical order.
struct Choice {
  enum Kind {
    // Delivers the message at the head. If no message may be delivered,
    // messages that were held up arrive, dead processes are reborn, or a second
    // passes.
    kNext,
    // Message `serial` overtakes those before it.
    kDeliver,
    // The message at the head is held up.
    kSlow,
    // A second passes while messages are in flight.
    kTime,
    // The message at the head, or its answer, is lost: its caller gets
    // UNAVAILABLE.
    kLose,
    // The message arrives, and again after `delay`.
    kTwice,
    // The caller gets DEADLINE_EXCEEDED, and the message arrives after `delay`.
    kLateArrival,
    // `process` dies, and is reborn after `rounds` (0: when nothing is in
    // flight). A worker that the job does not need may never be reborn.
    kCrash,
    // `process`, a worker, leaves, exits, and is reborn.
    kStepDown,
    // The lease of `process` expires although it is alive.
    kExpire,
    // The disk request at the head fails, before (rounds 0) or after (1) it was
    // executed.
    kDiskFails,
    // A stranger sends the shard of `process` the `serial`-th of its forgeries
    // (stranger.h).
    kForged,
    // An operator stops the job; when it has stopped, all processes start
    // again.
    kStop,
    // The tensors of the message at the head cannot be lent; with `rounds` 1,
    // nothing can be lent between that worker and a ps until a second passes.
    kNotLent,
  };
  Kind kind = kNext;
  uint64_t serial = 0;
  Delay delay;
  sim::Process process = 0;
  int rounds = 0;

  std::string ToString() const;
};

// The deviations that are still allowed on one path.
struct Budget {
  // kDeliver, kSlow, kTime.
  int orders = 0;
  // kLose, kTwice, kLateArrival, kForged.
  int messages = 0;
  // kCrash, kStepDown.
  int crashes = 0;
  int expiries = 0;
  int disk = 0;
  // kStop.
  int stops = 0;
  // kNotLent.
  int loans = 0;

  bool Covers(const Budget& other) const;
  bool any() const { return !Budget().Covers(*this); }
};

// One fault of one call, for tests that go through RPCs one by one.
struct RpcFault {
  enum Kind {
    kLostBefore,
    kLostAfter,
    kLate,
    kTwice,
    kOutOfOrder,
    kAnswerOutOfOrder
  };
  Kind kind = kLostBefore;
  std::string rpc;
  // Which of the calls of that name, from 1; calls that are sent again count
  // too.
  int occurrence = 1;
  // See Choice.
  Delay delay;
  // Only calls between these nodes are counted.
  std::optional<sim::Node> from;
  std::optional<sim::Node> to;
};

// The job, its workers, and what else happens meanwhile.
struct Scenario {
  sim::Job job;
  sim::World::MakeWorker make_worker = sim::MakeScriptedWorker;
  // A stranger speaks in the name of the coordinator.
  bool stranger = false;
  // An operator asks for the status and for a checkpoint once there are
  // variables.
  bool operator_asks = false;
  // An operator stops the job once there are variables.
  bool operator_stops = false;
  // The lease of worker 1 expires although it is alive, when it has got this
  // many answers to Apply. 0: never.
  int expire_after_applies = 0;
  std::vector<RpcFault> faults;
  // Deviations are possible only once a worker has heard that there are
  // variables.
  bool starts_undisturbed = false;
  // Messages are delayed only by 4 hops, or until nothing else is in flight.
  bool few_delays = false;
  // Messages may arrive twice, the second time in the next generation. There
  // are no other faults of messages, and while such a message is in flight,
  // only ps crash.
  bool calls_outlive_generation = false;
};

// Time advances only in rounds of one second, in which the machines tick and
// callers repeat what they could not send.
//
// Two schedules of one scenario with the same choices are equal.
class Schedule : public sim::Scheduler, public sim::Observer {
 public:
  // What is traced: nothing, every event, or the lines of a transcript
  // (transcript.h).
  enum class Tracing { kNone, kAll, kTranscript };
  explicit Schedule(const Scenario& scenario, Tracing tracing = Tracing::kNone);

  // The choices other than kNext that are possible now.
  std::vector<Choice> Alternatives(const Budget& budget) const;
  // Executes the choice, and deducts it from the budget, if one is given.
  void Take(const Choice& choice, Budget* budget = nullptr);
  // Whether the job has ended for all processes, or a promise is broken.
  bool over() const { return world_.finished() || !violation().empty(); }
  const std::string& violation() const { return world_.violation(); }
  // Two schedules with the same fingerprint have the same future, except for
  // collisions of 64 bits: it is a hash of everything that each node was ever
  // given, in order, and of what is in flight.
  uint64_t Fingerprint(const Budget& budget) const;
  // A hash of the outcome: values and journal.
  uint64_t EndFingerprint() const { return world_.EndFingerprint(); }
  const std::vector<std::string>& trace() const { return trace_; }
  const sim::World& world() const { return world_; }

 private:
  struct ProcessState {
    // The process has done its work, and is not reborn.
    bool for_good = false;
    // Rounds until the process is reborn; 0: when nothing is in flight.
    int rounds_left = 0;
  };

  // Scheduler:
  void OnSent(sim::Message* message, sim::OpenCall* call) override;
  uint64_t Random(uint64_t below) override { return 0; }
  bool Lends(sim::Node client) override {
    return !values_not_lent_ && unlinked_.count(client) == 0;
  }
  sim::DiskFault NextDiskFault(bool is_read) override;
  bool Breaks(const sim::Message& message) override { return true; }
  void OnExit(sim::Process process, bool for_good) override;
  void OnStopped() override;
  void Trace(const std::string& what) override {
    if (tracing_ != Tracing::kNone) trace_.push_back(what);
  }
  void TraceDelivery(const sim::Message& message) override;
  bool tracing() const override { return tracing_ != Tracing::kNone; }
  // Observer:
  void OnSent(sim::Node from, sim::Node to,
              const google::protobuf::Message& request) override;
  void OnHeard(sim::Node by,
               const google::protobuf::Message& response) override;

  // Compares messages in the order of delivery.
  static bool Precedes(const sim::Message& a, const sim::Message& b);
  // Whether messages between two nodes are delivered in order.
  static bool IsOrdered(sim::Node from, sim::Node to);
  // Whether a message that must precede it has not been delivered.
  bool Waits(const sim::Message& message) const;
  std::vector<const sim::Message*> Deliverable() const;
  bool IsIncluded(const Delay& delay) const;
  bool IsWorker(sim::Process process) const {
    return process >= sim::kFirstWorkerProcess;
  }
  const sim::Message* Head() const;
  void HoldUp(const Delay& delay, sim::Message* message);
  // Releases messages that are held until the next generation, if it has begun.
  void ReleaseOutliving();
  bool MayStayAway() const;
  void Befall(const RpcFault& fault, sim::Message* message,
              sim::OpenCall* call);
  std::vector<Choice> AlternativesOfOutliving(const Budget& budget) const;
  void Quiet();
  void PassTime();
  void Expire(sim::Process process);
  void Forge(const Choice& choice);
  void RefuseLoan(bool until_a_second_passes);
  template <typename Request>
  void AskUntilAnswered(std::function<void()> then,
                        const Request& request = Request());
  void AskForCheckpoint(std::optional<uint64_t> step);

  const Scenario scenario_;
  const Tracing tracing_;
  std::vector<std::string> trace_;
  sim::World world_;
  sim::StopCommand stop_{&world_};
  // By process.
  std::vector<ProcessState> processes_;
  // The last Restore that the coordinator sent, by ps.
  std::map<uint32_t, proto::RestoreRequest> restores_;
  int rounds_ = 0;
  int events_ = 0;
  bool variables_ready_ = false;
  bool stop_begun_ = false;
  int applies_ = 0;
  bool expire_due_ = false;
  sim::DiskFault disk_fault_ = sim::DiskFault::kNone;
  // Clients that lend nothing and are lent nothing.
  std::set<sim::Node> unlinked_;
  // Whether the tensors of the answer that is being delivered cannot be lent.
  bool values_not_lent_ = false;
  // The number of calls so far to which each fault might apply.
  std::vector<int> calls_made_;
};

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_SCHEDULE_H_

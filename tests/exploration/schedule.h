// A cluster so small that what can happen to it can be gone through: two
// shards, one beside the coordinator, two workers and an operator, and a
// schedule of all that happens to them, of which every deviation from the usual
// one is chosen by hand.
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
// Rounds after which what is reborn late comes, and the latest of messages:
// whoever was to be given up has been given up.
inline constexpr int kLate = 7;

// When a message comes that is held up.
struct Delay {
  // Places in the canonical order, in links of the chain that led to it.
  int hops = 0;
  // 1: when nothing else is in flight; 1 + n: n rounds later.
  int hold = 0;
  // When the next generation trains; places are counted from there.
  bool until_next_generation = false;
};

// Something that may happen. All but kNext are deviations from the canonical
// order.
struct Choice {
  enum Kind {
    // The message at the head; where none may be delivered: messages that were
    // held up arrive, what is dead is reborn, or a second passes.
    kNext,
    // Message `serial` overtakes those before it.
    kDeliver,
    // The message at the head is held up.
    kSlow,
    // A second passes while messages are in flight.
    kTime,
    // The message at the head, or its answer, does not arrive: its caller hears
    // UNAVAILABLE.
    kLose,
    // It arrives, and after `delay` again.
    kTwice,
    // Its caller hears DEADLINE_EXCEEDED, and it arrives after `delay`.
    kLateArrival,
    // `process` dies; it is reborn after `rounds`, 0 is when nothing is in
    // flight; a worker that the job does not need, maybe never.
    kCrash,
    // `process`, a worker, leaves, exits, and is reborn.
    kStepDown,
    // The lease of `process` runs out although it lives.
    kExpire,
    // What the message at the head asks of the disk fails: before (rounds 0) or
    // after (1) it was done.
    kDiskFails,
    // A stranger tells the shard of `process` the `serial`-th of its forgeries
    // (stranger.h).
    kForged,
    // An operator has the job stop; when it has, all begin again.
    kStop,
    // What the message at the head is to lend is not lent; `rounds` 1: nor
    // anything else between that worker and a ps until a second passes.
    kNotLent,
  };
  Kind kind = kNext;
  uint64_t serial = 0;
  Delay delay;
  sim::Process process = 0;
  int rounds = 0;

  std::string ToString() const;
};

// What still may happen on one path.
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

// One fault of one call, for RPCs that are gone through one by one.
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
  // Which of the calls of that name, from 1, sent again or not.
  int occurrence = 1;
  // As in Choice.
  Delay delay;
  // Counts only calls between these.
  std::optional<sim::Node> from;
  std::optional<sim::Node> to;
};

// What is trained, by whom, and what else is done meanwhile.
struct Scenario {
  sim::Job job;
  sim::World::MakeWorker make_worker = sim::MakeScriptedWorker;
  // There is a stranger that speaks in the coordinator's name.
  bool stranger = false;
  // An operator asks for the status and for a checkpoint when there are
  // variables.
  bool operator_asks = false;
  // An operator has the job stop when there are variables.
  bool operator_stops = false;
  // The lease of worker 1 runs out when it has been given this many answers to
  // Apply, although it lives. 0: never.
  int expire_after_applies = 0;
  std::vector<RpcFault> faults;
  // There is no deviation before a worker has heard that variables are there.
  bool starts_undisturbed = false;
  // Of the delays of messages those of 4 hops, and until nothing else is in
  // flight.
  bool few_delays = false;
  // Messages come twice, the second time in the next generation, and nothing
  // else becomes of them; only ps crash, while there is such a message.
  bool calls_outlive_generation = false;
};

// Time stands still but for rounds of a second, in which the machines tick and
// callers repeat what they could not send.
//
// Two schedules of one scenario in which the same choices are taken are the
// same.
class Schedule : public sim::Scheduler, public sim::Observer {
 public:
  // What is traced: nothing, all that happens, or lines of a transcript
  // (transcript.h).
  enum class Tracing { kNone, kAll, kTranscript };
  explicit Schedule(const Scenario& scenario, Tracing tracing = Tracing::kNone);

  // What may happen now beside kNext.
  std::vector<Choice> Alternatives(const Budget& budget) const;
  // Takes it out of the budget, where one is given.
  void Take(const Choice& choice, Budget* budget = nullptr);
  // The job has ended for all, or a promise is broken.
  bool over() const { return world_.finished() || !violation().empty(); }
  const std::string& violation() const { return world_.violation(); }
  // Two with the same fingerprint have the same future, but for a collision of
  // 64 bits: it is made of all that each node was ever given, in order, and of
  // what is in flight.
  uint64_t Fingerprint(const Budget& budget) const;
  // Of the outcome: values and journal.
  uint64_t EndFingerprint() const { return world_.EndFingerprint(); }
  const std::vector<std::string>& trace() const { return trace_; }
  const sim::World& world() const { return world_; }

 private:
  struct ProcessState {
    // Has done its work: it is not reborn.
    bool for_good = false;
    // Until it is reborn; 0: when nothing is in flight.
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

  // In the order of delivery.
  static bool Precedes(const sim::Message& a, const sim::Message& b);
  // Whether what one tells the other is delivered in order.
  static bool IsOrdered(sim::Node from, sim::Node to);
  // One before it has not been delivered.
  bool Waits(const sim::Message& message) const;
  std::vector<const sim::Message*> Deliverable() const;
  bool IsIncluded(const Delay& delay) const;
  bool IsWorker(sim::Process process) const {
    return process >= sim::kFirstWorkerProcess;
  }
  const sim::Message* Head() const;
  void HoldUp(const Delay& delay, sim::Message* message);
  // Held until the next generation, where that has begun.
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
  // By ps, what the coordinator told it last.
  std::map<uint32_t, proto::RestoreRequest> restores_;
  int rounds_ = 0;
  int events_ = 0;
  bool variables_ready_ = false;
  bool stop_begun_ = false;
  int applies_ = 0;
  bool expire_due_ = false;
  sim::DiskFault disk_fault_ = sim::DiskFault::kNone;
  // Those that lend nothing, and to whom nothing is lent.
  std::set<sim::Node> unlinked_;
  // The answer that is being delivered.
  bool values_not_lent_ = false;
  // By fault, the calls that it may be about.
  std::vector<int> calls_made_;
};

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_SCHEDULE_H_

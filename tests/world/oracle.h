// Knows what the promises say that everything has to be.
#ifndef HOLDFAST_TESTS_WORLD_ORACLE_H_
#define HOLDFAST_TESTS_WORLD_ORACLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/push_id.h"
#include "ps_server/shard/shard.h"
#include "tests/world/job.h"

namespace holdfast::sim {

class Disk;

// Synchronous: the values of a version follow from the Commits of its
// generation and from what that began with, and are computed here apart from
// the store: one loop over all elements, the mean (or sum) in the order of S,
// TensorFlow's momentum.
//
// Asynchronous: the values tell which pushes they are made of (job.h).
//
// Each check returns what promise is broken; empty: none.
class Oracle {
 public:
  // A version: its generation and step.
  using Cut = std::pair<uint64_t, uint64_t>;

  // `job` must outlive the oracle.
  explicit Oracle(const Job* job);

  // ---- What machines say ----

  std::string OnRestore(const proto::RestoreRequest& request, const Disk& disk);
  std::string OnCommit(const proto::CommitRequest& request);
  // An answer holds this ticket, for the first time or again.
  std::string OnTicket(uint64_t generation, const PushId& push,
                       uint64_t ticket);
  // Somebody is told that steps up to `step` of the generation are final.
  void OnDurable(uint64_t generation, uint64_t step);
  // What a shard reads out, whole slices of it, and rows.
  std::string CheckPulled(uint32_t ps, const proto::PullRequest& request,
                          const PullReply& reply) const;

  // ---- What workers do, and are told ----

  // Synchronous: the push is made of what was pulled as `version` [R7].
  std::string OnComputed(uint64_t generation, const PushId& push,
                         uint64_t version, const Values& values,
                         float loss_scale);
  std::string OnVerdict(uint64_t generation, const PushId& push,
                        proto::Verdict verdict);
  // Asynchronous: what the holder of a ticket gives, which it fills in.
  Given& GivenOf(uint64_t generation, const PushId& push) {
    return given_[generation].at(push);
  }
  // Verdicts up to `sequence` are final.
  void OnDurableThrough(uint64_t generation, const WorkerLife& life,
                        uint64_t sequence);

  // An operator is told that RateFactorOf(step) holds from `step` on.
  std::string OnRateSet(uint64_t step, const Disk& disk);

  // An operator's wish reaches a coordinator while `open_step` is open: no
  // other step opens in that generation, and no ticket is handed out (E2).
  void OnStopAsked(uint64_t generation, uint64_t open_step);

  // ---- What is on disk ----

  // What the journal names can be gone on from, is of one line of generations,
  // and is cuts [R8].
  std::string CheckJournal(const Disk& disk) const;
  std::string CheckCheckpoint(const Disk& disk, const Cut& name) const;

  // ---- The end ----

  // Of a job that is STOPPED at `step`: that is what the journal goes on from,
  // and all that was told to count is in it (E3).
  std::string CheckStopped(const Disk& disk, uint64_t generation,
                           uint64_t step);

  // The last checkpoint is the end of the job, and what was told to be final is
  // in it; without checkpoints, the last version of `generation` is.
  std::string CheckFinal(const Disk& disk) const;
  std::string CheckFinal(uint64_t generation) const;

  // ---- What it knows ----

  using Contributions = std::vector<proto::StepContribution>;
  // What was committed, by generation and step.
  const std::map<Cut, Contributions>& steps() const { return steps_; }
  const std::map<uint64_t, std::map<PushId, uint64_t>>& tickets() const {
    return tickets_;
  }
  const std::map<uint64_t, std::map<PushId, proto::Verdict>>& told() const {
    return told_;
  }
  const std::map<uint64_t, std::map<PushId, Given>>& given() const {
    return given_;
  }
  Batch BatchOf(uint64_t generation, uint64_t step,
                const proto::StepContribution& contribution) const;
  static PushId PushOf(const proto::StepContribution& contribution);
  const Values* ValuesAt(const Cut& cut) const;

 private:
  struct State {
    Values values;
    // Momentum's, of trainable variables.
    Values slots;
    float loss_scale = 0;
    uint64_t steps_at_loss_scale = 0;
    // Tickets that its steps have used.
    std::set<uint64_t> spent;
    // With which each of its steps was made.
    std::vector<float> rates;
  };
  // Of an asynchronous job: what values are made of.
  struct Made {
    std::vector<const Given*> pushes;
    std::vector<std::pair<uint64_t, PushId>> by;
  };

  State Initial() const;
  // With one more step, of these batches.
  void MakeStep(const std::vector<Batch>& batches, float rate,
                State* state) const;
  std::string CheckRateIsKept(uint64_t step, const Disk& disk) const;
  // Of a step, by the changes that the journal has.
  float RateAt(const proto::Journal& journal, uint64_t step) const;
  // One that several versions may go by.
  Cut Origin(Cut cut) const;
  // Whether what `cut` holds is in `end`, too, and was made only once for both.
  bool IsOnLine(const Cut& cut, Cut end) const;
  // Whether `end` goes back to something that was made in the generation.
  bool Holds(uint64_t generation, Cut end) const;
  // The pushes that a row of kTickets, from `row`, is made of.
  std::string Decode(const float* row, Made* made) const;
  // Of a table, by the values of the first variable.
  std::string CheckTable(const proto::ReadRange& range,
                         const TensorPiece& piece, const Values& values) const;
  std::string CheckRows(const std::string& variable, const float* values,
                        size_t size, const Made& made) const;
  std::string CheckSynchronous(const Disk& disk, const Cut& name) const;
  std::string CheckAsynchronous(const Disk& disk, const Cut& name,
                                Made* made) const;
  std::string CheckVerdicts(const Disk& disk, const Cut& end,
                            bool damaged) const;
  std::string CheckFinalState(const proto::Journal& journal,
                              const State& state) const;

  const Job& job_;
  // Where a generation went on from; absent: first values.
  std::map<uint64_t, std::optional<Cut>> origins_;
  std::map<uint64_t, uint64_t> told_durable_;
  // By generation, the step that was open when the job was asked to stop.
  std::map<uint64_t, uint64_t> stop_asked_;
  // Steps from which a change of the learning rate was told to hold.
  std::set<uint64_t> rates_told_;
  // Generations that ended so.
  std::set<uint64_t> stopped_;
  // Synchronous.
  std::map<Cut, State> history_;
  std::map<Cut, Contributions> steps_;
  std::map<uint64_t, std::set<PushId>> computed_;
  std::map<uint64_t, std::set<PushId>> accepted_;
  std::map<uint64_t, std::map<PushId, proto::Verdict>> told_;
  // By generation: who held a ticket.
  std::map<uint64_t, std::map<PushId, uint64_t>> tickets_;
  // Asynchronous.
  std::map<uint64_t, std::map<PushId, Given>> given_;
  // By ticket: those that have had it, in that order.
  std::map<uint64_t, std::vector<std::pair<uint64_t, PushId>>> holders_;
  std::map<uint64_t, std::map<WorkerLife, uint64_t>> told_through_;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_ORACLE_H_

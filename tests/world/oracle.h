// SPDX-License-Identifier: Apache-2.0

// Knows what every value and message must be if all promises are kept.
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

// Synchronous jobs: the values of a version follow from the Commits of its
// generation and from the state with which that generation began. They are
// computed here independently of the store: one loop over all elements, the
// mean (or sum) in the order of S, and TensorFlow's momentum.
//
// Asynchronous jobs: the values show which pushes they are made of (job.h).
//
// Each check returns the promise that is broken, or an empty string.
class Oracle {
 public:
  // A version: its generation and step.
  using Cut = std::pair<uint64_t, uint64_t>;

  // `job` must outlive the oracle.
  explicit Oracle(const Job* job);

  // ---- What machines say ----

  std::string OnRestore(const proto::RestoreRequest& request, const Disk& disk);
  std::string OnCommit(const proto::CommitRequest& request);
  // An answer carries this ticket, for the first time or again.
  std::string OnTicket(uint64_t generation, const PushId& push,
                       uint64_t ticket);
  // A node is told that steps up to `step` of the generation are final.
  void OnDurable(uint64_t generation, uint64_t step);
  // Checks what a shard returns: whole slices, and rows.
  std::string CheckPulled(uint32_t ps, const proto::PullRequest& request,
                          const PullReply& reply) const;

  // ---- What workers do, and are told ----

  // Synchronous: a push was computed from the values pulled as `version` [R7].
  std::string OnComputed(uint64_t generation, const PushId& push,
                         uint64_t version, const Values& values,
                         float loss_scale);
  std::string OnVerdict(uint64_t generation, const PushId& push,
                        proto::Verdict verdict);
  // Asynchronous: what the holder of a ticket gives, to be filled in by the
  // holder.
  Given& GivenOf(uint64_t generation, const PushId& push) {
    return given_[generation].at(push);
  }
  // The life was told that verdicts up to `sequence` are final.
  void OnDurableThrough(uint64_t generation, const WorkerLife& life,
                        uint64_t sequence);

  // An operator was told that RateFactorOf(step) holds from `step` on.
  std::string OnRateSet(uint64_t step, const Disk& disk);

  // A coordinator gets an operator's request to stop while `open_step` is open:
  // no other step may open in that generation, and no ticket may be handed out
  // (E2).
  void OnStopAsked(uint64_t generation, uint64_t open_step);

  // ---- What is on disk ----

  // The checkpoints that the journal names can be resumed from, belong to one
  // line of generations, and are consistent cuts [R8].
  std::string CheckJournal(const Disk& disk) const;
  std::string CheckCheckpoint(const Disk& disk, const Cut& name) const;

  // ---- The end ----

  // For a job that is STOPPED at `step`: the journal resumes from that step,
  // and everything that was reported as counted is in it (E3).
  std::string CheckStopped(const Disk& disk, uint64_t generation,
                           uint64_t step);

  // The last checkpoint is the end of the job, and contains everything that was
  // reported as final. Without checkpoints, the same holds for the last version
  // of `generation`.
  std::string CheckFinal(const Disk& disk) const;
  std::string CheckFinal(uint64_t generation) const;

  // ---- What it knows ----

  using Contributions = std::vector<proto::StepContribution>;
  // The contributions that were committed, by generation and step.
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
    // The momentum of trainable variables.
    Values slots;
    float loss_scale = 0;
    uint64_t steps_at_loss_scale = 0;
    // Tickets that the steps so far have used.
    std::set<uint64_t> spent;
    // The learning rate of each step so far.
    std::vector<float> rates;
  };
  // For an asynchronous job: the pushes that values are made of.
  struct Made {
    std::vector<const Given*> pushes;
    std::vector<std::pair<uint64_t, PushId>> by;
  };

  State Initial() const;
  // Advances `state` by one step of these batches.
  void MakeStep(const std::vector<Batch>& batches, float rate,
                State* state) const;
  std::string CheckRateIsKept(uint64_t step, const Disk& disk) const;
  // The learning rate of a step by the changes in the journal.
  float RateAt(const proto::Journal& journal, uint64_t step) const;
  // The cut as named by the generation that made it; later generations that
  // resumed behind it share it.
  Cut Origin(Cut cut) const;
  // Whether the state of `cut` is also part of `end`, and was made only once
  // for both.
  bool IsOnLine(const Cut& cut, Cut end) const;
  // Whether `end` belongs to the generation, or to one that goes back to it.
  bool Holds(uint64_t generation, Cut end) const;
  // Finds the pushes that a row of kTickets, at `row`, is made of.
  std::string Decode(const float* row, Made* made) const;
  // Checks rows of the table against the values of the first variable.
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
  // The checkpoint from which a generation resumed; absent: it began with first
  // values.
  std::map<uint64_t, std::optional<Cut>> origins_;
  std::map<uint64_t, uint64_t> told_durable_;
  // The step that was open when the job was asked to stop, by generation.
  std::map<uint64_t, uint64_t> stop_asked_;
  // Steps from which a change of the learning rate was reported to hold.
  std::set<uint64_t> rates_told_;
  // Generations that ended with STOPPED.
  std::set<uint64_t> stopped_;
  // Synchronous.
  std::map<Cut, State> history_;
  std::map<Cut, Contributions> steps_;
  std::map<uint64_t, std::set<PushId>> computed_;
  std::map<uint64_t, std::set<PushId>> accepted_;
  std::map<uint64_t, std::map<PushId, proto::Verdict>> told_;
  // The ticket that each push has held, by generation.
  std::map<uint64_t, std::map<PushId, uint64_t>> tickets_;
  // Asynchronous.
  std::map<uint64_t, std::map<PushId, Given>> given_;
  // The generations and pushes that have had each ticket, in that order.
  std::map<uint64_t, std::vector<std::pair<uint64_t, PushId>>> holders_;
  std::map<uint64_t, std::map<WorkerLife, uint64_t>> told_through_;
};

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_ORACLE_H_

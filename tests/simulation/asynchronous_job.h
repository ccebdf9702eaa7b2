// An asynchronous job to simulate: its variables and gradients, from whose
// values one can tell which pushes they are made of, and workers that follow
// docs/asynchronous.md.
#ifndef HOLDFAST_TESTS_SIMULATION_ASYNCHRONOUS_JOB_H_
#define HOLDFAST_TESTS_SIMULATION_ASYNCHRONOUS_JOB_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "ps_server/protocol/push_id.h"
#include "tests/simulation/simulation.h"

namespace holdfast {

struct AsynchronousJob {
  // When it is declared; each variable has as many rows.
  uint32_t num_ps = 1;
  uint32_t workers = 1;
  uint32_t depth = 1;
  std::optional<uint32_t> bound;
  bool momentum = false;
  // At most 20.
  uint64_t tickets = 12;
  proto::Checkpoints checkpoints = {};
  // Workers have pushes applied with scalars that are not their tickets', or
  // without the receipts of other shards, which is to be refused [P2]; and tell
  // ps 0 that they know all verdicts [P3].
  bool faulty = false;
};

// All variables begin at 0, and each has a row on each ps. A push whose clip
// factor is c and that is the n-th for ticket i, from 0, adds to every row
//
//   count     c                    (gradient -1, SGD, rate 1)
//   tickets   at [i]: c, c 4^n     (gradients -1 and -4^n)
//   rates     c 2^-i               (gradient -1, rate 2^-i by schedule)
//   momentum  one step of gradient -1, where c is 1
//
// All of it is exact in float32 in any order: c is 0, 1/2 or 1, and there are
// at most 20 tickets.
inline constexpr char kCount[] = "count";
inline constexpr char kTickets[] = "tickets";
inline constexpr char kRates[] = "rates";
inline constexpr char kMomentum[] = "momentum";
inline constexpr float kMomentumRate = 0.25f;
inline constexpr float kMomentumKept = 0.5f;

proto::Declaration MakeDeclaration(const AsynchronousJob& job);

// Bytes of a push on one ps, which are those of its trainable values too.
int64_t PushBytes(const AsynchronousJob& job);

// What one push gives, and what was told about it.
struct Given {
  uint64_t ticket = 0;
  // How many pushes had the ticket before.
  int attempt = 0;
  // Known when the worker has decided it.
  std::optional<float> clip_factor;
  bool not_finite = false;
  uint64_t examples = 0;
  std::set<uint32_t> accepted_by;
};

// Expects `values` to be made of pushes that gave these.
void ExpectMadeOf(const AsynchronousJob& job, const std::vector<Given>& counted,
                  const Values& values);

// The cluster of one schedule, and a book of the tickets.
class AsynchronousCluster : public SimulatedCluster {
 public:
  AsynchronousCluster(const AsynchronousJob& job, const Options& options)
      : SimulatedCluster(options), job(job) {}

  void OnTicket(uint64_t generation, const PushId& push,
                uint64_t ticket) override;
  // The first push that has it, or has it after others.
  virtual void OnTaken(uint64_t generation, const PushId& push) {}
  // What workers say to shards, as it arrives there.
  virtual void Apply(uint32_t ps, const proto::ApplyRequest& request,
                     Reply<proto::ApplyResponse> reply);

  const AsynchronousJob job;
  // By generation: who held a ticket.
  std::map<uint64_t, std::map<PushId, Given>> given;
  // By generation: up to where a life was told that its verdicts are final.
  std::map<uint64_t, std::map<WorkerLife, uint64_t>> told_through;
  // Of all that were told.
  uint64_t max_staleness = 0;
  uint64_t refused_for_room = 0;
  uint64_t refused_applies = 0;

 private:
  // By ticket: pushes that had it.
  std::map<uint64_t, int> attempts_;
};

// A worker that follows docs/asynchronous.md.
class AsynchronousWorker : public SimulatedWorker {
 public:
  AsynchronousWorker(AsynchronousCluster* cluster, uint32_t index,
                     uint64_t nonce)
      : SimulatedWorker(cluster, index, nonce), cluster_(cluster) {}

 protected:
  proto::Declaration MakeDeclaration() const override {
    return holdfast::MakeDeclaration(cluster_->job);
  }
  void OnGeneration() override;
  void OnPlaced() override { AskForTicket(); }
  // A shard or the coordinator has said FENCED.
  virtual void OnFenced() { Stall(); }  // its session is told more
  WorkerLife life() const { return LifeOf(sender()); }

 private:
  struct Push {
    uint64_t sequence = 0;
    proto::Ticket ticket;
    float clip_factor = 1;
    // By ps: the version that was read.
    std::map<uint32_t, uint64_t> versions;
    int parts_out = 0;
    std::set<uint32_t> applied;
    uint64_t staleness = 0;
    // By ps, of acknowledgments and of applications.
    std::map<uint32_t, uint64_t> held;
    std::map<uint32_t, uint64_t> applied_at;
  };

  PushId IdOf(uint64_t sequence) const {
    return {life(), PushSequence(sequence)};
  }
  Given& GivenOf(uint64_t sequence) const {
    return cluster_->given[sender().generation()].at(IdOf(sequence));
  }
  void AskForTicket();
  void SendAsk();
  void Tell(proto::TakeTicketRequest request);
  void OnTold(const proto::TakeTicketRequest& request,
              const proto::TakeTicketResponse& response);
  void WorkOn();
  void Compute(uint64_t sequence);
  void SendParts(Push* push, const Given& given);
  void SendPart(uint32_t ps, const PushPart& part);
  void Apply(uint64_t sequence);
  proto::ApplyRequest ApplyOf(uint32_t ps, uint64_t sequence) const;
  // What a shard is told of the verdicts before a push.
  uint64_t AcknowledgedTo(uint32_t ps, uint64_t sequence) const;
  void ApplyWrongly(uint32_t ps, uint64_t sequence);
  void SendApply(uint32_t ps, uint64_t sequence);
  void OnApplied(uint32_t ps, uint64_t sequence,
                 const proto::ApplyResponse& response);

  AsynchronousCluster* const cluster_;
  // All of the generation.
  uint64_t sequence_ = 0;
  bool asking_ = false;
  // In the order of their sequences.
  std::vector<Push> waiting_;
  std::map<uint64_t, Push> working_;
  std::set<uint64_t> applying_;
  // Not known to be booked.
  std::map<uint64_t, proto::SpentTicket> spent_;
  std::set<uint64_t> booked_;
  uint64_t acked_through_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_ASYNCHRONOUS_JOB_H_

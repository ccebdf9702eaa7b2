// A synchronous job to simulate: its variables and gradients, workers that
// follow docs/life_of_a_step.md, and what the variables must be after any of
// its steps.
#ifndef HOLDFAST_TESTS_SIMULATION_SYNCHRONOUS_JOB_H_
#define HOLDFAST_TESTS_SIMULATION_SYNCHRONOUS_JOB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/protocol/push_id.h"
#include "tests/simulation/simulation.h"

namespace holdfast {

struct SynchronousJob {
  uint32_t n = 1;
  uint32_t m = 1;
  uint32_t num_ps = 1;
  uint64_t steps = 4;
  Faults faults;
  // Some contributions have weight 0.
  bool empty_handed = false;
  // 0: examples by step.
  uint64_t tickets = 0;
  // With policy CONTINUE: how few may go on. 0: WAIT.
  uint32_t min_replicas = 0;
  // Of the ClusterSpec, where there are fewer than m. 0: m.
  uint32_t cluster_workers = 0;
  proto::Checkpoints checkpoints = {};
  proto::Consistency::Aggregation aggregation = proto::Consistency::MEAN;
  // Workers offer pushes that not all shards hold, which is to be refused [P1].
  bool faulty = false;
};

std::string Name(const SynchronousJob& job);

PushId PushOf(const proto::StepContribution& contribution);

// The examples behind a gradient.
struct Batch {
  // Unlike for each.
  uint64_t number;
  // 0 means weight 0.
  uint64_t examples;

  // Why there are none, of some.
  bool not_finite() const { return examples == 0 && number % 2 == 1; }
};

// Values, momentum's accumulators, and the loss scale, which gradients depend
// on here: 8 at first, doubled after two steps without an overflow.
struct TrainingState {
  Values values;
  Values accumulators;
  float loss_scale = 8;
  int steps_at_loss_scale = 0;
};

// The cluster of one schedule, and a book of the steps that were made.
class SynchronousCluster : public SimulatedCluster {
 public:
  SynchronousCluster(const SynchronousJob& job, const Options& options);
  // With the job's options, and `seed`.
  SynchronousCluster(const SynchronousJob& job, uint64_t seed);

  void OnSent(const ShardRequest& request) override;
  void OnTicket(uint64_t generation, const PushId& push,
                uint64_t ticket) override;
  // A worker has pulled this.
  virtual void OnPulled(uint32_t ps, const PullReply& reply) {}
  // A worker was told so of its push.
  void OnVerdict(uint64_t generation, const PushId& push,
                 proto::Verdict verdict);

  // Of a contribution in a generation.
  Batch BatchOf(uint64_t generation, uint64_t step,
                const proto::StepContribution& contribution) const;

  static TrainingState First();
  // What a step of a generation makes of a state, computed apart from the
  // store: one loop over all elements, the mean (or sum) in the order of S,
  // TensorFlow's momentum.
  void MakeStep(uint64_t generation, uint64_t step, TrainingState* state) const;

  const SynchronousJob job;
  // What the coordinator committed, by generation.
  std::map<uint64_t, std::map<uint64_t, std::vector<proto::StepContribution>>>
      steps;
  // By generation.
  std::map<uint64_t, std::map<PushId, uint64_t>> tickets;
  std::map<uint64_t, std::map<PushId, proto::Verdict>> told;
  // Offers of pushes that not all shards held.
  uint64_t refused_offers = 0;

 protected:
  // Of the step that is committed first by this message.
  virtual void OnStep(const proto::CommitRequest& request) {}

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::string> commits_;
};

// A worker that follows docs/life_of_a_step.md.
class SynchronousWorker : public SimulatedWorker {
 public:
  SynchronousWorker(SynchronousCluster* cluster, uint32_t index, uint64_t nonce)
      : SimulatedWorker(cluster, index, nonce), cluster_(cluster) {}

 protected:
  proto::Declaration MakeDeclaration() const override;
  void OnGeneration() override;
  void OnPlaced() override { PullAll(0); }
  // Leaves when it has what it waits for, but not much later.
  void OnDone() override;

 private:
  void PullAll(uint64_t version);
  void PullFrom(uint32_t ps, uint64_t version);
  void OnPulled(uint32_t ps, const PullReply& reply);
  void ComputeStep(uint64_t step);
  void NextSeat();
  void EndSeats();
  void TakeTicket();
  void PushSeat(const Batch& batch);
  void SendParts(uint64_t sequence, const Batch& batch, uint32_t from_ps,
                 uint32_t to_ps, std::function<void()> next);
  proto::ContributeRequest OfferOf(uint64_t sequence, const Batch& batch) const;
  void OfferSeat(uint64_t sequence, const Batch& batch);
  // Offers what only the first shards, or none, hold.
  void OfferUnheld(uint64_t sequence, const Batch& batch, uint32_t held_by);
  void OnVerdict(uint64_t sequence, proto::Verdict verdict);
  void SendOffer(const proto::ContributeRequest& request);
  void NextWhenTold();
  // Of what may be told beside a verdict on a push: whether it is over.
  bool IsOver(proto::Verdict verdict);

  SynchronousCluster* const cluster_;
  bool done_ = false;
  // What follows is of the generation.
  // It has the last version.
  bool finished_ = false;
  std::map<uint32_t, uint64_t> pulled_;
  // By ps, of that version.
  std::map<uint32_t, float> loss_scales_;
  uint64_t step_ = 0;
  uint32_t seat_ = 0;
  uint64_t sequence_ = 0;
  // Held while a newer version is pulled for it.
  std::optional<uint64_t> ticket_;
  std::set<uint64_t> told_;
  uint64_t acked_through_ = 0;
  int outstanding_ = 0;
  // By ps, of the push under way.
  std::vector<uint64_t> receipts_;
  int open_offers_ = 0;
  bool pushed_all_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SIMULATION_SYNCHRONOUS_JOB_H_

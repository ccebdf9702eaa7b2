#ifndef HOLDFAST_TESTS_EXPLORATION_ORACLE_H_
#define HOLDFAST_TESTS_EXPLORATION_ORACLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::exploration {

// Of one variable: its one element, and its momentum in synchronous jobs.
struct Values {
  float value = 0;
  float slot = 0;
  friend bool operator==(const Values& a, const Values& b) {
    return a.value == b.value && a.slot == b.slot;
  }
};

// The disk's contents; whatever is done to it has been done whole.
struct Directory {
  using Name = std::pair<uint64_t, uint64_t>;  // generation, step
  proto::Journal journal;
  std::map<Name, proto::Manifest> manifests;
  // By ps.
  std::map<Name, std::map<uint32_t, Values>> shares;

  static Name NameOf(const proto::CheckpointName& name) {
    return {name.generation(), name.step()};
  }
};

// Knows what the promises say that variables have to be. There are two, "a" on
// ps 0 and "b" on ps 1, of one element each, and all values are whole numbers
// or halves of them, so that sums are exact.
//
// Synchronous: the gradient of a variable depends on the step and seat (by
// ticket: on the ticket) and on the other variable's value, so that a worker
// that computes on two versions is found. A version's values follow from the
// Commits of its generation.
//
// Asynchronous: the gradient of ticket t is 4^t, so that the digits of a value
// say how often each ticket was applied.
//
// Each method returns what promise is broken; empty: none.
class Oracle {
 public:
  explicit Oracle(const proto::Declaration& declaration);

  // (generation, worker, incarnation, sequence).
  using Push = std::tuple<uint64_t, uint32_t, uint64_t, uint64_t>;
  using Pair = std::array<Values, 2>;

  // What a worker sends that has pulled `pulled` of version `version`.
  std::string Compute(const Push& push, uint64_t version, const Pair& pulled,
                      uint32_t seat, std::optional<uint64_t> ticket,
                      std::array<float, 2>* gradient);
  std::string OnRestore(const proto::RestoreRequest& request,
                        const Directory& directory);
  std::string OnCommit(const proto::CommitRequest& request);
  // A worker was told.
  std::string OnVerdict(const Push& push, proto::Verdict verdict);
  // A shard has `value` at `version`.
  std::string CheckShard(uint32_t ps, uint64_t generation, uint64_t version,
                         float value) const;
  // What the journal names can be gone on from, and is one cut [R8].
  std::string CheckDirectory(const Directory& directory) const;
  // The last checkpoint is the end of the job; without checkpoints, the last
  // version of `generation` is.
  std::string CheckFinal(const Directory& directory) const;
  std::string CheckFinal(uint64_t generation) const;

 private:
  struct State {
    Pair variables;
    // How often each was accepted.
    std::map<uint64_t, int> tickets;
  };

  bool asynchronous() const {
    return declaration_.consistency().has_asynchronous();
  }
  State Initial() const;
  State Next(const State& state, const proto::CommitRequest& request) const;
  // A ticket is in the values more than once, or they are no sum of gradients.
  std::string Decode(float value, std::set<uint64_t>* tickets) const;
  std::string CheckFinalState(const State& state) const;

  const proto::Declaration declaration_;
  struct Sent {
    std::array<float, 2> gradient;
    std::optional<uint64_t> ticket;
  };
  std::map<Push, Sent> pushes_;
  std::set<Push> accepted_;
  std::set<Push> refused_;
  // By generation and version.
  std::map<std::pair<uint64_t, uint64_t>, State> history_;
};

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_ORACLE_H_

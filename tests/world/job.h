// SPDX-License-Identifier: Apache-2.0

// The job that is trained in a simulated world.
#ifndef HOLDFAST_TESTS_WORLD_JOB_H_
#define HOLDFAST_TESTS_WORLD_JOB_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tensor/tensor_piece.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::sim {

// All elements of each variable, by its name.
using Values = std::map<std::string, std::vector<float>>;

size_t NumElements(const proto::Variable& variable);

// Violations of the protocol by a worker. Each of them must be refused, and
// must not harm anyone else.
enum class Misdeed {
  kNone,
  // Offers a push that only ps 0 holds, then sends it to the other ps.
  kOffersUnheld,
  // Has ps 0 apply a push that only ps 0 holds, then sends it to the other ps.
  kAppliesUnheld,
  // Has ps 0 apply a push with a learning rate other than the ticket's, then
  // with the ticket's.
  kWrongScalars,
  // Reports a push as spent that no shard has, or that only ps 0 has applied.
  kClaimsUnapplied,
  kClaimsHalfApplied,
  // With each push, tells ps 0 that all verdicts before it are known. Unlike
  // the others, this happens every time.
  kAcknowledgesAll,
  // Gives first values other than the declared ones, then the declared ones.
  kGivesOthers,
  // Declares another value of an agreed fact than the job has, once it trains.
  kBringsOtherFact,
};

struct Job {
  std::string name;
  proto::Declaration declaration;
  // The numbers of tasks in the ClusterSpec.
  uint32_t num_ps = 2;
  uint32_t num_workers = 2;
  // First values of the variables that are declared as `given`.
  Values first_values;
  // Whether there is a checkpoint directory.
  bool archive = true;
  absl::Duration lease = absl::Seconds(4);
  absl::Duration resend_after = absl::Seconds(1);
  // How long workers allow their calls to be parked.
  absl::Duration park = absl::Seconds(30);
  // Memory limit of each shard; 0 means unlimited.
  int64_t memory_limit_bytes = 0;
  // In synchronous jobs, some contributions have weight 0.
  bool empty_handed = false;
  // Whether a push is sent to each shard in several parts.
  bool cuts_pushes = false;
  // Clients lend ranges of two elements or more to each ps
  // (docs/protocol/same_host.md), and a message holds one element besides those
  // that are lent. Needs cuts_pushes.
  bool lends = false;
  // In a synchronous job with examples by step, workers compute the gradient
  // for their first seat from the values of the variables as these arrive
  // (Cluster::Pull::AwaitVariable).
  bool computes_early = false;
  // Workers hand in other gradients before those that are to count, and start
  // the push again (Cluster::Push::StartAgain), up to twice. Needs the client.
  bool starts_again = false;
  // For a synchronous job that its evaluations end early: the step at which
  // they do.
  std::optional<uint64_t> ends_at;
  // An operator changes the learning rate. Only for synchronous jobs with a
  // checkpoint directory.
  bool changes_rate = false;
  // Worker 0 pins and reads the last version before it leaves.
  bool evaluates = false;
  // The violation that worker 1 commits, once per job.
  Misdeed misdeed = Misdeed::kNone;
  // At times, workers offer or apply what they must not, and tell ps 0 that
  // they know all verdicts.
  bool faulty = false;
  // Workers declare the table without the variable that it mirrors (AddRows),
  // which must be the only one. The world computes with the variable all the
  // same; what is read of the table takes its place.
  bool tables_alone = false;

  // The job must FAIL, with a reason that contains this; a worker's program
  // that gets an error with this text takes no notice, and hangs. Empty: the
  // job must not fail. Only for workers that are clients.
  std::string fails_with;

  // What workers declare.
  proto::Declaration Declared() const;
  bool asynchronous() const {
    return declaration.consistency().has_asynchronous();
  }
  bool by_ticket() const {
    return asynchronous() || declaration.total_tickets() > 0;
  }
  uint64_t tickets() const {
    return asynchronous() ? declaration.total_steps()
                          : declaration.total_tickets();
  }
  uint64_t steps() const { return declaration.total_steps(); }
  // The number of steps that the job makes.
  uint64_t end() const { return ends_at.value_or(steps()); }
  bool has_evaluator() const { return declaration.has_evaluation(); }
  uint32_t n() const {
    return declaration.consistency().synchronous().replicas_to_aggregate();
  }
  uint32_t m() const {
    return declaration.consistency().synchronous().total_num_replicas();
  }
  bool continues() const {
    return declaration.lost_workers().policy() == proto::LostWorkers::CONTINUE;
  }
};

// The loss of a version; it is lowest at step 4.
double LossOf(uint64_t step);
// The learning rate factor that an operator sets from a step on.
float RateFactorOf(uint64_t step);

// ---- Synchronous jobs ----

// The examples behind a gradient.
struct Batch {
  // Unique to the batch.
  uint64_t number = 0;
  // 0 means weight 0.
  uint64_t examples = 0;

  // Whether a batch has no examples because its gradient is not finite.
  bool not_finite() const { return examples == 0 && number % 2 == 1; }
};
Batch BatchOfSeat(const Job& job, uint64_t step, uint32_t seat);
Batch BatchOfTicket(const Job& job, uint64_t ticket);

// The gradient that a worker computes on a batch, for trainable variables. Each
// element depends on the element after it, so that a gradient computed from a
// mix of two versions is detected. Gradients are fractions, so that another
// order of summation, another weight, or a missing or extra gradient changes
// bits of the result.
Values GradientOf(const Job& job, const Batch& batch, const Values& values,
                  float loss_scale);

// ---- Asynchronous jobs ----
//
// All variables begin at 0, and each has a row on each ps. A push with clip
// factor c that is the n-th push for ticket i (counted from 0) adds to every
// row
//
//   count     c                    (gradient -1, SGD, rate 1)
//   tickets   at [i]: c, c 4^n     (gradients -1 and -4^n)
//   rates     c 2^-i               (gradient -1, rate 2^-i by schedule)
//   momentum  one step of gradient -1, where c is 1
//
// All sums are exact in float32 in any order, because c is 0, 1/2 or 1, and
// there are at most 20 tickets. A job has kTickets, and any of the others.
inline constexpr char kCount[] = "count";
inline constexpr char kTickets[] = "tickets";
inline constexpr char kRates[] = "rates";
inline constexpr char kMomentum[] = "momentum";
inline constexpr float kMomentumRate = 0.25f;
inline constexpr float kMomentumKept = 0.5f;

// ---- Rows of an embedding table ----
//
// A job may have a table besides its first variable [n, k]. Rows 0 to n - 1 of
// the table are the same as those of the variable and get the same gradients
// from every push, so they must have the same values at every version
// (docs/protocol/tables.md, B6). A synchronous step may leave some rows alone:
// a push lacks the rows whose gradient is 0.
inline constexpr char kRows[] = "rows";

// Less than the number of steps between failures, so that chains end.
inline constexpr uint32_t kMaxDeltas = 2;

// Declares the table. The first value of the variable must be a constant.
void AddRows(proto::Declaration* declaration);
bool HasRows(const Job& job);
uint32_t RowLength(const Job& job);
// The ids of the rows that a ps holds, in ascending order.
std::vector<uint64_t> RowsOn(const Job& job, uint32_t ps, uint32_t num_ps);
proto::ReadRange RangeOfRows(const std::vector<uint64_t>& ids);
// The part of `values` (the gradient of the first variable, or its values) that
// corresponds to row `id`.
absl::Span<const float> RowOf(const Job& job, const Values& values,
                              uint64_t id);

// The tensors with which a shard answers `request`. In a job with tables alone,
// rows are returned as ranges of the variable that they mirror.
std::vector<TensorPiece> TensorsOf(const Job& job,
                                   const proto::PullRequest& request,
                                   const std::vector<TensorPiece>& answer);

// Those of `ids` whose rows are in a push with this gradient.
std::vector<uint64_t> RowsOfPush(const Job& job, const Values& gradient,
                                 std::vector<uint64_t> ids);

bool HasVariable(const Job& job, const std::string& name);
// The number of rows of each variable.
uint32_t NumRows(const Job& job);

// The content of one push, and what was reported about it.
struct Given {
  uint64_t ticket = 0;
  // The number of pushes that had the ticket before.
  int attempt = 0;
  // Known once the worker has chosen it.
  std::optional<float> clip_factor;
  bool not_finite = false;
  uint64_t examples = 0;
  bool accepted = false;
};
Values GradientOf(const Job& job, const Given& given);
// The values of all variables after the given pushes.
Values MadeOf(const Job& job, const std::vector<Given>& counted);
// The bytes of a push on one ps, without rows, which equal those of its
// trainable values.
int64_t PushBytes(const Job& job);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_JOB_H_

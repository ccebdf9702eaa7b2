// What is trained in a simulated world.
#ifndef HOLDFAST_TESTS_WORLD_JOB_H_
#define HOLDFAST_TESTS_WORLD_JOB_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"

namespace holdfast::sim {

// By variable, all its elements.
using Values = std::map<std::string, std::vector<float>>;

size_t NumElements(const proto::Variable& variable);

// What a worker does that no worker may do. All of it is to be refused, and to
// harm nobody else.
enum class Misdeed {
  kNone,
  // Offers a push that only ps 0 holds; then has the others hold it.
  kOffersUnheld,
  // Has ps 0 apply a push that only it holds; then has the others hold it.
  kAppliesUnheld,
  // Has ps 0 apply a push with a learning rate that is not the ticket's; then
  // with that.
  kWrongScalars,
  // Tells a push as spent that no shard has, or that only ps 0 has applied.
  kClaimsUnapplied,
  kClaimsHalfApplied,
  // Not once, but always: says to ps 0 that it knows all verdicts before the
  // push.
  kAcknowledgesAll,
  // Gives first values that are not the declared ones; then those.
  kGivesOthers,
};

struct Job {
  std::string name;
  proto::Declaration declaration;
  // Of the ClusterSpec.
  uint32_t num_ps = 2;
  uint32_t num_workers = 2;
  // Of the variables that are declared as `given`.
  Values first_values;
  // Whether there is a checkpoint directory.
  bool archive = true;
  absl::Duration lease = absl::Seconds(4);
  absl::Duration resend_after = absl::Seconds(1);
  // For which workers have their calls parked.
  absl::Duration park = absl::Seconds(30);
  // Of each shard. 0: no limit.
  int64_t memory_limit_bytes = 0;
  // Synchronous: some contributions have weight 0.
  bool empty_handed = false;
  // A push goes to each shard in several parts.
  bool cuts_pushes = false;
  // Clients lend ranges of two elements and more to each ps
  // (docs/protocol/same_host.md), and a message holds one element beside what
  // is lent. Needs cuts_pushes.
  bool lends = false;
  // Of a synchronous job whose evaluations end it early: the step where.
  std::optional<uint64_t> ends_at;
  // An operator changes the learning rate. Synchronous, with a checkpoint
  // directory.
  bool changes_rate = false;
  // Worker 0 pins and reads the last version before it leaves.
  bool evaluates = false;
  // Of worker 1, once in a job.
  Misdeed misdeed = Misdeed::kNone;
  // All workers at times offer or apply what they may not, and tell ps 0 that
  // they know all verdicts.
  bool faulty = false;

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
  // That it makes.
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

// What an evaluator finds of a version: it is best at step 4.
double LossOf(uint64_t step);
// What an operator sets for the learning rate from a step on.
float RateFactorOf(uint64_t step);

// ---- Synchronous jobs ----

// The examples behind a gradient.
struct Batch {
  // Unlike for each.
  uint64_t number = 0;
  // 0 means weight 0.
  uint64_t examples = 0;

  // Why there are none, of some.
  bool not_finite() const { return examples == 0 && number % 2 == 1; }
};
Batch BatchOfSeat(const Job& job, uint64_t step, uint32_t seat);
Batch BatchOfTicket(const Job& job, uint64_t ticket);

// What a worker computes on a batch. All of it depends on the element after it,
// so that a gradient of two versions is found, and is a fraction, so that
// another order of summation, another weight, or one more or less of them gives
// other bits. Of trainable variables.
Values GradientOf(const Job& job, const Batch& batch, const Values& values,
                  float loss_scale);

// ---- Asynchronous jobs ----
//
// All variables begin at 0, and each has a row on each ps. A push whose clip
// factor is c and that is the n-th for ticket i, from 0, adds to every row
//
//   count     c                    (gradient -1, SGD, rate 1)
//   tickets   at [i]: c, c 4^n     (gradients -1 and -4^n)
//   rates     c 2^-i               (gradient -1, rate 2^-i by schedule)
//   momentum  one step of gradient -1, where c is 1
//
// All of it is exact in float32 in any order: c is 0, 1/2 or 1, and there are
// at most 20 tickets. A job has kTickets, and any of the others.
inline constexpr char kCount[] = "count";
inline constexpr char kTickets[] = "tickets";
inline constexpr char kRates[] = "rates";
inline constexpr char kMomentum[] = "momentum";
inline constexpr float kMomentumRate = 0.25f;
inline constexpr float kMomentumKept = 0.5f;

// ---- Rows of an embedding table ----
//
// A job may have a table beside its first variable [n, k]: its rows 0 to n - 1
// are those of the variable, and get the same gradients by every push. So they
// are to have the same values at every version (docs/protocol/tables.md, B6). A
// synchronous step may leave some of them alone: a push lacks the rows whose
// gradient is 0.
inline constexpr char kRows[] = "rows";

// Fewer than steps between failures, so that chains end.
inline constexpr uint32_t kMaxDeltas = 2;

// Declares the table. The variable has a constant first value.
void AddRows(proto::Declaration* declaration);
bool HasRows(const Job& job);
uint32_t RowLength(const Job& job);
// The ids of the rows that a ps has, rising.
std::vector<uint64_t> RowsOn(const Job& job, uint32_t ps, uint32_t num_ps);
proto::ReadRange RangeOfRows(const std::vector<uint64_t>& ids);
// Of the first variable: a row of its gradient, or of its values.
absl::Span<const float> RowOf(const Job& job, const Values& values,
                              uint64_t id);

// Of `ids`, those that a push with this gradient has.
std::vector<uint64_t> RowsOfPush(const Job& job, const Values& gradient,
                                 std::vector<uint64_t> ids);

bool HasVariable(const Job& job, const std::string& name);
// Of each variable.
uint32_t NumRows(const Job& job);

// What one push gives, and what was told about it.
struct Given {
  uint64_t ticket = 0;
  // How many pushes had the ticket before.
  int attempt = 0;
  // Known when the worker has decided it.
  std::optional<float> clip_factor;
  bool not_finite = false;
  uint64_t examples = 0;
  bool accepted = false;
};
Values GradientOf(const Job& job, const Given& given);
// Of all variables, after pushes that gave these.
Values MadeOf(const Job& job, const std::vector<Given>& counted);
// Bytes of a push on one ps, which are those of its trainable values too.
int64_t PushBytes(const Job& job);

}  // namespace holdfast::sim

#endif  // HOLDFAST_TESTS_WORLD_JOB_H_

// SPDX-License-Identifier: Apache-2.0

// Measures what one contribution costs the coordinator, by the number of
// workers. Figures should be compared along a row, and stay flat if no call
// scans a list of workers. Requests are made beforehand and shards answer
// inside the call, so that only the coordinator's own work is timed.
//
// In every round each worker makes its calls for one push. The order is
// shuffled anew in each round, so that neither caches nor trees see sorted
// input.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "glog/logging.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/protocol/receipts.h"
#include "ps_server/protocol/request.h"
#include "ps_server/protocol/shard_messages.h"

namespace holdfast {
namespace {

// More steps than any run reaches.
constexpr uint64_t kSteps = uint64_t{1} << 40;

class SetClock : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

// Shards that carry out every request.
class WillingShards : public ShardLinks {
 public:
  void SetAddress(uint32_t, const std::string&) override {}
  void Send(uint32_t, const ShardRequest& request,
            Reply<ShardResponse> reply) override {
    if (const auto* restore = std::get_if<proto::RestoreRequest>(&request)) {
      receipts.emplace(restore->receipt_key(),
                       Generation(restore->sender().generation()),
                       restore->declaration(), restore->slices(),
                       /*num_ps=*/1);
    }
    std::visit(
        [&](const auto& typed) {
          using Method = ShardMethod<std::decay_t<decltype(typed)>>;
          reply(ShardResponse(typename Method::Response()));
        },
        request);
  }

  // The receipts that the shards give.
  std::optional<Receipts> receipts;
};

proto::Declaration MakeDeclaration() {
  proto::Declaration declaration;
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name("w");
  variable.add_shape(4);
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  proto::Optimizer& optimizer = *declaration.add_optimizers();
  optimizer.set_learning_rate(0.1f);
  optimizer.mutable_sgd();
  declaration.mutable_consistency()->mutable_synchronous();
  declaration.set_total_steps(kSteps);
  return declaration;
}

// A coordinator with one ps, and `num_workers` workers that have joined.
class Job {
 public:
  Job(uint32_t num_workers, const proto::Declaration& declaration)
      : requests_(num_workers), tickets_(num_workers), order_(num_workers) {
    Coordinator::Options options;
    options.num_workers = num_workers;
    options.address = "host0:2000";
    options.receipt_secret = std::string(Receipts::kKeyBytes, 's');
    coordinator_ =
        std::make_unique<Coordinator>(options, &clock_, &shards_, nullptr);
    for (uint32_t worker = 0; worker < num_workers; ++worker) {
      order_[worker] = worker;
      proto::Sender& sender = *requests_[worker].mutable_sender();
      sender.mutable_task()->set_job(kWorkerJob);
      sender.mutable_task()->set_index(worker);
      proto::RegisterRequest request;
      *request.mutable_sender() = sender;
      request.set_nonce(worker + 1);
      request.set_protocol_version(kProtocolVersion);
      request.set_process(absl::StrCat("host", worker, ":77"));
      request.set_num_ps(1);
      request.set_num_workers(num_workers);
      coordinator_->Register(
          request, [&](absl::StatusOr<proto::RegisterResponse> response) {
            CHECK(response.ok()) << response.status();
            sender.set_incarnation(response->incarnation());
            sender.set_generation(response->generation());
          });
      *tickets_[worker].mutable_sender() = sender;
      // The wait that a client uses.
      requests_[worker].set_wait_ms(10000);
      tickets_[worker].set_wait_ms(10000);
    }
    proto::DeclareRequest declare;
    *declare.mutable_sender() = requests_[0].sender();
    *declare.mutable_declaration() = declaration;
    coordinator_->Declare(declare,
                          [](absl::StatusOr<proto::DeclareResponse> response) {
                            CHECK(response.ok()) << response.status();
                          });
    CHECK_EQ(coordinator_->state().phase(), proto::TRAINING);
  }

  // Every worker asks for the ticket of its next push and, if `spend`, reports
  // the previous one as spent.
  void TakeTickets(bool spend) {
    ++sequence_;
    std::shuffle(order_.begin(), order_.end(), random_);
    for (const uint32_t worker : order_) {
      proto::TakeTicketRequest& request = tickets_[worker];
      request.set_sequence(sequence_);
      if (spend && sequence_ > 1) {
        request.clear_spent();
        proto::SpentTicket& spent = *request.add_spent();
        spent.set_sequence(sequence_ - 1);
        spent.set_examples(10);
        spent.set_loss(1);
        spent.add_receipts(
            shards_.receipts->Applied(0, Push(worker, sequence_ - 1)));
        request.set_acked_through(sequence_ - 1);
      }
      coordinator_->TakeTicket(
          request, [this](absl::StatusOr<proto::TakeTicketResponse> response) {
            CHECK(response.ok()) << response.status();
            CHECK(response->has_ticket());
            ++answers_;
          });
    }
  }

  // Every worker contributes the push of its last ticket or, without tickets,
  // its next one; `all` of them make a step.
  void Contribute(bool by_ticket) {
    if (!by_ticket) ++sequence_;
    std::shuffle(order_.begin(), order_.end(), random_);
    for (const uint32_t worker : order_) {
      proto::ContributeRequest& request = requests_[worker];
      request.set_step(sequence_ - 1);
      request.set_seat(worker);
      request.set_sequence(sequence_);
      request.set_acked_through(sequence_ - 1);
      request.set_examples(10);
      request.set_loss(1);
      request.clear_receipts();
      request.add_receipts(shards_.receipts->Held(0, Push(worker, sequence_),
                                                  GlobalStep(request.step())));
      coordinator_->Contribute(
          request, [this](absl::StatusOr<proto::ContributeResponse> response) {
            CHECK(response.ok()) << response.status();
            CHECK_EQ(response->verdict(), proto::ACCEPTED);
            ++answers_;
          });
    }
  }

  void Tick() {
    clock_.Advance(absl::Microseconds(1));
    coordinator_->Tick();
  }

  uint64_t answers() const { return answers_; }

 private:
  PushId Push(uint32_t worker, uint64_t sequence) const {
    return {ToWorkerLife(requests_[worker].sender()), PushSequence(sequence)};
  }

  SetClock clock_;
  WillingShards shards_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<proto::ContributeRequest> requests_;
  std::vector<proto::TakeTicketRequest> tickets_;
  std::vector<uint32_t> order_;
  std::mt19937 random_;
  uint64_t sequence_ = 0;
  uint64_t answers_ = 0;
};

void Report(benchmark::State& state) {
  const auto pushes = static_cast<double>(state.iterations()) *
                      static_cast<double>(state.range(0));
  state.counters["per_push"] = benchmark::Counter(
      pushes, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void ByStep(benchmark::State& state, bool continues) {
  proto::Declaration declaration = MakeDeclaration();
  if (continues) {
    declaration.mutable_lost_workers()->set_policy(
        proto::LostWorkers::CONTINUE);
  }
  Job job(state.range(0), declaration);
  for (auto _ : state) job.Contribute(/*by_ticket=*/false);
  CHECK_EQ(job.answers(), state.iterations() * state.range(0));
  Report(state);
}

void ByTicket(benchmark::State& state) {
  proto::Declaration declaration = MakeDeclaration();
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(kSteps * state.range(0));
  Job job(state.range(0), declaration);
  for (auto _ : state) {
    job.TakeTickets(/*spend=*/false);
    job.Contribute(/*by_ticket=*/true);
  }
  CHECK_EQ(job.answers(), 2 * state.iterations() * state.range(0));
  Report(state);
}

void Asynchronous(benchmark::State& state, bool bounded) {
  proto::Declaration declaration = MakeDeclaration();
  auto& mode = *declaration.mutable_consistency()->mutable_asynchronous();
  // No worker may get ahead of another: all but the last worker of a round
  // wait.
  if (bounded) mode.set_staleness_bound(0);
  Job job(state.range(0), declaration);
  for (auto _ : state) job.TakeTickets(/*spend=*/true);
  CHECK_EQ(job.answers(), state.iterations() * state.range(0));
  Report(state);
}

// Called ten times a second, whatever the workers do.
void Tick(benchmark::State& state) {
  Job job(state.range(0), MakeDeclaration());
  for (auto _ : state) job.Tick();
}

BENCHMARK_CAPTURE(ByStep, wait, false)->Arg(16)->Arg(64)->Arg(200)->Arg(1000);
BENCHMARK_CAPTURE(ByStep, go_on, true)->Arg(16)->Arg(64)->Arg(200)->Arg(1000);
BENCHMARK(ByTicket)->Arg(16)->Arg(64)->Arg(200)->Arg(1000);
BENCHMARK_CAPTURE(Asynchronous, free, false)
    ->Arg(16)
    ->Arg(64)
    ->Arg(200)
    ->Arg(1000);
BENCHMARK_CAPTURE(Asynchronous, bounded, true)
    ->Arg(16)
    ->Arg(64)
    ->Arg(200)
    ->Arg(1000);
BENCHMARK(Tick)->Arg(16)->Arg(64)->Arg(200)->Arg(1000);

}  // namespace
}  // namespace holdfast

BENCHMARK_MAIN();

// SPDX-License-Identifier: Apache-2.0

// Measures what a push costs the ps daemons, by the number of workers. This
// process simulates all of the workers over sockets, with separate connections
// for each of them, and implements the protocol itself, so that only the number
// of connections limits the number of workers. Workers compute nothing.
//
// CPU time is that of the ps processes alone (/proc/PID/stat), between the ends
// of two rounds; a round is one push per worker on average. Every measurement
// has its own cluster; the numbers of workers alternate, round by round.
//
//   bazel run //tests/benchmark:many_workers -- --workers=16,64,200,1000

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/byte_size.h"
#include "common/job/task_id.h"
#include "common/process/flags.h"
#include "common/rpc/call_queue.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/rpc_limits.h"
#include "glog/logging.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "tests/integration/loopback.h"
#include "tests/integration/process.h"

ABSL_FLAG(std::vector<std::string>, workers,
          std::vector<std::string>({"16", "64", "200", "1000"}),
          "The numbers of workers to measure.");
ABSL_FLAG(
    std::vector<std::string>, modes,
    std::vector<std::string>({"synchronous", "asynchronous", "bounded"}),
    "The modes to measure; bounded is asynchronous with a staleness bound "
    "of 1.");
ABSL_FLAG(uint32_t, ps, 2, "The number of ps daemons.");
ABSL_FLAG(std::string, size, "64kB",
          "The size of the model, which is divided into one slice per ps.");
ABSL_FLAG(double, seconds, 3, "Minimum time of each measurement, in seconds.");
ABSL_FLAG(double, warm_up, 20,
          "Seconds for which the job trains before it is measured. gRPC "
          "estimates each connection's bandwidth with pings, ten per second at "
          "first and one per ten seconds after some minutes.");
ABSL_FLAG(int, rounds, 3,
          "The number of measurements of each point; medians are printed.");
ABSL_FLAG(std::string, ps_server, "ps_server/ps_server",
          "Path of the ps daemon.");
ABSL_FLAG(std::string, ps_flags, "", "Additional flags of each ps daemon.");
ABSL_FLAG(uint32_t, protocol_version, holdfast::kProtocolVersion,
          "The protocol version of --ps_server, if it is an earlier build.");

namespace holdfast {
namespace {

// More than any run reaches.
constexpr uint64_t kSteps = 1000000000000000;
// Pushes per worker, on average, before the measurement begins.
constexpr uint64_t kWarmUpPushes = 3;
// How long calls are parked, as requested by the client library.
constexpr uint64_t kParkMs = 10000;
constexpr uint64_t kRenewParkMs = 3000;
constexpr absl::Duration kCallTimeout = absl::Seconds(120);

enum class Mode { kSynchronous, kAsynchronous, kBounded };

proto::Declaration MakeDeclaration(Mode mode, uint64_t elements,
                                   uint32_t num_ps) {
  proto::Declaration declaration;
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name("tensor");
  variable.add_shape(static_cast<int64_t>(elements));
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  variable.mutable_partitioner()->mutable_fixed_shards()->set_shards(num_ps);
  proto::Optimizer& optimizer = *declaration.add_optimizers();
  optimizer.set_learning_rate(1e-3f);
  optimizer.mutable_sgd();
  declaration.set_total_steps(kSteps);
  if (mode == Mode::kSynchronous) {
    declaration.mutable_consistency()->mutable_synchronous();
    declaration.set_examples(proto::BY_STEP);
    return declaration;
  }
  auto& asynchronous =
      *declaration.mutable_consistency()->mutable_asynchronous();
  if (mode == Mode::kBounded) asynchronous.set_staleness_bound(1);
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_tickets(kSteps);
  return declaration;
}

// Repeats each call until it is answered. Every error except UNAVAILABLE and
// RESOURCE_EXHAUSTED ends the program.
class Caller {
 public:
  explicit Caller(CallQueue* queue) : queue_(*queue) {}

  template <typename Response, typename Request, typename Then>
  void Call(grpc::GenericStub* stub, const std::string& method,
            const Request& request, Then then) {
    grpc::ByteBuffer bytes;
    CHECK(ToBytes(request, &bytes).ok());
    ++under_way_;
    Start(stub, method, bytes, [then](grpc::ByteBuffer* answer) {
      Response response;
      CHECK(FromBytes(answer, &response).ok());
      then(response);
    });
  }

  // No calls are made after this.
  void Stop() { stopped_ = true; }
  int64_t under_way() const { return under_way_; }
  int64_t repeated() const { return repeated_; }

 private:
  void Start(grpc::GenericStub* stub, const std::string& method,
             const grpc::ByteBuffer& request,
             std::function<void(grpc::ByteBuffer*)> then) {
    auto context = std::make_shared<grpc::ClientContext>();
    context->set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
    context->set_wait_for_ready(true);
    auto* const raw = context.get();
    queue_.Start(stub, method, raw, request,
                 [this, context = std::move(context), stub, method, request,
                  then = std::move(then)](const grpc::Status& status,
                                          grpc::ByteBuffer* response) {
                   if (!stopped_ && !status.ok()) {
                     const auto code = status.error_code();
                     CHECK(code == grpc::StatusCode::UNAVAILABLE ||
                           code == grpc::StatusCode::RESOURCE_EXHAUSTED)
                         << method << ": " << status.error_message();
                     ++repeated_;
                     return Start(stub, method, request, then);
                   }
                   --under_way_;
                   if (!stopped_) then(response);
                 });
  }

  CallQueue& queue_;
  bool stopped_ = false;
  int64_t under_way_ = 0;
  int64_t repeated_ = 0;
};

std::string CoordinatorMethod(const std::string& name) {
  return absl::StrCat("/holdfast.proto.Coordinator/", name);
}

std::string ShardMethod(const std::string& name) {
  return absl::StrCat("/holdfast.proto.Shard/", name);
}

// One worker, from its registration to the end of the program.
class Worker {
 public:
  struct Job {
    Mode mode;
    std::vector<std::string> ps;
    uint32_t num_workers;
    uint64_t elements;
    // Called for every push that counts.
    std::function<void()> pushed;
  };

  Worker(uint32_t index, const Job* job, Caller* caller)
      : index_(index), job_(*job), caller_(*caller) {
    const auto connect = [&](uint32_t ps) {
      return std::make_unique<grpc::GenericStub>(
          MakeChannel(job_.ps[ps], ps, ChannelKind::kControl, Credentials()));
    };
    for (uint32_t ps = 0; ps < job_.ps.size(); ++ps) {
      tensors_.push_back(connect(ps));
    }
    control_ = connect(0);
    lease_ = connect(0);
  }

  void Register() {
    proto::RegisterRequest request;
    request.mutable_sender()->mutable_task()->set_job(kWorkerJob);
    request.mutable_sender()->mutable_task()->set_index(index_);
    request.set_nonce(index_ + 1);
    request.set_protocol_version(absl::GetFlag(FLAGS_protocol_version));
    request.set_process(absl::StrCat("host", index_, ":77"));
    request.set_num_ps(job_.ps.size());
    request.set_num_workers(job_.num_workers);
    request.set_job_digest("bench");
    request.set_data_digest("bench");
    request.set_wait_ms(2000);
    caller_.Call<proto::RegisterResponse>(
        control_.get(), CoordinatorMethod("Register"), request,
        [this, request](const proto::RegisterResponse& response) {
          if (response.incarnation() == 0) return Register();
          sender_ = request.sender();
          sender_.set_incarnation(response.incarnation());
          sender_.set_generation(response.generation());
          Renew();
          if (index_ == 0) return Declare();
          AwaitPlacement();
        });
  }

 private:
  void Renew() {
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = sender_;
    request.set_known_phase(phase_);
    request.set_wait_ms(kRenewParkMs);
    caller_.Call<proto::RenewLeaseResponse>(
        lease_.get(), CoordinatorMethod("RenewLease"), request,
        [this](const proto::RenewLeaseResponse& response) {
          phase_ = response.state().phase();
          CHECK_NE(phase_, proto::FAILED) << response.state().reason();
          Renew();
        });
  }

  void Declare() {
    proto::DeclareRequest request;
    *request.mutable_sender() = sender_;
    *request.mutable_declaration() =
        MakeDeclaration(job_.mode, job_.elements, job_.ps.size());
    caller_.Call<proto::DeclareResponse>(
        control_.get(), CoordinatorMethod("Declare"), request,
        [this](const proto::DeclareResponse&) { AwaitPlacement(); });
  }

  void AwaitPlacement() {
    proto::GetPlacementRequest request;
    *request.mutable_sender() = sender_;
    request.set_wait_ms(kParkMs);
    caller_.Call<proto::GetPlacementResponse>(
        control_.get(), CoordinatorMethod("GetPlacement"), request,
        [this](const proto::GetPlacementResponse& response) {
          if (!response.ready()) return AwaitPlacement();
          Prepare(response);
          PullAll();
        });
  }

  void Prepare(const proto::GetPlacementResponse& placement) {
    shards_.resize(job_.ps.size());
    for (const proto::Slice& slice : placement.slices()) {
      Shard& shard = shards_[slice.ps()];
      proto::ReadRange& range = *shard.pull.add_ranges();
      range.set_variable("tensor");
      range.set_begin(slice.begin());
      range.set_size(slice.size());
      proto::TensorPart& tensor = *shard.push.add_tensors();
      tensor.set_variable("tensor");
      tensor.add_shape(static_cast<int64_t>(job_.elements));
      tensor.set_dtype(proto::FLOAT32);
      tensor.set_begin(slice.begin());
      tensor.set_size(slice.size());
      tensor.set_data(std::string(slice.size() * sizeof(float), '\0'));
    }
    for (Shard& shard : shards_) {
      *shard.pull.mutable_sender() = sender_;
      shard.pull.set_wait_ms(kParkMs);
      *shard.push.mutable_sender() = sender_;
      shard.push.set_num_parts(1);
    }
  }

  // Pulls the values for the next push, then begins the push.
  void PullAll() {
    left_ = job_.ps.size();
    StartPulls();
  }

  void StartPulls() {
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) Pull(ps);
  }

  void Pull(uint32_t ps) {
    shards_[ps].pull.set_min_version(job_.mode == Mode::kSynchronous ? step_
                                                                     : 0);
    caller_.Call<proto::PullResponse>(
        tensors_[ps].get(), ShardMethod("Pull"), shards_[ps].pull,
        [this, ps](const proto::PullResponse& response) {
          if (response.version() < shards_[ps].pull.min_version()) {
            return Pull(ps);
          }
          shards_[ps].version = response.version();
          if (--left_ == 0) Begin();
        });
  }

  void Begin() {
    if (pushes_ > 0) job_.pushed();
    ++pushes_;
    if (job_.mode == Mode::kSynchronous) return PushAll();
    TakeTicket();
  }

  void TakeTicket() {
    proto::TakeTicketRequest request;
    *request.mutable_sender() = sender_;
    request.set_sequence(pushes_);
    if (pushes_ > 1) {
      proto::SpentTicket& spent = *request.add_spent();
      spent.set_sequence(pushes_ - 1);
      spent.set_examples(1);
      spent.set_loss(1);
      for (const Shard& shard : shards_) spent.add_receipts(shard.applied);
      request.set_acked_through(pushes_ - 2);
    }
    request.set_wait_ms(kParkMs);
    caller_.Call<proto::TakeTicketResponse>(
        control_.get(), CoordinatorMethod("TakeTicket"), request,
        [this](const proto::TakeTicketResponse& response) {
          if (!response.has_ticket()) return TakeTicket();
          ticket_ = response.ticket();
          PushAll();
        });
  }

  void PushAll() {
    left_ = shards_.size();
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      proto::PushRequest& request = shards_[ps].push;
      request.set_sequence(pushes_);
      request.set_acked_through(pushes_ - 1);
      request.set_step(shards_[ps].version);
      caller_.Call<proto::PushResponse>(
          tensors_[ps].get(), ShardMethod("Push"), request,
          [this, ps](const proto::PushResponse& response) {
            CHECK_EQ(response.verdict(), proto::VERDICT_UNSPECIFIED);
            shards_[ps].staged = response.receipt();
            if (--left_ == 0) Decide();
          });
    }
  }

  // Called when every shard has the push.
  void Decide() {
    if (job_.mode == Mode::kSynchronous) {
      ++step_;
      left_ = 1 + shards_.size();
      Contribute();
      return StartPulls();
    }
    left_ = shards_.size();
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) Apply(ps);
  }

  void Contribute() {
    proto::ContributeRequest request;
    *request.mutable_sender() = sender_;
    request.set_step(step_ - 1);
    request.set_seat(index_);
    request.set_sequence(pushes_);
    request.set_examples(1);
    request.set_loss(1);
    request.set_acked_through(pushes_ - 1);
    request.set_wait_ms(kParkMs);
    for (const Shard& shard : shards_) request.add_receipts(shard.staged);
    caller_.Call<proto::ContributeResponse>(
        control_.get(), CoordinatorMethod("Contribute"), request,
        [this](const proto::ContributeResponse& response) {
          if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
            return Contribute();
          }
          CHECK_EQ(response.verdict(), proto::ACCEPTED);
          if (--left_ == 0) Begin();
        });
  }

  void Apply(uint32_t ps) {
    proto::ApplyRequest request;
    *request.mutable_sender() = sender_;
    request.set_sequence(pushes_);
    *request.mutable_scalars() = ticket_.scalars();
    request.set_examples(1);
    request.set_acked_through(pushes_ - 1);
    request.set_wait_ms(kParkMs);
    for (const Shard& shard : shards_) request.add_receipts(shard.staged);
    request.set_ticket_receipt(ticket_.receipt());
    caller_.Call<proto::ApplyResponse>(
        tensors_[ps].get(), ShardMethod("Apply"), request,
        [this, ps](const proto::ApplyResponse& response) {
          if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
            return Apply(ps);
          }
          CHECK_EQ(response.verdict(), proto::ACCEPTED);
          shards_[ps].applied = response.receipt();
          if (--left_ == 0) PullAll();
        });
  }

  // The worker's state for one ps.
  struct Shard {
    uint64_t version = 0;
    uint64_t staged = 0;
    uint64_t applied = 0;
    proto::PushRequest push;
    proto::PullRequest pull;
  };

  const uint32_t index_;
  const Job& job_;
  Caller& caller_;
  std::vector<std::unique_ptr<grpc::GenericStub>> tensors_;
  std::unique_ptr<grpc::GenericStub> control_;
  std::unique_ptr<grpc::GenericStub> lease_;
  proto::Sender sender_;
  proto::JobPhase phase_ = proto::STARTING;
  std::vector<Shard> shards_;
  proto::Ticket ticket_;
  // Pushes begun, including the one under way.
  uint64_t pushes_ = 0;
  uint64_t step_ = 0;
  // Unanswered calls of the current stage.
  size_t left_ = 0;
};

// User and system time.
absl::Duration CpuTimeOf(const std::vector<std::unique_ptr<Process>>& ps) {
  int64_t ticks = 0;
  for (const auto& process : ps) {
    std::ifstream file(absl::StrCat("/proc/", process->pid(), "/stat"));
    std::string text;
    CHECK(std::getline(file, text)) << process->Output();
    // The name is in parentheses, and may contain any characters.
    const std::vector<std::string> fields =
        absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
    for (const int i : {11, 12}) {
      int64_t value;
      CHECK(absl::SimpleAtoi(fields[i], &value));
      ticks += value;
    }
  }
  return absl::Seconds(1) * ticks / sysconf(_SC_CLK_TCK);
}

struct Figures {
  double pushes_per_second = 0;
  double cpu_us = 0;
};

Figures Measure(Mode mode, uint32_t num_workers, uint64_t elements) {
  const uint32_t num_ps = absl::GetFlag(FLAGS_ps);
  CallQueue queue;
  Caller caller(&queue);
  Worker::Job job;
  job.mode = mode;
  job.num_workers = num_workers;
  job.elements = elements;
  for (uint32_t i = 0; i < num_ps; ++i) job.ps.push_back(UnusedAddress());

  std::vector<std::unique_ptr<Process>> ps;
  for (uint32_t i = 0; i < num_ps; ++i) {
    std::vector<std::string> args = {
        absl::StrCat("--task_index=", i),
        absl::StrCat("--ps_hosts=", absl::StrJoin(job.ps, ",")),
        absl::StrCat("--worker_hosts=worker-{", num_workers, "}:1")};
    for (const auto flag : absl::StrSplit(absl::GetFlag(FLAGS_ps_flags), ' ',
                                          absl::SkipEmpty())) {
      args.emplace_back(flag);
    }
    ps.push_back(
        std::make_unique<Process>(absl::GetFlag(FLAGS_ps_server), args));
  }

  using Clock = std::chrono::steady_clock;
  struct Sample {
    Clock::time_point at;
    absl::Duration cpu;
    uint64_t pushes;
  };
  uint64_t pushes = 0;
  std::optional<Clock::time_point> first;
  std::optional<Sample> begin;
  std::optional<Sample> end;
  job.pushed = [&] {
    // Continues only at the end of a round.
    if (++pushes % num_workers != 0 || end.has_value()) return;
    if (pushes < kWarmUpPushes * num_workers) return;
    const Clock::time_point now = Clock::now();
    if (!first.has_value()) first = now;
    if (std::chrono::duration<double>(now - *first).count() <
        absl::GetFlag(FLAGS_warm_up)) {
      return;
    }
    if (!begin.has_value()) {
      begin = {now, CpuTimeOf(ps), pushes};
    } else if (std::chrono::duration<double>(now - begin->at).count() >=
               absl::GetFlag(FLAGS_seconds)) {
      end = {now, CpuTimeOf(ps), pushes};
    }
  };
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < num_workers; ++i) {
    workers.push_back(std::make_unique<Worker>(i, &job, &caller));
    workers.back()->Register();
  }
  while (!end.has_value()) queue.Poll(absl::Now() + absl::Seconds(1));
  if (caller.repeated() > 0) {
    std::fprintf(stderr, "%d calls were repeated\n",
                 static_cast<int>(caller.repeated()));
  }
  caller.Stop();
  ps.clear();  // ends calls under way
  while (caller.under_way() > 0) queue.Poll(absl::Now() + absl::Seconds(1));

  const auto done = static_cast<double>(end->pushes - begin->pushes);
  return {done / std::chrono::duration<double>(end->at - begin->at).count(),
          absl::ToDoubleMicroseconds(end->cpu - begin->cpu) / done};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Run() {
  const auto bytes = ParseBytes(absl::GetFlag(FLAGS_size));
  CHECK(bytes.ok()) << bytes.status();
  std::vector<uint32_t> numbers;
  for (const std::string& text : absl::GetFlag(FLAGS_workers)) {
    CHECK(absl::SimpleAtoi(text, &numbers.emplace_back())) << text;
  }
  std::puts(
      "mode          workers   pushes/s  ps CPU us per push      of first");
  for (const std::string& name : absl::GetFlag(FLAGS_modes)) {
    const Mode mode = name == "synchronous"    ? Mode::kSynchronous
                      : name == "asynchronous" ? Mode::kAsynchronous
                                               : Mode::kBounded;
    std::vector<std::vector<double>> rates(numbers.size());
    std::vector<std::vector<double>> costs(numbers.size());
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        const Figures figures =
            Measure(mode, numbers[i], *bytes / sizeof(float));
        rates[i].push_back(figures.pushes_per_second);
        costs[i].push_back(figures.cpu_us);
      }
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      std::puts(absl::StrFormat("%-12s %8d %10.0f %19.1f %13.2f", name,
                                numbers[i], Median(rates[i]), Median(costs[i]),
                                Median(costs[i]) / Median(costs[0]))
                    .c_str());
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) {
  const auto line = holdfast::ParseFlags(
      std::vector<std::string>(argv + (argc > 0), argv + argc));
  google::InitGoogleLogging(argv[0]);
  if (!line.ok()) {
    std::cerr << line.status().message() << std::endl;
    return 2;
  }
  holdfast::Run();
}

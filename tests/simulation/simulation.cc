#include "tests/simulation/simulation.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace holdfast {

void Scheduler::After(absl::Duration delay, std::function<void()> event) {
  events_.push_back({now_ + delay, order_++, std::move(event)});
  std::push_heap(events_.begin(), events_.end());
}

void Scheduler::Soon(std::function<void()> event) {
  const uint64_t scale = Random(10) == 0 ? 3'000'000 : 3'000;
  After(absl::Microseconds(1 + Random(scale)), std::move(event));
}

bool Scheduler::RunOne() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_ = event.at;
  event.run();
  return true;
}

bool Scheduler::Event::operator<(const Event& other) const {
  return std::tie(at, order) > std::tie(other.at, other.order);
}

size_t NumElements(const proto::Variable& variable) {
  size_t n = 1;
  for (int64_t d : variable.shape()) n *= d;
  return n;
}

WorkerLife LifeOf(const proto::Sender& sender) {
  return {{sender.task().job(), sender.task().index()},
          Incarnation(sender.incarnation())};
}

WorkerLife LifeOf(const proto::WorkerLife& life) {
  return {{life.worker().job(), life.worker().index()},
          Incarnation(life.incarnation())};
}

// ---- The cluster ----

SimulatedCluster::SimulatedCluster(const Options& options)
    : options(options),
      scheduler(options.seed),
      network(&scheduler, options.faults) {
  // That workers are lost is no news here.
  FLAGS_minloglevel = google::GLOG_ERROR;
  Coordinator::Options coordinator_options;
  coordinator_options.num_ps = options.num_ps;
  coordinator_options.num_workers = options.num_workers;
  coordinator_options.lease = options.lease;
  coordinator_options.resend_after = absl::Seconds(3);
  coordinator_options.memory_limit_bytes = options.memory_limit_bytes;
  coordinator =
      std::make_unique<Coordinator>(coordinator_options, &scheduler, this);
  for (uint32_t ps = 0; ps < options.num_ps; ++ps) {
    Shard::Options shard;
    shard.index = ps;
    shard.memory_limit_bytes = options.memory_limit_bytes;
    shards.push_back(std::make_unique<Shard>(shard, &scheduler));
  }
}

void SimulatedCluster::Start() {
  // How they join is no part of what is tested here.
  for (uint32_t ps = 1; ps < options.num_ps; ++ps) RegisterPs(ps);
  RenewPsLeases();
  Tick();
}

void SimulatedCluster::RegisterPs(uint32_t ps) {
  proto::RegisterRequest request;
  request.mutable_sender()->mutable_task()->set_job(kPsJob);
  request.mutable_sender()->mutable_task()->set_index(ps);
  request.set_nonce(1000 + ps);
  request.set_protocol_version(kProtocolVersion);
  request.set_num_ps(options.num_ps);
  request.set_num_workers(options.num_workers);
  request.set_memory_limit_bytes(options.memory_limit_bytes);
  coordinator->Register(request, [&](const auto& response) {
    ASSERT_TRUE(response.ok()) << response.status();
    proto::Sender& sender = ps_senders_[ps];
    sender = request.sender();
    sender.set_incarnation(response->incarnation());
    sender.set_generation(response->generation());
  });
}

void SimulatedCluster::RenewPsLeases() {
  for (const auto& [ps, sender] : ps_senders_) {
    proto::RenewLeaseRequest request;
    *request.mutable_sender() = sender;
    coordinator->RenewLease(request, [](const auto& response) {
      ASSERT_TRUE(response.ok()) << response.status();
    });
  }
  scheduler.After(options.lease / 4, [this] { RenewPsLeases(); });
}

void SimulatedCluster::Tick() {
  coordinator->Tick();
  for (auto& shard : shards) shard->Tick();
  OnTick();
  scheduler.After(absl::Milliseconds(100), [this] { Tick(); });
}

void SimulatedCluster::Register(const proto::RegisterRequest& request,
                                Reply<proto::RegisterResponse> reply) {
  coordinator->Register(request, std::move(reply));
}

void SimulatedCluster::TakeTicket(const proto::TakeTicketRequest& request,
                                  Reply<proto::TakeTicketResponse> reply) {
  const PushId push{LifeOf(request.sender()), PushSequence(request.sequence())};
  waiting_for_tickets.insert(push);
  coordinator->TakeTicket(
      request, [this, push, reply = std::move(reply)](
                   absl::StatusOr<proto::TakeTicketResponse> response) mutable {
        waiting_for_tickets.erase(waiting_for_tickets.find(push));
        if (response.ok() && response->has_ticket()) {
          OnTicket(push, response->ticket().index());
        }
        reply(std::move(response));
      });
}

void SimulatedCluster::Create(uint32_t ps, const proto::CreateRequest& request,
                              Reply<proto::CreateResponse> reply) {
  slices.assign(request.slices().begin(), request.slices().end());
  ToShard(ps, &Shard::Create, request, std::move(reply));
}

void SimulatedCluster::Commit(uint32_t ps, const proto::CommitRequest& request,
                              Reply<proto::CommitResponse> reply) {
  ToShard(ps, &Shard::Commit, request, std::move(reply));
}

void SimulatedCluster::Fence(uint32_t ps, const proto::FenceRequest& request,
                             Reply<proto::FenceResponse> reply) {
  ToShard(ps, &Shard::Fence, request, std::move(reply));
}

void SimulatedCluster::Resolve(uint32_t ps,
                               const proto::ResolveRequest& request,
                               Reply<proto::ResolveResponse> reply) {
  ToShard(ps, &Shard::Resolve, request, std::move(reply));
}

void SimulatedCluster::End(uint32_t ps, const proto::EndRequest& request,
                           Reply<proto::EndResponse> reply) {
  ToShard(ps, &Shard::End, request, std::move(reply));
}

proto::GetStatusResponse SimulatedCluster::Status() const {
  proto::GetStatusResponse status;
  coordinator->GetStatus({}, [&](auto response) { status = *response; });
  return status;
}

Values SimulatedCluster::ReadAll() {
  Values values;
  for (const proto::Slice& slice : slices) {
    proto::PullRequest request;
    request.mutable_sender()->mutable_task()->set_job("client");
    request.mutable_sender()->set_generation(1);
    proto::ReadRange& range = *request.add_ranges();
    range.set_variable(slice.variable());
    range.set_begin(slice.begin());
    range.set_size(slice.size());
    std::vector<float>& all = values[slice.variable()];
    all.resize(std::max<size_t>(all.size(), slice.begin() + slice.size()));
    shards[slice.ps()]->Pull(request, [&](const auto& reply) {
      ASSERT_TRUE(reply.ok()) << reply.status();
      ASSERT_EQ(reply->tensors.size(), 1u);
      ASSERT_EQ(reply->tensors[0].data.size(), slice.size() * sizeof(float));
      reply->tensors[0].data.CopyTo(&all[slice.begin()]);
    });
  }
  return values;
}

// ---- A worker ----

SimulatedWorker::SimulatedWorker(SimulatedCluster* cluster, uint32_t index,
                                 uint64_t nonce)
    : cluster_(cluster), nonce_(nonce) {
  sender_.mutable_task()->set_job(kWorkerJob);
  sender_.mutable_task()->set_index(index);
  sender_.set_generation(1);
}

void SimulatedWorker::Start() {
  proto::RegisterRequest request;
  *request.mutable_sender() = sender_;
  request.set_nonce(nonce_);
  request.set_protocol_version(kProtocolVersion);
  request.set_num_ps(num_ps());
  request.set_num_workers(cluster_->options.num_workers);
  Ask<proto::RegisterRequest, proto::RegisterResponse>(
      [cluster = cluster_](auto r, auto done) {
        cluster->Register(r, std::move(done));
      },
      request,
      [this](const absl::StatusOr<proto::RegisterResponse>& response) {
        if (absl::IsAlreadyExists(response.status())) {
          cluster_->scheduler.After(absl::Milliseconds(500),
                                    [this] { Hear([this] { Start(); }); });
          return;
        }
        ASSERT_TRUE(response.ok()) << response.status();
        sender_.set_incarnation(response->incarnation());
        OnRegistered();
        Declare();
      });
}

// Every worker declares the same: the first one counts.
void SimulatedWorker::Declare() {
  proto::DeclareRequest request;
  *request.mutable_sender() = sender_;
  *request.mutable_declaration() = MakeDeclaration();
  for (const proto::Variable& variable : request.declaration().variables()) {
    variables_[variable.name()] = variable;
  }
  AskCoordinator<proto::DeclareRequest, proto::DeclareResponse>(
      &Coordinator::Declare, request, [this](const auto& response) {
        if (!response.ok()) return OnRefused(response.status());
        AwaitPlacement();
      });
}

void SimulatedWorker::OnRefused(const absl::Status& status) {
  FAIL() << status;
}

void SimulatedWorker::AwaitPlacement() {
  proto::GetPlacementRequest request;
  *request.mutable_sender() = sender_;
  request.set_wait_ms(1000);
  AskCoordinator<proto::GetPlacementRequest, proto::GetPlacementResponse>(
      &Coordinator::GetPlacement, request, [this](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
        if (!response->ready()) return AwaitPlacement();
        for (const proto::Slice& slice : response->slices()) {
          by_ps_[slice.ps()].push_back(slice);
        }
        OnPlaced();
      });
}

void SimulatedWorker::AskTicket(
    const proto::TakeTicketRequest& request,
    std::function<void(absl::StatusOr<proto::TakeTicketResponse>)> next) {
  Ask<proto::TakeTicketRequest, proto::TakeTicketResponse>(
      [cluster = cluster_](auto r, auto done) {
        cluster->TakeTicket(r, std::move(done));
      },
      request, std::move(next));
}

void SimulatedWorker::AskPush(
    uint32_t ps, const PushPart& part,
    std::function<void(absl::StatusOr<proto::PushResponse>)> next) {
  Ask<PushPart, proto::PushResponse>(
      [cluster = cluster_, ps](auto r, auto done) {
        cluster->shards[ps]->Push(std::move(r), std::move(done));
      },
      part, std::move(next));
}

proto::PullRequest SimulatedWorker::PullOf(uint32_t ps,
                                           uint64_t min_version) const {
  proto::PullRequest request;
  *request.mutable_sender() = sender_;
  request.set_min_version(min_version);
  request.set_wait_ms(1000);
  if (const auto here = by_ps_.find(ps); here != by_ps_.end()) {
    for (const proto::Slice& slice : here->second) {
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable(slice.variable());
      range.set_begin(slice.begin());
      range.set_size(slice.size());
    }
  }
  return request;
}

void SimulatedWorker::Keep(const PullReply& reply) {
  for (const TensorPiece& piece : reply.tensors) {
    std::vector<float>& values = values_[piece.variable];
    values.resize(NumElements(variables_.at(piece.variable)));
    piece.data.CopyTo(&values[piece.begin]);
  }
}

std::vector<PushPart> SimulatedWorker::CutIntoParts(
    uint32_t ps, const Values& gradient, PushSequence sequence, GlobalStep step,
    PushSequence acked_through) const {
  std::vector<PushPart> parts;
  const auto add = [&](std::vector<TensorPiece> tensors) {
    PushPart part;
    part.sender = sender_;
    part.sequence = sequence;
    part.step = step;
    part.part = parts.size();
    part.acked_through = acked_through;
    part.tensors = std::move(tensors);
    parts.push_back(std::move(part));
  };
  std::vector<TensorPiece> pieces;
  const auto here = by_ps_.find(ps);
  for (const proto::Slice& slice :
       here == by_ps_.end() ? std::vector<proto::Slice>() : here->second) {
    const auto whole = gradient.find(slice.variable());
    if (whole == gradient.end()) continue;  // not trainable
    const proto::Variable& variable = variables_.at(slice.variable());
    const uint64_t end = slice.begin() + slice.size();
    const uint64_t cut = slice.begin() + slice.size() / 2;
    using Stretch = std::pair<uint64_t, uint64_t>;
    for (auto [first, last] :
         {Stretch{slice.begin(), cut}, Stretch{cut, end}}) {
      if (first == last) continue;
      std::string bytes(reinterpret_cast<const char*>(&whole->second[first]),
                        (last - first) * sizeof(float));
      TensorPiece piece;
      piece.variable = slice.variable();
      piece.shape.assign(variable.shape().begin(), variable.shape().end());
      piece.begin = first;
      piece.data = Buffer::FromString(bytes.substr(0, 3));
      piece.data.Append(Buffer::FromString(bytes.substr(3)));
      pieces.push_back(std::move(piece));
      if (last == cut) {
        add(std::move(pieces));
        pieces.clear();
      }
    }
  }
  if (!pieces.empty()) add(std::move(pieces));
  if (parts.empty()) add({});
  for (PushPart& part : parts) part.num_parts = parts.size();
  return parts;
}

}  // namespace holdfast

#include "tests/simulation/simulation.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/rpc_limits.h"
#include "common/task_id.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// Before a call that found nobody is sent again.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(50);
// Before a task whose place is taken asks for it again.
constexpr absl::Duration kTakenRetryAfter = absl::Milliseconds(500);
// Between an answer to a renewal and the next one; also where renewals are not
// parked any more.
constexpr absl::Duration kRenewAfter = absl::Milliseconds(20);
constexpr absl::Duration kRenewEndedAfter = absl::Seconds(1);
// [L1] For which a registration is.
constexpr absl::Duration kRegisterPark = absl::Seconds(2);
// For which a renewal is parked, at most.
constexpr absl::Duration kLongestPoll = absl::Seconds(1);

}  // namespace

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

// ---- A session ----

SimulatedSession::SimulatedSession(SimulatedCluster* cluster,
                                   const proto::RegisterRequest& request,
                                   Hooks hooks)
    : cluster_(cluster),
      request_(request),
      hooks_(std::move(hooks)),
      sender_(request.sender()) {}

void SimulatedSession::After(absl::Duration delay,
                             std::function<void()> event) {
  cluster_->scheduler.After(delay, [this, event = std::move(event)] {
    hooks_.hear([this, event] {
      if (!stopped_) event();
    });
  });
}

template <typename Request, typename Response>
void SimulatedSession::Send(
    Handler<Request, Response> handler, const Request& request,
    void (SimulatedSession::*next)(const absl::StatusOr<Response>&)) {
  Reply<Response> reply = [this, next](absl::StatusOr<Response> response) {
    hooks_.hear([this, next, response] {
      if (!stopped_) (this->*next)(response);
    });
  };
  if (hooks_.past_network) return handler(request, std::move(reply));
  cluster_->network.Call<Request, Response>(std::move(handler), request,
                                            std::move(reply));
}

void SimulatedSession::Register() {
  request_.mutable_sender()->set_generation(sender_.generation());
  request_.set_wait_ms(absl::ToInt64Milliseconds(kRegisterPark));
  Send<proto::RegisterRequest, proto::RegisterResponse>(
      [cluster = cluster_](auto r, auto done) {
        cluster->Register(r, std::move(done));
      },
      request_, &SimulatedSession::OnRegistered);
}

void SimulatedSession::OnRegistered(
    const absl::StatusOr<proto::RegisterResponse>& response) {
  if (absl::IsUnavailable(response.status())) {
    return After(kRetryAfter, [this] { Register(); });
  }
  if (absl::IsAlreadyExists(response.status())) {
    return After(kTakenRetryAfter, [this] { Register(); });
  }
  if (!response.ok()) {
    stopped_ = true;
    return hooks_.on_refused(response.status());
  }
  if (response->incarnation() == 0) {
    return After(kRenewAfter, [this] { Register(); });
  }
  lease_ = absl::Milliseconds(response->lease_ms());
  sender_.set_incarnation(response->incarnation());
  sender_.set_generation(response->generation());
  hooks_.on_sender(sender_);
  Renew();
}

void SimulatedSession::Renew() {
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = sender_;
  request.set_wait_ms(
      absl::ToInt64Milliseconds(std::min(lease_ / 3, kLongestPoll)));
  request.set_known_phase(phase_);
  Send<proto::RenewLeaseRequest, proto::RenewLeaseResponse>(
      [cluster = cluster_](auto r, auto done) {
        cluster->AtCoordinator(&Coordinator::RenewLease, r, std::move(done));
      },
      request, &SimulatedSession::OnRenewed);
}

void SimulatedSession::OnRenewed(
    const absl::StatusOr<proto::RenewLeaseResponse>& response) {
  if (absl::IsUnavailable(response.status())) {
    return After(kRetryAfter, [this] { Renew(); });
  }
  if (absl::IsNotFound(response.status())) return Register();
  if (!response.ok()) {
    stopped_ = true;
    return hooks_.on_refused(response.status());
  }
  phase_ = response->state().phase();
  if (response->generation() != sender_.generation()) {
    sender_.set_generation(response->generation());
    hooks_.on_sender(sender_);
  }
  hooks_.on_news(*response);
  const bool ended = phase_ == proto::DONE || phase_ == proto::FAILED;
  After(ended ? kRenewEndedAfter : kRenewAfter, [this] { Renew(); });
}

// ---- The cluster ----

SimulatedCluster::SimulatedCluster(const Options& options)
    : options(options),
      scheduler(options.seed),
      network(&scheduler, options.faults) {
  // That tasks are lost and begin anew is no news here.
  FLAGS_minloglevel = google::GLOG_FATAL;
  if (options.disk.has_value()) {
    disk = std::make_unique<SimulatedDisk>(&scheduler, *options.disk);
  }
  SetNumPs(options.num_ps);
}

SimulatedCluster::~SimulatedCluster() {
  network.Close();
  coordinator.reset();
  shards.clear();
  scheduler.Clear();
}

void SimulatedCluster::SetNumPs(uint32_t num_ps) {
  num_ps_ = num_ps;
  shards.clear();
  shards.resize(num_ps);
  nonces_.assign(num_ps, 0);
  shard_disks_.clear();
  shard_disks_.resize(num_ps);
}

void SimulatedCluster::Start() {
  for (uint32_t ps = 0; ps < num_ps_; ++ps) StartPs(ps);
  Tick();
}

void SimulatedCluster::StartPs(uint32_t ps) {
  nonces_[ps] = next_nonce_++;
  if (disk != nullptr) shard_disks_[ps] = disk->OpenShardDisk(ps);
  Shard::Options shard;
  shard.index = ps;
  shard.num_ps = num_ps_;
  shard.nonce = nonces_[ps];
  shard.memory_limit_bytes = options.memory_limit_bytes;
  shards[ps] =
      std::make_unique<Shard>(shard, &scheduler, shard_disks_[ps].get());
  if (ps == 0) return StartCoordinator();

  proto::RegisterRequest request;
  request.mutable_sender()->mutable_task()->set_job(kPsJob);
  request.mutable_sender()->mutable_task()->set_index(ps);
  request.set_nonce(nonces_[ps]);
  request.set_protocol_version(kProtocolVersion);
  request.set_num_ps(num_ps_);
  request.set_num_workers(options.num_workers);
  request.set_memory_limit_bytes(options.memory_limit_bytes);
  SimulatedSession::Hooks hooks;
  hooks.hear = [](const std::function<void()>& event) { event(); };
  hooks.on_sender = [](const proto::Sender&) {};
  hooks.on_news = [](const proto::RenewLeaseResponse&) {};
  hooks.on_refused = [this, ps](const absl::Status& status) {
    // A late message of an earlier life has taken its place.
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    KillPs(ps);
    scheduler.After(absl::Seconds(1), [this, ps] {
      if (ps < num_ps_ && !IsAlive(ps)) StartPs(ps);
    });
  };
  // Where nothing is saved, the loss of a ps is the end.
  hooks.past_network = disk == nullptr;
  sessions_.push_back(
      std::make_unique<SimulatedSession>(this, request, std::move(hooks)));
  ps_sessions_[ps] = sessions_.back().get();
  ps_sessions_[ps]->Start();
}

void SimulatedCluster::StartCoordinator() {
  ++coordinator_life_;
  admitted_.clear();
  Coordinator::Options of;
  of.num_ps = num_ps_;
  of.num_workers = options.num_workers;
  of.lease = options.lease;
  of.resend_after = absl::Seconds(3);
  of.memory_limit_bytes = options.memory_limit_bytes;
  of.shard_nonce = nonces_[0];
  of.receipt_secret = "no worker knows it";
  of.receipt_secret.resize(16);
  if (disk != nullptr) {
    archive_ = disk->OpenArchive();
    of.journal = disk->journal();
  }
  coordinator =
      std::make_unique<Coordinator>(of, &scheduler, this, archive_.get());
}

void SimulatedCluster::KillPs(uint32_t ps) {
  if (ps == 0) {
    ++coordinator_life_;
    coordinator.reset();
    archive_.reset();
  } else {
    ps_sessions_.at(ps)->Stop();
    ps_sessions_.erase(ps);
  }
  shards[ps].reset();
  shard_disks_[ps].reset();
}

void SimulatedCluster::LeavePs(uint32_t ps) {
  proto::LeaveRequest request;
  *request.mutable_sender() = ps_sessions_.at(ps)->sender();
  network.Call<proto::LeaveRequest, proto::LeaveResponse>(
      [this](auto r, auto done) {
        AtCoordinator(&Coordinator::Leave, r, std::move(done));
      },
      request, [](const auto&) {});
}

void SimulatedCluster::RepeatRestore(uint32_t ps) {
  const auto last = last_restores_.find(ps);
  if (last == last_restores_.end()) return;
  network.Call<proto::RestoreRequest, proto::RestoreResponse>(
      [this, ps](auto r, auto done) {
        AtShard(ps, &Shard::Restore, std::move(r), std::move(done));
      },
      last->second, [](const auto&) {});
}

void SimulatedCluster::Tick() {
  if (coordinator != nullptr) {
    coordinator->Tick();
    ExpectNobodyWasAdmitted();
  }
  for (auto& shard : shards) {
    if (shard != nullptr) shard->Tick();
  }
  OnTick();
  scheduler.After(absl::Milliseconds(100), [this] { Tick(); });
}

// [R5]
void SimulatedCluster::WatchGeneration(uint64_t generation) {
  if (disk == nullptr) return;
  EXPECT_LE(generation, disk->journal().generation())
      << "a generation that is not in the journal";
}

// [L1]
void SimulatedCluster::WatchIncarnation(const TaskId& task, uint64_t nonce,
                                        uint64_t incarnation) {
  uint64_t& last = last_incarnation_[task];
  uint64_t& known = incarnations_[{coordinator_life_, task, nonce}];
  // A late message of a process that was replaced is one more process. Of a job
  // that is over, every life of the coordinator begins alike.
  EXPECT_TRUE(incarnation == known || incarnation > last ||
              (disk && disk->journal().finished()))
      << task.ToString();
  known = incarnation;
  last = std::max(last, incarnation);
}

// [L1] An admission is the answer to a call that has just come in: a process
// whose call is parked may have died.
void SimulatedCluster::ExpectNobodyWasAdmitted() const {
  EXPECT_EQ(Incarnations(), admitted_)
      << "(task, incarnation): by a call that was parked";
}

std::map<TaskId, uint64_t> SimulatedCluster::Incarnations() const {
  std::map<TaskId, uint64_t> incarnations;
  const proto::GetStatusResponse status = Status();
  for (const proto::TaskStatus& task : status.tasks()) {
    incarnations[{task.task().job(), task.task().index()}] = task.incarnation();
  }
  return incarnations;
}

// [R10]
void SimulatedCluster::WatchState(const proto::JobState& state) {
  if (state.phase() != proto::DONE) return;
  EXPECT_TRUE(state.has_reporter()) << "nobody writes the result";
  if (disk == nullptr) return;
  EXPECT_TRUE(disk->journal().finished())
      << "DONE, and the last checkpoint is not on disk";
}

void SimulatedCluster::Watch(const google::protobuf::Message& response) {
  const google::protobuf::Reflection& reflection = *response.GetReflection();
  const auto* const type = response.GetDescriptor();
  uint64_t generation = 0;
  if (const auto* field = type->FindFieldByName("generation")) {
    generation = reflection.GetUInt64(response, field);
    WatchGeneration(generation);
  }
  if (const auto* field = type->FindFieldByName("state")) {
    WatchState(static_cast<const proto::JobState&>(
        reflection.GetMessage(response, field)));
  }
  if (const auto* field = type->FindFieldByName("durable_step")) {
    uint64_t& told = told_durable[generation];
    told = std::max(told, reflection.GetUInt64(response, field));
  }
}

void SimulatedCluster::Register(const proto::RegisterRequest& request,
                                Reply<proto::RegisterResponse> reply) {
  const TaskId task = LifeOf(request.sender()).worker;
  if (coordinator != nullptr) ExpectNobodyWasAdmitted();
  AtCoordinator<proto::RegisterRequest, proto::RegisterResponse>(
      &Coordinator::Register, request,
      [this, task, nonce = request.nonce(), reply = std::move(reply)](
          absl::StatusOr<proto::RegisterResponse> response) mutable {
        if (response.ok() && response->incarnation() > 0) {
          WatchIncarnation(task, nonce, response->incarnation());
        }
        reply(std::move(response));
      });
  if (coordinator != nullptr) admitted_ = Incarnations();
}

void SimulatedCluster::TakeTicket(const proto::TakeTicketRequest& request,
                                  Reply<proto::TakeTicketResponse> reply) {
  const PushId push{LifeOf(request.sender()), PushSequence(request.sequence())};
  waiting_for_tickets.insert(push);
  AtCoordinator<proto::TakeTicketRequest, proto::TakeTicketResponse>(
      &Coordinator::TakeTicket, request,
      [this, push, reply = std::move(reply)](
          absl::StatusOr<proto::TakeTicketResponse> response) mutable {
        waiting_for_tickets.erase(waiting_for_tickets.find(push));
        if (response.ok() && response->has_ticket()) {
          OnTicket(response->generation(), push, response->ticket().index());
        }
        reply(std::move(response));
      });
}

// The answer is heard by no other life of the coordinator.
void SimulatedCluster::Send(uint32_t ps, const ShardRequest& request,
                            Reply<ShardResponse> reply) {
  std::visit(
      [&](const auto& typed) {
        using Request = std::decay_t<decltype(typed)>;
        using Response = typename ShardMethod<Request>::Response;
        WatchGeneration(typed.sender().generation());
        if constexpr (std::is_same_v<Request, proto::RestoreRequest>) {
          WatchRestore(ps, typed);
        } else if constexpr (std::is_same_v<Request, proto::EndRequest>) {
          WatchState(typed.state());
        }
        OnSent(typed);
        network.Call<Request, Response>(
            [this, ps](Request r, Reply<Response> done) {
              AtShard(ps, kShardHandler<Request>, r, std::move(done));
              OnHandled(ps, std::move(r));
            },
            typed,
            [this, life = coordinator_life_,
             reply = OfMethod<Request>(std::move(reply))](
                absl::StatusOr<Response> response) mutable {
              if (life == coordinator_life_) reply(std::move(response));
            });
      },
      request);
}

void SimulatedCluster::WatchRestore(uint32_t ps,
                                    const proto::RestoreRequest& request) {
  slices.assign(request.slices().begin(), request.slices().end());
  std::optional<SimulatedDisk::Name> origin;
  if (request.has_checkpoint()) {
    origin = SimulatedDisk::NameOf(request.checkpoint());
  }
  const auto [it, fresh] =
      origins.emplace(request.sender().generation(), origin);
  EXPECT_EQ(it->second, origin) << "shards go on from different states";
  last_restores_[ps] = request;
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
    request.mutable_sender()->set_generation(coordinator->generation().value());
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
    : cluster_(cluster),
      request_([&] {
        proto::RegisterRequest request;
        request.mutable_sender()->mutable_task()->set_job(kWorkerJob);
        request.mutable_sender()->mutable_task()->set_index(index);
        request.set_nonce(nonce);
        request.set_protocol_version(kProtocolVersion);
        request.set_num_ps(cluster->num_ps());
        request.set_num_workers(
            std::max(cluster->options.num_workers, index + 1));
        return request;
      }()),
      session_(cluster, request_,
               {[this](std::function<void()> event) { Hear(std::move(event)); },
                [this](const proto::Sender& sender) { OnSender(sender); },
                [this](const auto& news) { OnNews(news); },
                [this](const absl::Status& status) { OnRefused(status); }}) {}

void SimulatedWorker::Start() { session_.Start(); }

void SimulatedWorker::Hear(std::function<void()> event) {
  if (gone_ || leaving_) return;
  if (silent_) return missed_.push_back(std::move(event));
  event();
}

void SimulatedWorker::Die() {
  gone_ = true;
  session_.Stop();
}

void SimulatedWorker::FallSilent(absl::Duration pause) {
  if (silent_) return;
  silent_ = true;
  cluster_->scheduler.After(pause, [this] {
    silent_ = false;
    std::vector<std::function<void()>> missed = std::move(missed_);
    missed_.clear();
    for (auto& event : missed) Hear(std::move(event));
  });
}

void SimulatedWorker::After(absl::Duration delay, std::function<void()> event) {
  cluster_->scheduler.After(delay,
                            [this, epoch = epoch_, event = std::move(event)] {
                              Hear([this, epoch, event] {
                                if (epoch == epoch_) event();
                              });
                            });
}

void SimulatedWorker::OnSender(const proto::Sender& sender) {
  const bool begins = sender.generation() != sender_.generation();
  EXPECT_GE(sender.generation(), sender_.generation());
  sender_ = sender;
  if (begins) Begin();
}

void SimulatedWorker::OnNews(const proto::RenewLeaseResponse& news) {
  if (news.state().phase() == proto::DONE) OnDone();
  if (news.state().phase() == proto::FAILED) Die();
}

void SimulatedWorker::OnRefused(const absl::Status& status) {
  FAIL() << status;
}

// [G6] Every worker declares, and the first one counts.
void SimulatedWorker::Begin() {
  ++epoch_;
  by_ps_.clear();
  values_.clear();
  OnGeneration();
  proto::DeclareRequest request;
  *request.mutable_sender() = sender_;
  *request.mutable_declaration() = MakeDeclaration();
  for (const proto::Variable& variable : request.declaration().variables()) {
    variables_[variable.name()] = variable;
  }
  AskCoordinator<proto::DeclareRequest, proto::DeclareResponse>(
      &Coordinator::Declare, request, [this](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
        AwaitPlacement();
      });
}

void SimulatedWorker::AwaitPlacement() {
  proto::GetPlacementRequest request;
  *request.mutable_sender() = sender_;
  request.set_wait_ms(1000);
  AskCoordinator<proto::GetPlacementRequest, proto::GetPlacementResponse>(
      &Coordinator::GetPlacement, request, [this](const auto& response) {
        ASSERT_TRUE(response.ok()) << response.status();
        // Its session hears of another generation, and of the end.
        if (!response->ready() ||
            response->generation() != sender_.generation()) {
          return After(absl::Milliseconds(50), [this] { AwaitPlacement(); });
        }
        num_ps_ = response->ps_addresses_size();
        for (const proto::Slice& slice : response->slices()) {
          by_ps_[slice.ps()].push_back(slice);
        }
        OnPlaced();
      });
}

void SimulatedWorker::Leave() {
  if (gone_ || leaving_) return;
  leaving_ = true;
  SendLeave();
}

void SimulatedWorker::SendLeave() {
  proto::LeaveRequest request;
  *request.mutable_sender() = sender_;
  cluster_->network.Call<proto::LeaveRequest, proto::LeaveResponse>(
      [cluster = cluster_](auto r, auto done) {
        cluster->AtCoordinator(&Coordinator::Leave, r, std::move(done));
      },
      request,
      [this](absl::StatusOr<proto::LeaveResponse> response) {
        if (gone_) return;
        if (absl::IsUnavailable(response.status())) {
          return cluster_->scheduler.After(kRetryAfter, [this] {
            if (!gone_) SendLeave();
          });
        }
        // Other errors: another has taken its place, or another generation has
        // begun; there is nothing to leave.
        Die();
        left_ = true;
        OnLeft(response.ok() ? response->state() : proto::JobState());
      });
}

void SimulatedWorker::OnLeft(const proto::JobState& state) {}

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
        cluster->AtShard(ps, &Shard::Push, std::move(r), std::move(done));
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

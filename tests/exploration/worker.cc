#include "tests/exploration/worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/buffer.h"
#include "common/rpc_limits.h"

namespace holdfast::exploration {
namespace {

constexpr uint64_t kWaitMs = 30000;
constexpr const char* kVariables[] = {"a", "b"};

bool WorthRetrying(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

// ---- The session ----

Session::Session(World* world, Node node, Process process, const char* job,
                 uint32_t index, uint64_t nonce, std::function<void()> on_news)
    : world_(world),
      node_(node),
      process_(process),
      nonce_(nonce),
      on_news_(std::move(on_news)) {
  sender_.mutable_task()->set_job(job);
  sender_.mutable_task()->set_index(index);
}

void Session::Register() {
  proto::RegisterRequest request;
  *request.mutable_sender() = sender_;
  request.mutable_sender()->clear_incarnation();
  request.set_nonce(nonce_);
  request.set_protocol_version(kProtocolVersion);
  request.set_process(absl::StrCat("process ", nonce_));
  request.set_num_ps(kNumPs);
  request.set_num_workers(kNumWorkers);
  request.set_wait_ms(kWaitMs);
  if (process_ != kPs1) {
    request.set_job_digest("job");
    request.set_data_digest("data");
  }
  world_->ToCoordinator<proto::RegisterRequest, proto::RegisterResponse>(
      node_, "Register", &Coordinator::Register, request,
      [this, asked = world_->Now()](
          const absl::StatusOr<proto::RegisterResponse>& response) {
        if (response.ok() && response->incarnation() == 0) {  // not yet
          if (world_->Now() > asked) return Register();
          return world_->AtNextRound(node_, [this] { Register(); });
        }
        if (response.ok()) {
          sender_.set_incarnation(response->incarnation());
          sender_.set_generation(response->generation());
          on_news_();
          return Renew();
        }
        if (WorthRetrying(response.status())) {
          return world_->AtNextRound(node_, [this] { Register(); });
        }
        if (absl::IsAlreadyExists(response.status())) {
          return world_->Exit(process_, /*for_good=*/false);
        }
        world_->Violate(absl::StrCat("Register by ", sender_.task().job(), " ",
                                     sender_.task().index(), ": ",
                                     response.status().ToString()));
      });
}

void Session::Renew() {
  proto::RenewLeaseRequest request;
  *request.mutable_sender() = sender_;
  request.set_wait_ms(kWaitMs);
  request.set_known_phase(phase_);
  world_->ToCoordinator<proto::RenewLeaseRequest, proto::RenewLeaseResponse>(
      node_, "RenewLease", &Coordinator::RenewLease, request,
      [this, asked = world_->Now()](
          const absl::StatusOr<proto::RenewLeaseResponse>& response) {
        if (!response.ok()) {
          if (absl::IsNotFound(response.status())) return Register();
          if (WorthRetrying(response.status())) {
            return world_->AtNextRound(node_, [this] { Renew(); });
          }
          if (absl::IsAborted(response.status())) {
            return world_->Exit(process_, /*for_good=*/false);
          }
          return world_->Violate(
              absl::StrCat("RenewLease: ", response.status().ToString()));
        }
        const bool is_news = response->generation() > sender_.generation() ||
                             response->state().phase() != phase_;
        sender_.set_generation(response->generation());
        phase_ = response->state().phase();
        if (is_news) on_news_();
        if (is_news || world_->Now() > asked) return Renew();
        world_->AtNextRound(node_, [this] { Renew(); });
      });
}

// ---- The operator ----

void Operator::Start() {
  world_->ToCoordinator<proto::GetStatusRequest, proto::GetStatusResponse>(
      kOperator, "GetStatus", &Coordinator::GetStatus, {},
      [this](const absl::StatusOr<proto::GetStatusResponse>& response) {
        if (!response.ok()) {
          return world_->AtNextRound(kOperator, [this] { Start(); });
        }
        AskForCheckpoint();
      });
}

void Operator::AskForCheckpoint() {
  proto::CheckpointRequest request;
  if (step_.has_value()) request.set_step(*step_);
  request.set_wait_ms(kWaitMs);
  world_->ToCoordinator<proto::CheckpointRequest, proto::CheckpointResponse>(
      kOperator, "Checkpoint", &Coordinator::Checkpoint, request,
      [this](const absl::StatusOr<proto::CheckpointResponse>& response) {
        if (response.ok()) {
          step_ = response->step();
          if (response->durable_step() >= response->step()) return;
        }
        world_->AtNextRound(kOperator, [this] { AskForCheckpoint(); });
      });
}

// ---- The worker ----

Worker::Worker(World* world, uint32_t index, uint64_t nonce)
    : world_(world),
      index_(index),
      node_(index == 0 ? kWorker0 : kWorker1),
      session_(world, node_, index == 0 ? kWorkerProcess0 : kWorkerProcess1,
               "worker", index, nonce, [this] { OnNews(); }) {}

void Worker::StepDown() {
  ++epoch_;
  steps_down_ = true;
  Leave();
}

void Worker::OnNews() {
  if (steps_down_) {
    if (session_.phase() == proto::FAILED) return;
    ++epoch_;
    me_ = sender();
    return Leave();
  }
  if (session_.phase() == proto::DONE) {
    ++epoch_;
    me_ = sender();
    return Evaluate();
  }
  if (session_.phase() == proto::FAILED ||
      (me_.generation() == sender().generation() &&
       me_.incarnation() == sender().incarnation())) {
    return;
  }
  ++epoch_;
  me_ = sender();
  sequence_ = 0;
  version_ = 0;
  ticket_.reset();
  asking_ = false;
  spent_.clear();
  booked_.clear();
  flights_.clear();
  next_.reset();
  Begin();
}

void Worker::Later(std::function<void()> again) {
  world_->AtNextRound(node_, [this, epoch = epoch_, again = std::move(again)] {
    if (epoch == epoch_) again();
  });
}

bool Worker::IsOver(proto::Verdict verdict, std::function<void()> again) {
  if (verdict == proto::FENCED) {
    world_->Exit(index_ == 0 ? kWorkerProcess0 : kWorkerProcess1,
                 /*for_good=*/false);
    return true;
  }
  if (verdict != proto::ABORTED) return false;
  Later(std::move(again));
  return true;
}

template <typename Response>
Reply<Response> Worker::Expect(const char* rpc,
                               std::function<void(const Response&)> next,
                               std::function<void()> again) {
  return [this, rpc, next = std::move(next), again = std::move(again),
          epoch = epoch_](const absl::StatusOr<Response>& response) {
    if (epoch != epoch_) return;
    const absl::Status& status = response.status();
    if (status.ok()) return next(*response);
    const bool full =
        absl::IsResourceExhausted(status) &&
        (rpc == absl::string_view("Push") || rpc == absl::string_view("Pin"));
    if (WorthRetrying(status) || absl::IsAborted(status) ||
        absl::IsNotFound(status) || full) {
      return Later(again);
    }
    world_->Violate(
        absl::StrCat(rpc, " by worker ", index_, ": ", status.ToString()));
  };
}

template <typename Request, typename Response>
void Worker::AskCoordinator(const char* rpc,
                            World::Method<Request, Response> method,
                            const Request& request,
                            std::function<void(const Response&)> next) {
  world_->ToCoordinator<Request, Response>(
      node_, rpc, method, request, Expect<Response>(rpc, next, [=] {
        AskCoordinator<Request, Response>(rpc, method, request, next);
      }));
}

template <typename Request, typename Response>
void Worker::AskShard(uint32_t ps, const char* rpc,
                      World::AtShard<Request, Response> method,
                      const Request& request,
                      std::function<void(const Response&)> next) {
  world_->ToShard<Request, Response>(
      node_, ps, rpc, method, request, Expect<Response>(rpc, next, [=] {
        AskShard<Request, Response>(ps, rpc, method, request, next);
      }));
}

void Worker::AskPush(uint32_t ps, const PushPart& part,
                     std::function<void(const proto::PushResponse&)> next) {
  const auto again = [=] { AskPush(ps, part, next); };
  world_->Push(node_, ps, part,
               Expect<proto::PushResponse>(
                   "Push",
                   [=](const proto::PushResponse& response) {
                     if (IsOver(response.verdict(), again)) return;
                     next(response);
                   },
                   again));
}

// All declare the same; the first counts. In a new generation again: the
// declaration may not have outlived the coordinator.
void Worker::Begin() {
  proto::DeclareRequest request;
  *request.mutable_sender() = me_;
  *request.mutable_declaration() = world_->job().declaration;
  AskCoordinator<proto::DeclareRequest, proto::DeclareResponse>(
      "Declare", &Coordinator::Declare, request,
      [this](const proto::DeclareResponse&) { AwaitPlacement(); });
}

void Worker::AwaitPlacement() {
  proto::GetPlacementRequest request;
  *request.mutable_sender() = me_;
  request.set_wait_ms(kWaitMs);
  AskCoordinator<proto::GetPlacementRequest, proto::GetPlacementResponse>(
      "GetPlacement", &Coordinator::GetPlacement, request,
      [this](const proto::GetPlacementResponse& response) {
        if (!response.ready() || response.generation() != me_.generation()) {
          return Later([this] { AwaitPlacement(); });
        }
        world_->OnVariablesReady();
        if (world_->asynchronous()) return AskForTicket();
        if (world_->job().declaration.total_tickets() > 0) return NeedTicket();
        Pull(0);
      });
}

PushPart Worker::MakePart(uint32_t ps, uint64_t sequence, uint64_t version,
                          float gradient) const {
  PushPart part;
  part.sender = me_;
  part.sequence = PushSequence(sequence);
  part.step = GlobalStep(version);
  TensorPiece& piece = part.tensors.emplace_back();
  piece.variable = kVariables[ps];
  piece.shape = {1};
  piece.data = Buffer::FromString(
      std::string(reinterpret_cast<const char*>(&gradient), sizeof(gradient)));
  return part;
}

proto::PullRequest Worker::PullOf(uint32_t ps) const {
  proto::PullRequest request;
  *request.mutable_sender() = me_;
  request.add_ranges()->set_variable(kVariables[ps]);
  request.mutable_ranges(0)->set_size(1);
  request.set_wait_ms(kWaitMs);
  return request;
}

// ---- Synchronous ----

void Worker::NeedTicket() {
  ++sequence_;
  const proto::TakeTicketRequest request = TicketRequest(sequence_);
  AskCoordinator<proto::TakeTicketRequest, proto::TakeTicketResponse>(
      "TakeTicket", &Coordinator::TakeTicket, request,
      [this](const proto::TakeTicketResponse& response) {
        const auto again = [this] {
          --sequence_;
          NeedTicket();
        };
        if (IsOver(response.verdict(), again)) return;
        if (response.has_ticket()) {
          ticket_ = response.ticket().index();
          return Pull(std::max(version_, response.global_step()));
        }
        if (response.state().phase() != proto::DONE) again();
      });
}

// [1] Of one version on all shards [R7].
void Worker::Pull(uint64_t at_least) {
  pulled_ = {};
  for (uint32_t ps = 0; ps < kNumPs; ++ps) {
    proto::PullRequest request = PullOf(ps);
    request.set_min_version(at_least);
    AskShard<proto::PullRequest, PullReply>(
        ps, "Pull", &Shard::Pull, request, [=](const PullReply& reply) {
          if (reply.tensors.empty()) return Later([=] { Pull(at_least); });
          reply.tensors[0].data.CopyTo(&values_[ps].value);
          pulled_[ps] = reply.version.value();
          OnPulled();
        });
  }
}

void Worker::OnPulled() {
  if (!pulled_[0].has_value() || !pulled_[1].has_value()) return;
  if (pulled_[0] != pulled_[1]) {
    return Pull(std::max(*pulled_[0], *pulled_[1]));
  }
  version_ = *pulled_[0];
  if (version_ < world_->job().declaration.total_steps()) Compute();
}

// [2]
void Worker::Compute() {
  if (!ticket_.has_value()) ++sequence_;
  const std::string broken = world_->oracle().Compute(
      {me_.generation(), index_, me_.incarnation(), sequence_}, version_,
      values_, index_, ticket_, &gradient_);
  if (!broken.empty()) return world_->Violate(broken);
  acknowledged_ = 0;
  held_ = {};
  PushTo(0);
  if (!world_->Misbehaves(index_, Misdeed::kOffersUnheld)) PushTo(1);
}

void Worker::PushTo(uint32_t ps) {
  PushPart part = MakePart(ps, sequence_, version_, gradient_[ps]);
  part.acked_through = PushSequence(sequence_ - 1);
  // One that a shard has found too late is offered all the same.
  AskPush(ps, part, [this, ps](const proto::PushResponse& response) {
    held_[ps] = response.receipt();
    ++acknowledged_;
    if (acknowledged_ < kNumPs &&
        world_->Misbehaves(index_, Misdeed::kOffersUnheld)) {
      return OfferUnheld();
    }
    if (acknowledged_ == kNumPs) Contribute();
  });
}

proto::ContributeRequest Worker::OfferOf() const {
  proto::ContributeRequest request;
  *request.mutable_sender() = me_;
  request.set_step(version_);
  request.set_seat(index_);
  request.set_sequence(sequence_);
  request.set_examples(1);
  request.set_acked_through(sequence_ - 1);
  request.set_wait_ms(kWaitMs);
  request.mutable_receipts()->Add(held_.begin(), held_.end());
  return request;
}

// [3]
void Worker::Contribute() {
  const proto::ContributeRequest request = OfferOf();
  AskCoordinator<proto::ContributeRequest, proto::ContributeResponse>(
      "Contribute", &Coordinator::Contribute, request,
      [this](const proto::ContributeResponse& response) {
        const std::string broken = world_->oracle().OnVerdict(
            {me_.generation(), index_, me_.incarnation(), sequence_},
            response.verdict());
        if (!broken.empty()) return world_->Violate(broken);
        const auto again = [this] { Contribute(); };
        if (IsOver(response.verdict(), again)) return;
        if (response.verdict() == proto::VERDICT_UNSPECIFIED) return again();
        GoOn();
      });
}

// [6]
void Worker::GoOn() {
  ++version_;
  if (!ticket_.has_value()) return Pull(version_);
  ticket_.reset();
  NeedTicket();
}

// ---- Asynchronous ----

proto::TakeTicketRequest Worker::TicketRequest(uint64_t sequence) {
  proto::TakeTicketRequest request;
  *request.mutable_sender() = me_;
  request.set_sequence(sequence);
  request.set_wait_ms(kWaitMs);
  if (!world_->asynchronous()) {
    request.set_acked_through(sequence - 1);
    return request;
  }
  *request.mutable_spent() = {spent_.begin(), spent_.end()};
  uint64_t through = 0;
  while (booked_.count(through + 1) > 0) ++through;
  request.set_acked_through(through);
  return request;
}

void Worker::OnBooked(const proto::TakeTicketRequest& request) {
  for (const proto::SpentTicket& spent : request.spent()) {
    booked_.insert(spent.sequence());
  }
  spent_.erase(std::remove_if(spent_.begin(), spent_.end(),
                              [&](const proto::SpentTicket& spent) {
                                return booked_.count(spent.sequence()) > 0;
                              }),
               spent_.end());
}

// [A1] One more than is worked on.
void Worker::AskForTicket() {
  if (asking_ || next_.has_value()) return;
  asking_ = true;
  const proto::TakeTicketRequest request = TicketRequest(++sequence_);
  AskCoordinator<proto::TakeTicketRequest, proto::TakeTicketResponse>(
      "TakeTicket", &Coordinator::TakeTicket, request,
      [this, request](const proto::TakeTicketResponse& response) {
        const auto again = [this] {
          asking_ = false;
          --sequence_;
          AskForTicket();
        };
        if (IsOver(response.verdict(), again)) return;
        OnBooked(request);
        asking_ = false;
        if (!response.has_ticket()) {
          --sequence_;
          if (response.state().phase() != proto::DONE) AskForTicket();
          return;
        }
        next_.emplace();
        next_->sequence = request.sequence();
        next_->ticket = response.ticket();
        Launch();
      });
}

// [A2]
void Worker::Launch() {
  const auto& mode = world_->job().declaration.consistency().asynchronous();
  if (!next_.has_value() ||
      flights_.size() >= std::max(1u, mode.pipeline_depth())) {
    return;
  }
  const uint64_t sequence = next_->sequence;
  flights_[sequence] = *std::move(next_);
  next_.reset();
  AskForTicket();
  for (uint32_t ps = 0; ps < kNumPs; ++ps) {
    AskShard<proto::PullRequest, PullReply>(
        ps, "Pull", &Shard::Pull, PullOf(ps), [=](const PullReply& reply) {
          Flight& flight = flights_.at(sequence);
          flight.versions[ps] = reply.version.value();
          if (++flight.pulled == kNumPs) OnPushed(sequence);
        });
  }
}

void Worker::OnPushed(uint64_t sequence) {
  if (world_->Misbehaves(index_, Misdeed::kClaimsUnapplied)) {
    return Claim(sequence);
  }
  PushTo(0, sequence);
  if (!world_->Misbehaves(index_, Misdeed::kAppliesUnheld)) {
    PushTo(1, sequence);
  }
}

void Worker::PushTo(uint32_t ps, uint64_t sequence) {
  const Flight& flight = flights_.at(sequence);
  std::array<float, 2> gradient;
  world_->oracle().Compute({}, 0, {}, 0, flight.ticket.index(), &gradient);
  PushPart part = MakePart(ps, sequence, flight.versions[ps], gradient[ps]);
  if (ps == 0 && world_->Misbehaves(index_, Misdeed::kAcknowledgesAll)) {
    part.acked_through = PushSequence(sequence - 1);
  }
  AskPush(ps, part, [=](const proto::PushResponse& response) {
    Flight& flight = flights_.at(sequence);
    flight.held[ps] = response.receipt();
    ++flight.acknowledged;
    if (flight.acknowledged < kNumPs &&
        world_->Misbehaves(index_, Misdeed::kAppliesUnheld)) {
      return ApplyWrongly(sequence, /*wrong_scalars=*/false,
                          [=] { PushTo(1, sequence); });
    }
    if (flight.acknowledged < kNumPs) return;
    if (world_->Misbehaves(index_, Misdeed::kWrongScalars)) {
      return ApplyWrongly(sequence, /*wrong_scalars=*/true,
                          [=] { Apply(sequence); });
    }
    Apply(sequence);
  });
}

// [A3]
void Worker::Apply(uint64_t sequence) {
  ApplyAt(0, sequence);
  if (!world_->Misbehaves(index_, Misdeed::kClaimsHalfApplied)) {
    ApplyAt(1, sequence);
  }
}

proto::ApplyRequest Worker::ApplyOf(uint32_t ps, uint64_t sequence) const {
  const Flight& flight = flights_.at(sequence);
  proto::ApplyRequest request;
  *request.mutable_sender() = me_;
  request.set_sequence(sequence);
  *request.mutable_scalars() = flight.ticket.scalars();
  request.set_ticket_receipt(flight.ticket.receipt());
  request.mutable_receipts()->Add(flight.held.begin(), flight.held.end());
  request.set_examples(1);
  request.set_wait_ms(kWaitMs);
  if (ps == 0 && world_->Misbehaves(index_, Misdeed::kAcknowledgesAll)) {
    request.set_acked_through(sequence - 1);
  }
  return request;
}

void Worker::ApplyAt(uint32_t ps, uint64_t sequence) {
  AskShard<proto::ApplyRequest, proto::ApplyResponse>(
      ps, "Apply", &Shard::Apply, ApplyOf(ps, sequence),
      [=](const proto::ApplyResponse& response) {
        const auto again = [=] { ApplyAt(ps, sequence); };
        if (IsOver(response.verdict(), again)) return;
        if (response.verdict() == proto::VERDICT_UNSPECIFIED) return again();
        if (response.verdict() != proto::ACCEPTED) {
          return world_->Violate(absl::StrCat(
              "Apply of push ", sequence, " of worker ", index_,
              " is answered ", proto::Verdict_Name(response.verdict())));
        }
        OnApplied(ps, sequence, response);
      });
}

void Worker::OnApplied(uint32_t ps, uint64_t sequence,
                       const proto::ApplyResponse& response) {
  world_->OnApplied(index_);
  Flight& flight = flights_.at(sequence);
  flight.staleness = std::max(flight.staleness, response.staleness());
  flight.applied_at[ps] = response.receipt();
  if (++flight.applied < kNumPs) {
    if (world_->Misbehaves(index_, Misdeed::kClaimsHalfApplied)) {
      Claim(sequence);
    }
    return;
  }
  proto::SpentTicket spent;
  spent.set_sequence(sequence);
  spent.set_examples(1);
  spent.set_staleness(flight.staleness);
  spent.mutable_receipts()->Add(flight.applied_at.begin(),
                                flight.applied_at.end());
  spent_.push_back(spent);
  flights_.erase(sequence);
  OnSpent();
}

// [A4]
void Worker::OnSpent() {
  if (!next_.has_value() && !asking_) return AskForTicket();
  if (!asking_) return Launch();  // whose request for a ticket tells
  const proto::TakeTicketRequest request = TicketRequest(0);
  const auto ask = [this, request](auto self) -> void {
    AskCoordinator<proto::TakeTicketRequest, proto::TakeTicketResponse>(
        "TakeTicket", &Coordinator::TakeTicket, request,
        [=](const proto::TakeTicketResponse& response) {
          if (IsOver(response.verdict(), [=] { self(self); })) return;
          OnBooked(request);
        });
  };
  ask(ask);
}

// ---- What it may not do ----

void Worker::OfferUnheld() {
  const auto again = [this] { OfferUnheld(); };
  world_->ToCoordinator<proto::ContributeRequest, proto::ContributeResponse>(
      node_, "Contribute", &Coordinator::Contribute, OfferOf(),
      [this, epoch = epoch_,
       again](const absl::StatusOr<proto::ContributeResponse>& response) {
        if (epoch != epoch_) return;
        if (response.ok() && IsOver(response->verdict(), again)) return;
        if (response.ok() && response->verdict() == proto::STALE) return GoOn();
        if (!response.ok() && !absl::IsFailedPrecondition(response.status())) {
          return Later(again);
        }
        world_->OnMisdeed();
        if (!response.ok()) return PushTo(1);
        world_->Violate(absl::StrCat("a push that ps 1 lacks was taken: ",
                                     response->ShortDebugString()));
      });
}

void Worker::ApplyWrongly(uint64_t sequence, bool wrong_scalars,
                          std::function<void()> then) {
  proto::ApplyRequest request = ApplyOf(0, sequence);
  if (wrong_scalars) request.mutable_scalars(0)->set_learning_rate(1e9);
  const auto again = [=] { ApplyWrongly(sequence, wrong_scalars, then); };
  world_->ToShard<proto::ApplyRequest, proto::ApplyResponse>(
      node_, 0, "Apply", &Shard::Apply, request,
      [this, epoch = epoch_, again,
       then](const absl::StatusOr<proto::ApplyResponse>& response) {
        if (epoch != epoch_) return;
        if (response.ok() && IsOver(response->verdict(), again)) return;
        if (!response.ok() && !absl::IsFailedPrecondition(response.status())) {
          return Later(again);
        }
        world_->OnMisdeed();
        if (!response.ok()) return then();
        world_->Violate(absl::StrCat("a push was applied wrongly: ",
                                     response->ShortDebugString()));
      });
}

void Worker::Claim(uint64_t sequence) {
  // At once: the worker may hear that it is shut out before it is answered.
  world_->OnMisdeed();
  proto::TakeTicketRequest request = TicketRequest(0);
  proto::SpentTicket& spent = *request.add_spent();
  spent.set_sequence(sequence);
  spent.set_examples(1);
  const Flight& flight = flights_.at(sequence);
  spent.mutable_receipts()->Add(flight.applied_at.begin(),
                                flight.applied_at.end());
  world_->ToCoordinator<proto::TakeTicketRequest, proto::TakeTicketResponse>(
      node_, "TakeTicket", &Coordinator::TakeTicket, request,
      [this, epoch = epoch_,
       sequence](const absl::StatusOr<proto::TakeTicketResponse>& response) {
        if (epoch != epoch_) return;
        const auto again = [=] { Claim(sequence); };
        if (!response.ok() && !absl::IsFailedPrecondition(response.status())) {
          return Later(again);
        }
        if (response.ok() && response->verdict() == proto::ABORTED) {
          return Later(again);
        }
        if (response.ok() && response->verdict() != proto::FENCED) {
          return world_->Violate(absl::StrCat("a false claim was booked: ",
                                              response->ShortDebugString()));
        }
        world_->Exit(kWorkerProcess1, /*for_good=*/false);
      });
}

// ---- The end ----

void Worker::Evaluate() {
  if (leaving_) return;
  leaving_ = true;
  if (index_ == 0 && world_->job().evaluates) return PinAll();
  Leave();
}

void Worker::PinAll() {
  for (uint32_t ps = 0; ps < kNumPs; ++ps) {
    proto::PinRequest request;
    *request.mutable_sender() = me_;
    request.set_hold_ms(600000);
    AskShard<proto::PinRequest, proto::PinResponse>(
        ps, "Pin", &Shard::Pin, request,
        [this, ps](const proto::PinResponse& response) {
          pins_[ps] = response;
          ReadPinned(ps);
        });
  }
}

void Worker::ReadPinned(uint32_t ps) {
  proto::PullRequest request = PullOf(ps);
  request.set_exact_version(pins_[ps].version());
  AskShard<proto::PullRequest, PullReply>(
      ps, "Pull", &Shard::Pull, request, [this, ps](const PullReply& reply) {
        float value = 0;
        reply.tensors[0].data.CopyTo(&value);
        const std::string broken = world_->oracle().CheckShard(
            ps, me_.generation(), world_->job().declaration.total_steps(),
            value);
        if (!broken.empty()) return world_->Violate(broken);
        proto::UnpinRequest unpin;
        *unpin.mutable_sender() = me_;
        unpin.set_pin(pins_[ps].pin());
        AskShard<proto::UnpinRequest, proto::UnpinResponse>(
            ps, "Unpin", &Shard::Unpin, unpin,
            [this](const proto::UnpinResponse&) {
              if (++done_at_end_ < kNumPs) return;
              proto::ReportEvaluationRequest report;
              *report.mutable_sender() = me_;
              report.mutable_result()->set_step(
                  world_->job().declaration.total_steps());
              AskCoordinator<proto::ReportEvaluationRequest,
                             proto::ReportEvaluationResponse>(
                  "ReportEvaluation", &Coordinator::ReportEvaluation, report,
                  [this](const proto::ReportEvaluationResponse&) { Leave(); });
            });
      });
}

void Worker::Leave() {
  proto::LeaveRequest request;
  *request.mutable_sender() = me_;
  AskCoordinator<proto::LeaveRequest, proto::LeaveResponse>(
      "Leave", &Coordinator::Leave, request, [this](const auto&) {
        world_->Exit(index_ == 0 ? kWorkerProcess0 : kWorkerProcess1,
                     /*for_good=*/!steps_down_);
      });
}

}  // namespace holdfast::exploration

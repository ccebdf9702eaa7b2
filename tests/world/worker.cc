// SPDX-License-Identifier: Apache-2.0
#include "tests/world/worker.h"

#include <algorithm>
#include <cmath>

#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/tensor/buffer.h"

namespace holdfast::sim {
namespace {

// How long a worker waits for the last version. It leaves even if it does not
// get it.
constexpr absl::Duration kLastVersion = absl::Seconds(30);

}  // namespace

std::unique_ptr<WorkerProgram> MakeScriptedWorker(World* world, Process process,
                                                  uint32_t index,
                                                  uint64_t nonce) {
  if (world->job().asynchronous()) {
    return std::make_unique<AsynchronousWorker>(world, process, index, nonce);
  }
  return std::make_unique<SynchronousWorker>(world, process, index, nonce);
}

// ---- All workers ----

ScriptedWorker::ScriptedWorker(World* world, Process process, uint32_t index,
                               uint64_t nonce)
    : world_(world),
      process_(process),
      index_(index),
      node_(World::NodesOf(process).front()),
      session_(
          world, node_, RegisterRequestOf(*world, kWorkerJob, index, nonce),
          {[this](const proto::Sender& sender) { OnSender(sender); },
           [this](const proto::RenewLeaseResponse& news) {
             OnPhase(news.state().phase());
           },
           // The worker is fenced, too late, or came before the declaration
           // that admits it: its supervisor starts another.
           [this](const absl::Status& status) {
             if (!absl::IsAborted(status) && !absl::IsInvalidArgument(status)) {
               world_->Violate(absl::StrCat(
                   "worker ", index_, " is refused: ", status.ToString()));
             }
             world_->Exit(process_, /*for_good=*/false);
           }}) {}

void ScriptedWorker::After(absl::Duration delay, std::function<void()> event) {
  world_->After(node_, delay, [this, epoch = epoch_, event = std::move(event)] {
    if (epoch == epoch_) event();
  });
}

bool ScriptedWorker::IsOver(proto::Verdict verdict) {
  if (verdict != proto::FENCED && verdict != proto::ABORTED) return false;
  Stall();
  return true;
}

void ScriptedWorker::OnSender(const proto::Sender& sender) {
  const bool begins = sender.generation() != me_.generation() ||
                      sender.incarnation() != me_.incarnation();
  if (sender.generation() < me_.generation()) {
    world_->Violate("a worker is given an older generation");
  }
  me_ = sender;
  if (leaving_) return Leave();
  if (!begins) return;
  ++epoch_;
  Begin();
}

void ScriptedWorker::OnPhase(proto::JobPhase phase) {
  if (phase == proto::FAILED) return world_->Exit(process_, /*for_good=*/true);
  if (!IsOrderlyEnd(phase) || done_) return;
  done_ = true;
  if (phase == proto::STOPPED && !std::exchange(leaving_, true)) return Leave();
  LeaveIfDone();
  // A newcomer has nothing to wait for.
  if (leaving_) return;
  if (by_ps_.empty()) {
    leaving_ = true;
    return Leave();
  }
  world_->After(node_, kLastVersion, [this] {
    if (std::exchange(leaving_, true)) return;
    Leave();
  });
}

void ScriptedWorker::LeaveIfDone() {
  if (!done_ || leaving_ || !has_finished()) return;
  leaving_ = true;
  if (job().evaluates && index_ == 0 && num_ps_ > 0) return PinAll();
  Leave();
}

void ScriptedWorker::StepDown() {
  steps_down_ = true;
  leaving_ = true;
  Leave();
}

// [G6] Every worker declares, and the first one counts.
void ScriptedWorker::Begin() {
  by_ps_.clear();
  values_.clear();
  OnGeneration();
  proto::DeclareRequest request;
  *request.mutable_sender() = me_;
  *request.mutable_declaration() = job().declaration;
  for (const proto::Variable& variable : request.declaration().variables()) {
    variables_[variable.name()] = variable;
  }
  Get<proto::DeclareRequest>(
      kCoordinator, request,
      [this](const proto::DeclareResponse&) { AwaitPlacement(); });
}

void ScriptedWorker::AwaitPlacement() {
  proto::GetPlacementRequest request;
  *request.mutable_sender() = me_;
  request.set_wait_ms(park_ms());
  if (!job().first_values.empty()) {
    request.set_values_given_through(given_through_);
  }
  Get<proto::GetPlacementRequest>(
      kCoordinator, request,
      [this](const proto::GetPlacementResponse& response) {
        // The session hears of another generation, and of the end.
        if (response.generation() == me_.generation() &&
            response.values_wanted() && !job().first_values.empty() &&
            given_through_ < me_.generation()) {
          return GiveAll();
        }
        if (!response.ready() || response.generation() != me_.generation()) {
          return After(kRetryAfter, [this] { AwaitPlacement(); });
        }
        num_ps_ = response.ps_addresses_size();
        for (const proto::Slice& slice : response.slices()) {
          by_ps_[slice.ps()].push_back(slice);
        }
        OnPlaced();
      });
}

void ScriptedWorker::GiveAll() {
  satisfied_ = 0;
  for (uint32_t ps = 0; ps < world_->num_ps(); ++ps) Give(ps, {});
}

void ScriptedWorker::Give(uint32_t ps, std::vector<TensorPiece> tensors) {
  const GivenPart part = {me_, std::move(tensors)};
  if (!part.tensors.empty() &&
      world_->Misbehaves(index_, Misdeed::kGivesOthers)) {
    world_->OnMisdeed();
    GivenPart wrong = part;
    wrong.tensors[0].data =
        Buffer::FromString(std::string(wrong.tensors[0].data.size(), '\1'));
    return Ask<GivenPart>(
        ShardNode(ps), wrong,
        [this, ps](const absl::StatusOr<proto::GiveResponse>& response) {
          // The range may have arrived already.
          if (!response.ok() && !absl::IsInvalidArgument(response.status())) {
            world_->Violate(response.status().ToString());
          }
          Give(ps, {});
        });
  }
  Get<GivenPart>(ShardNode(ps), part,
                 [this, ps](const proto::GiveResponse& response) {
                   OnGiven(ps, response);
                 });
}

void ScriptedWorker::OnGiven(uint32_t ps, const proto::GiveResponse& response) {
  if (response.wanted().empty()) {
    if (++satisfied_ < world_->num_ps()) return;
    given_through_ = me_.generation();
    return AwaitPlacement();
  }
  const proto::ReadRange& wanted = response.wanted(0);
  const float* const values = &job().first_values.at(wanted.variable())[0];
  TensorPiece piece;
  piece.variable = wanted.variable();
  piece.begin = wanted.begin();
  piece.data = Buffer::FromString(
      std::string(reinterpret_cast<const char*>(values + wanted.begin()),
                  wanted.size() * sizeof(float)));
  Give(ps, {std::move(piece)});
}

proto::PullRequest ScriptedWorker::PullOf(uint32_t ps) const {
  proto::PullRequest request;
  *request.mutable_sender() = me_;
  request.set_wait_ms(park_ms());
  if (const auto here = by_ps_.find(ps); here != by_ps_.end()) {
    for (const proto::Slice& slice : here->second) {
      proto::ReadRange& range = *request.add_ranges();
      range.set_variable(slice.variable());
      range.set_begin(slice.begin());
      range.set_size(slice.size());
    }
  }
  if (HasRows(job())) {
    *request.add_ranges() = RangeOfRows(RowsOn(job(), ps, num_ps_));
  }
  return request;
}

void ScriptedWorker::Keep(const PullReply& reply) {
  for (const TensorPiece& piece : reply.tensors) {
    if (piece.rows.has_value()) continue;
    std::vector<float>& values = values_[piece.variable];
    values.resize(NumElements(variables_.at(piece.variable)));
    piece.data.CopyTo(&values[piece.begin]);
  }
}

std::vector<PushPart> ScriptedWorker::CutIntoParts(
    uint32_t ps, const Values& gradient, uint64_t sequence, uint64_t step,
    uint64_t acked_through) const {
  std::vector<PushPart> parts;
  const auto add = [&](std::vector<TensorPiece> tensors) {
    PushPart& part = parts.emplace_back();
    part.sender = me_;
    part.sequence = PushSequence(sequence);
    part.step = GlobalStep(step);
    part.part = parts.size() - 1;
    part.acked_through = PushSequence(acked_through);
    part.tensors = std::move(tensors);
  };
  std::vector<TensorPiece> pieces;
  const auto here = by_ps_.find(ps);
  for (const proto::Slice& slice :
       here == by_ps_.end() ? std::vector<proto::Slice>() : here->second) {
    const auto whole = gradient.find(slice.variable());
    if (whole == gradient.end()) continue;  // not trainable
    const proto::Variable& variable = variables_.at(slice.variable());
    const uint64_t end = slice.begin() + slice.size();
    const uint64_t cut =
        job().cuts_pushes ? slice.begin() + slice.size() / 2 : slice.begin();
    using Range = std::pair<uint64_t, uint64_t>;
    for (auto [first, last] : {Range{slice.begin(), cut}, Range{cut, end}}) {
      if (first == last) continue;
      std::string bytes(reinterpret_cast<const char*>(&whole->second[first]),
                        (last - first) * sizeof(float));
      TensorPiece piece;
      piece.variable = slice.variable();
      piece.shape.assign(variable.shape().begin(), variable.shape().end());
      piece.begin = first;
      if (job().cuts_pushes) {
        piece.data = Buffer::FromString(bytes.substr(0, 3));
        piece.data.Append(Buffer::FromString(bytes.substr(3)));
      } else {
        piece.data = Buffer::FromString(std::move(bytes));
      }
      pieces.push_back(std::move(piece));
      if (last == cut) {
        add(std::move(pieces));
        pieces.clear();
      }
    }
  }
  // Each row by itself.
  const std::vector<uint64_t> rows =
      RowsOfPush(job(), gradient, RowsOn(job(), ps, num_ps_));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (job().cuts_pushes && !pieces.empty()) {
      add(std::move(pieces));
      pieces.clear();
    }
    const absl::Span<const float> row = RowOf(job(), gradient, rows[i]);
    TensorPiece& piece = pieces.emplace_back();
    piece.variable = kRows;
    piece.rows = RangeOfRows({rows[i]}).rows();
    piece.data = Buffer::FromString(std::string(
        reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float)));
  }
  if (!pieces.empty()) add(std::move(pieces));
  if (parts.empty()) add({});
  for (PushPart& part : parts) part.num_parts = parts.size();
  return parts;
}

// ---- The end ----

void ScriptedWorker::PinAll() {
  for (uint32_t ps = 0; ps < num_ps_; ++ps) {
    proto::PinRequest request;
    *request.mutable_sender() = me_;
    request.set_hold_ms(600000);
    Get<proto::PinRequest>(ShardNode(ps), request,
                           [this, ps](const proto::PinResponse& response) {
                             ReadPinned(ps, response);
                           });
  }
}

void ScriptedWorker::ReadPinned(uint32_t ps, const proto::PinResponse& pinned) {
  proto::PullRequest request = PullOf(ps);
  request.set_exact_version(pinned.version());
  Get<proto::PullRequest>(
      ShardNode(ps), request, [this, ps, pinned](const PullReply& reply) {
        if (reply.version.value() != job().end()) {
          world_->Violate("the pinned version is not the last one");
        }
        proto::UnpinRequest unpin;
        *unpin.mutable_sender() = me_;
        unpin.set_pin(pinned.pin());
        Get<proto::UnpinRequest>(
            ShardNode(ps), unpin,
            [this](const proto::UnpinResponse&) { OnRead(); });
      });
}

void ScriptedWorker::OnRead() {
  if (++read_ < num_ps_) return;
  proto::ReportEvaluationRequest report;
  *report.mutable_sender() = me_;
  report.mutable_result()->set_step(job().end());
  Get<proto::ReportEvaluationRequest>(
      kCoordinator, report,
      [this](const proto::ReportEvaluationResponse&) { Leave(); });
}

// Ignores all outstanding answers.
void ScriptedWorker::Leave() {
  ++epoch_;
  proto::LeaveRequest request;
  *request.mutable_sender() = me_;
  Ask<proto::LeaveRequest>(
      kCoordinator, request,
      [this](const absl::StatusOr<proto::LeaveResponse>& response) {
        // On other errors, another process has taken the place of this one, and
        // there is nothing to leave.
        world_->Exit(process_, /*for_good=*/done_ || !steps_down_);
      });
}

// ---- Synchronous ----

void SynchronousWorker::OnGeneration() {
  finished_ = false;
  sequence_ = 0;
  ticket_.reset();
  told_.clear();
  acked_through_ = 0;
}

// [R7]: all shards at one version, at or above `version`.
void SynchronousWorker::PullAll(uint64_t version) {
  pulled_.clear();
  for (uint32_t ps = 0; ps < num_ps(); ++ps) PullFrom(ps, version);
}

void SynchronousWorker::PullFrom(uint32_t ps, uint64_t version) {
  proto::PullRequest request = PullOf(ps);
  request.set_min_version(version);
  Get<proto::PullRequest>(ShardNode(ps), request,
                          [this, ps, version](const PullReply& reply) {
                            if (reply.state.phase() == proto::FAILED)
                              return Stall();
                            if (reply.version.value() < version)
                              return PullFrom(ps, version);
                            OnPulled(ps, reply);
                          });
}

void SynchronousWorker::OnPulled(uint32_t ps, const PullReply& reply) {
  pulled_[ps] = reply.version.value();
  loss_scale_ = reply.loss_scale;
  Keep(reply);
  if (pulled_.size() < num_ps()) return;
  uint64_t highest = 0;
  for (const auto& [p, v] : pulled_) highest = std::max(highest, v);
  std::vector<uint32_t> laggards;
  for (const auto& [p, v] : pulled_) {
    if (v < highest) laggards.push_back(p);
  }
  if (laggards.empty()) return ComputeStep(highest);
  for (uint32_t laggard : laggards) pulled_.erase(laggard);
  for (uint32_t laggard : laggards) PullFrom(laggard, highest);
}

void SynchronousWorker::ComputeStep(uint64_t step) {
  // A job that evaluations end early is over when the coordinator says so.
  finished_ = step >= job().steps();
  if (finished_) return LeaveIfDone();
  step_ = step;
  seat_ = index_;
  open_offers_ = 0;
  pushed_all_ = false;
  NextSeat();
}

// Pushes and offers one of its seats after the other, without waiting for
// verdicts [S1].
void SynchronousWorker::NextSeat() {
  if (seat_ >= std::max(job().n(), job().m())) return EndSeats();
  if (!job().by_ticket()) {
    ++sequence_;
    return PushSeat(BatchOfSeat(job(), step_, seat_));
  }
  if (ticket_.has_value()) {  // taken for a step that had closed
    const uint64_t ticket = *ticket_;
    ticket_.reset();
    return PushSeat(BatchOfTicket(job(), ticket));
  }
  ++sequence_;
  TakeTicket();
}

void SynchronousWorker::EndSeats() {
  pushed_all_ = true;
  NextWhenTold();
}

void SynchronousWorker::TakeTicket() {
  proto::TakeTicketRequest request;
  *request.mutable_sender() = me();
  request.set_sequence(sequence_);
  request.set_acked_through(acked_through_);
  request.set_wait_ms(park_ms());
  Get<proto::TakeTicketRequest>(
      kCoordinator, request, [this](const proto::TakeTicketResponse& response) {
        if (IsOver(response.verdict())) return;
        if (!response.has_ticket()) {
          if (response.state().phase() == proto::DONE) return EndSeats();
          if (response.state().phase() == proto::STOPPED) return Stall();
          return TakeTicket();
        }
        const uint64_t ticket = response.ticket().index();
        // Sometimes a worker continues with the values that it has, and comes
        // late.
        if (response.global_step() > step_ && world_->Random(4) < 3) {
          ticket_ = ticket;
          return PullAll(response.global_step());
        }
        PushSeat(BatchOfTicket(job(), ticket));
      });
}

void SynchronousWorker::PushSeat(const Batch& batch) {
  const uint64_t sequence = sequence_;
  world_->Check(world_->oracle().OnComputed(me().generation(), IdOf(sequence),
                                            step_, values(), loss_scale_));
  if (batch.examples == 0) return OfferSeat(sequence, batch);
  receipts_.assign(num_ps(), 0);
  if (world_->Misbehaves(index_, Misdeed::kOffersUnheld)) {
    const auto some =
        job().faulty ? static_cast<uint32_t>(world_->Random(num_ps())) : 1;
    return SendParts(sequence, batch, 0, some,
                     [=] { OfferUnheld(sequence, batch, some); });
  }
  SendParts(sequence, batch, 0, num_ps(), [=] { OfferSeat(sequence, batch); });
}

void SynchronousWorker::SendParts(uint64_t sequence, const Batch& batch,
                                  uint32_t from_ps, uint32_t to_ps,
                                  std::function<void()> next) {
  if (from_ps == to_ps) return next();
  const Values gradient = GradientOf(job(), batch, values(), loss_scale_);
  outstanding_ = 0;
  for (uint32_t ps = from_ps; ps < to_ps; ++ps) {
    for (const PushPart& part :
         CutIntoParts(ps, gradient, sequence, step_, acked_through_)) {
      ++outstanding_;
      SendPart(ps, part, next);
    }
  }
}

void SynchronousWorker::SendPart(uint32_t ps, const PushPart& part,
                                 std::function<void()> next) {
  Ask<PushPart>(ShardNode(ps), part,
                [=](const absl::StatusOr<proto::PushResponse>& response) {
                  // Pushes of earlier lives, which have yet to be fenced, take
                  // the room.
                  if (absl::IsResourceExhausted(response.status())) {
                    return After(absl::Milliseconds(500),
                                 [=] { SendPart(ps, part, next); });
                  }
                  if (!response.ok()) {
                    return world_->Violate(response.status().ToString());
                  }
                  if (IsOver(response->verdict())) return;
                  if (response->receipt() != 0)
                    receipts_[ps] = response->receipt();
                  // A push that came too late is offered all the same: the
                  // coordinator's verdict is the one that counts.
                  if (--outstanding_ == 0) next();
                });
}

proto::ContributeRequest SynchronousWorker::OfferOf(uint64_t sequence,
                                                    const Batch& batch) const {
  proto::ContributeRequest request;
  *request.mutable_sender() = me();
  request.set_step(step_);
  request.set_seat(seat_);
  request.set_sequence(sequence);
  request.set_examples(batch.examples);
  request.set_not_finite(batch.not_finite());
  request.set_loss(1.0);
  request.set_acked_through(acked_through_);
  request.set_wait_ms(park_ms());
  if (batch.examples > 0) {
    request.mutable_receipts()->Add(receipts_.begin(), receipts_.end());
  }
  return request;
}

void SynchronousWorker::OfferUnheld(uint64_t sequence, const Batch& batch,
                                    uint32_t held_by) {
  Ask<proto::ContributeRequest>(
      kCoordinator, OfferOf(sequence, batch),
      [=](const absl::StatusOr<proto::ContributeResponse>& response) {
        if (response.ok() && IsOver(response->verdict())) return;
        world_->OnMisdeed();
        if (absl::IsFailedPrecondition(response.status())) {
          return SendParts(sequence, batch, held_by, num_ps(),
                           [=] { OfferSeat(sequence, batch); });
        }
        // The step has closed.
        if (!response.ok() || response->verdict() != proto::STALE) {
          return world_->Violate(
              "an offer of a push that not all shards hold was accepted");
        }
        ++open_offers_;
        OnVerdict(sequence, response->verdict());
        seat_ += job().m();
        NextSeat();
      });
}

void SynchronousWorker::OfferSeat(uint64_t sequence, const Batch& batch) {
  ++open_offers_;
  SendOffer(OfferOf(sequence, batch));
  seat_ += job().m();
  NextSeat();
}

void SynchronousWorker::SendOffer(const proto::ContributeRequest& request) {
  Get<proto::ContributeRequest>(
      kCoordinator, request, [=](const proto::ContributeResponse& response) {
        if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
          if (response.state().phase() == proto::STOPPED) return Stall();
          return SendOffer(request);
        }
        if (IsOver(response.verdict())) return;
        OnVerdict(request.sequence(), response.verdict());
      });
}

void SynchronousWorker::OnVerdict(uint64_t sequence, proto::Verdict verdict) {
  world_->Check(
      world_->oracle().OnVerdict(me().generation(), IdOf(sequence), verdict));
  told_.insert(sequence);
  while (told_.count(acked_through_ + 1) > 0) ++acked_through_;
  --open_offers_;
  NextWhenTold();
}

void SynchronousWorker::NextWhenTold() {
  if (pushed_all_ && open_offers_ == 0) {
    pushed_all_ = false;
    PullAll(step_ + 1);
  }
}

// ---- Asynchronous ----

void AsynchronousWorker::OnGeneration() {
  sequence_ = 0;
  asking_ = false;
  waiting_.clear();
  working_.clear();
  applying_.clear();
  spent_.clear();
  booked_.clear();
  acked_through_ = 0;
}

uint32_t AsynchronousWorker::depth() const {
  return std::max(
      1u, job().declaration.consistency().asynchronous().pipeline_depth());
}

// [A1] Asks for one more ticket than it works on, with one request at a time.
void AsynchronousWorker::AskForTicket() {
  if (asking_ || waiting_.size() + working_.size() > depth()) return;
  asking_ = true;
  ++sequence_;
  SendAsk();
}

void AsynchronousWorker::SendAsk() {
  proto::TakeTicketRequest request;
  request.set_sequence(sequence_);
  request.set_wait_ms(park_ms() * (3 - world_->Random(4)));
  Tell(request);
}

void AsynchronousWorker::Tell(proto::TakeTicketRequest request) {
  *request.mutable_sender() = me();
  for (const auto& [sequence, spent] : spent_) *request.add_spent() = spent;
  request.set_acked_through(acked_through_);
  Get<proto::TakeTicketRequest>(
      kCoordinator, request,
      [this, request](const proto::TakeTicketResponse& response) {
        OnTold(request, response);
      });
}

void AsynchronousWorker::OnTold(const proto::TakeTicketRequest& request,
                                const proto::TakeTicketResponse& response) {
  if (IsOver(response.verdict())) return;
  for (const proto::SpentTicket& spent : request.spent()) {
    spent_.erase(spent.sequence());
    booked_.insert(spent.sequence());
  }
  while (booked_.count(acked_through_ + 1) > 0) ++acked_through_;
  if (response.durable_through() > 0) {
    world_->oracle().OnDurableThrough(me().generation(), LifeOf(me()),
                                      response.durable_through());
  }
  // The session is told, too.
  if (IsOrderlyEnd(response.state().phase())) return;
  if (request.sequence() == 0) return;
  if (!response.has_ticket()) {
    if (request.wait_ms() > 0) return SendAsk();
    After(absl::Milliseconds(200), [this] { SendAsk(); });
    return;
  }
  asking_ = false;
  Push push;
  push.sequence = request.sequence();
  push.ticket = response.ticket();
  waiting_.push_back(std::move(push));
  WorkOn();
}

// [A2]
void AsynchronousWorker::WorkOn() {
  while (!waiting_.empty() && working_.size() < depth()) {
    Push push = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    const uint64_t sequence = push.sequence;
    working_.emplace(sequence, std::move(push));
    for (uint32_t ps = 0; ps < num_ps(); ++ps) {
      Get<proto::PullRequest>(
          ShardNode(ps), PullOf(ps),
          [this, ps, sequence](const PullReply& reply) {
            if (reply.state.phase() == proto::FAILED) return Stall();
            Push& push = working_.at(sequence);
            push.versions[ps] = reply.version.value();
            if (push.versions.size() < num_ps()) return;
            // One worker is slow.
            const uint64_t wait = world_->Random(index_ == 0 ? 1500 : 300);
            if (wait == 0) return Compute(sequence);
            After(absl::Milliseconds(wait), [=] { Compute(sequence); });
          });
    }
  }
  AskForTicket();
}

void AsynchronousWorker::Compute(uint64_t sequence) {
  Push& push = working_.at(sequence);
  Given& given = GivenOf(sequence);
  const bool halves = !HasVariable(job(), kMomentum);
  // Gradients that are not finite: some are found before they are pushed, some
  // while they are.
  const uint64_t choice = world_->Random(10);
  const bool nothing = choice >= 7;
  push.clip_factor = nothing ? 0 : choice == 6 && halves ? 0.5f : 1;
  given.clip_factor = push.clip_factor;
  given.not_finite = choice >= 8;
  given.examples = nothing ? 0 : 100 * (given.ticket + 1) + given.attempt;
  if (world_->Misbehaves(index_, Misdeed::kClaimsUnapplied)) {
    return Claim(sequence);
  }
  if (choice != 9) {
    PushTo(0, sequence);
    // The other shards get the push later.
    const bool unheld = num_ps() > 1 && !job().faulty &&
                        world_->Misbehaves(index_, Misdeed::kAppliesUnheld);
    for (uint32_t ps = 1; ps < num_ps() && !unheld; ++ps) PushTo(ps, sequence);
  }
  if (choice >= 8) Apply(sequence);
}

void AsynchronousWorker::PushTo(uint32_t ps, uint64_t sequence) {
  Push& push = working_.at(sequence);
  const std::vector<PushPart> parts =
      CutIntoParts(ps, GradientOf(job(), GivenOf(sequence)), sequence,
                   push.versions.at(ps), AcknowledgedTo(ps, sequence));
  push.parts_out += parts.size();
  for (const PushPart& part : parts) SendPart(ps, part);
}

void AsynchronousWorker::SendPart(uint32_t ps, const PushPart& part) {
  const uint64_t sequence = part.sequence.value();
  Ask<PushPart>(
      ShardNode(ps), part,
      [=](const absl::StatusOr<proto::PushResponse>& response) {
        const auto push = working_.find(sequence);
        // The push may have been applied without waiting for its parts.
        const bool needed = push != working_.end() &&
                            push->second.parts_out > 0 &&
                            applying_.count(sequence) == 0;
        if (absl::IsResourceExhausted(response.status())) {
          if (!needed) return;
          return After(absl::Milliseconds(500), [=] { SendPart(ps, part); });
        }
        if (!response.ok()) {
          return world_->Violate(response.status().ToString());
        }
        if (IsOver(response->verdict())) return;
        if (push != working_.end() && response->receipt() != 0) {
          push->second.held[ps] = response->receipt();
        }
        if (!needed) return;
        if (response->verdict() != proto::VERDICT_UNSPECIFIED) {
          return world_->Violate("a push is decided before it is applied");
        }
        if (--push->second.parts_out == 0) OnHeld(sequence);
      });
}

void AsynchronousWorker::OnHeld(uint64_t sequence) {
  if (working_.at(sequence).held.size() < num_ps()) {
    return ApplyWrongly(0, sequence, /*wrong_scalars=*/false, [=] {
      for (uint32_t ps = 1; ps < num_ps(); ++ps) PushTo(ps, sequence);
    });
  }
  Apply(sequence);
}

// [A3]
void AsynchronousWorker::Apply(uint64_t sequence) {
  if (!applying_.insert(sequence).second) return;
  const auto then = [=] {
    SendApply(0, sequence);
    // The receipts of the other shards follow later.
    if (!job().faulty &&
        world_->Misbehaves(index_, Misdeed::kClaimsHalfApplied)) {
      return;
    }
    for (uint32_t ps = 1; ps < num_ps(); ++ps) SendApply(ps, sequence);
  };
  const bool unheld =
      job().faulty && world_->Misbehaves(index_, Misdeed::kAppliesUnheld);
  const bool wrong_scalars =
      !unheld && world_->Misbehaves(index_, Misdeed::kWrongScalars);
  if (!unheld && !wrong_scalars) return then();
  const auto ps =
      job().faulty ? static_cast<uint32_t>(world_->Random(num_ps())) : 0;
  ApplyWrongly(ps, sequence, wrong_scalars, then);
}

void AsynchronousWorker::ApplyWrongly(uint32_t ps, uint64_t sequence,
                                      bool wrong_scalars,
                                      std::function<void()> then) {
  proto::ApplyRequest request = ApplyOf(ps, sequence);
  if (!wrong_scalars && num_ps() > 1 && request.clip_factor() > 0) {
    request.set_receipts(static_cast<int>((ps + 1) % num_ps()), 1);
  } else {
    request.mutable_scalars(0)->set_learning_rate(1e9);
  }
  Ask<proto::ApplyRequest>(
      ShardNode(ps), request,
      [=](const absl::StatusOr<proto::ApplyResponse>& response) {
        if (response.ok() && IsOver(response->verdict())) return;
        world_->OnMisdeed();
        if (absl::IsFailedPrecondition(response.status())) return then();
        world_->Violate("a push was applied wrongly");
      });
}

proto::ApplyRequest AsynchronousWorker::ApplyOf(uint32_t ps,
                                                uint64_t sequence) const {
  const Push& push = working_.at(sequence);
  proto::ApplyRequest request;
  *request.mutable_sender() = me();
  request.set_sequence(sequence);
  *request.mutable_scalars() = push.ticket.scalars();
  request.set_ticket_receipt(push.ticket.receipt());
  for (uint32_t holder = 0; holder < num_ps(); ++holder) {
    const auto held = push.held.find(holder);
    request.add_receipts(held == push.held.end() ? 0 : held->second);
  }
  request.set_clip_factor(push.clip_factor);
  request.set_examples(GivenOf(sequence).examples);
  request.set_not_finite(GivenOf(sequence).not_finite);
  request.set_acked_through(AcknowledgedTo(ps, sequence));
  request.set_wait_ms(park_ms() * (3 - world_->Random(4)));
  return request;
}

uint64_t AsynchronousWorker::AcknowledgedTo(uint32_t ps,
                                            uint64_t sequence) const {
  return ps == 0 && world_->Misbehaves(index_, Misdeed::kAcknowledgesAll)
             ? sequence - 1
             : acked_through_;
}

void AsynchronousWorker::SendApply(uint32_t ps, uint64_t sequence) {
  Get<proto::ApplyRequest>(
      ShardNode(ps), ApplyOf(ps, sequence),
      [=](const proto::ApplyResponse& response) {
        if (IsOver(response.verdict())) return;
        if (response.verdict() == proto::VERDICT_UNSPECIFIED) {
          if (response.waiting_for() == IdOf(sequence).ToString()) {
            world_->Violate("a push waits for itself");
          }
          return After(absl::Milliseconds(50),
                       [=] { SendApply(ps, sequence); });
        }
        if (response.verdict() != proto::ACCEPTED) {
          return world_->Violate(
              absl::StrCat("the answer to Apply is ",
                           proto::Verdict_Name(response.verdict())));
        }
        OnApplied(ps, sequence, response);
      });
}

void AsynchronousWorker::OnApplied(uint32_t ps, uint64_t sequence,
                                   const proto::ApplyResponse& response) {
  GivenOf(sequence).accepted = true;
  Push& push = working_.at(sequence);
  push.staleness = std::max(push.staleness, response.staleness());
  push.applied.insert(ps);
  push.applied_at[ps] = response.receipt();
  if (push.applied.size() < num_ps()) {
    if (!job().faulty &&
        world_->Misbehaves(index_, Misdeed::kClaimsHalfApplied)) {
      Claim(sequence);
    }
    return;
  }

  // [A4]
  proto::SpentTicket& spent = spent_[sequence];
  spent.set_sequence(sequence);
  spent.set_examples(GivenOf(sequence).examples);
  spent.set_loss(1);
  spent.set_staleness(push.staleness);
  for (const auto& [at, receipt] : push.applied_at) spent.add_receipts(receipt);
  spent.set_not_finite(GivenOf(sequence).not_finite);
  working_.erase(sequence);
  if (asking_) Tell({});
  WorkOn();
}

void AsynchronousWorker::Claim(uint64_t sequence) {
  // Sent at once, because the worker may hear that it is fenced before it gets
  // an answer.
  world_->OnMisdeed();
  proto::TakeTicketRequest request;
  *request.mutable_sender() = me();
  request.set_acked_through(acked_through_);
  proto::SpentTicket& spent = *request.add_spent();
  spent.set_sequence(sequence);
  spent.set_examples(1);
  for (const auto& [ps, receipt] : working_.at(sequence).applied_at) {
    spent.add_receipts(receipt);
  }
  Ask<proto::TakeTicketRequest>(
      kCoordinator, request,
      [this](const absl::StatusOr<proto::TakeTicketResponse>& response) {
        if (response.ok() && IsOver(response->verdict())) return;
        if (!absl::IsFailedPrecondition(response.status())) {
          return world_->Violate("a false claim was booked");
        }
        world_->Exit(process_, /*for_good=*/false);
      });
}

}  // namespace holdfast::sim

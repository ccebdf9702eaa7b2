// SPDX-License-Identifier: Apache-2.0
#include "tests/world/scripted_worker.h"

#include "common/job/job_phase.h"
#include "common/job/task_id.h"
#include "common/tensor/buffer.h"

namespace holdfast::sim {
namespace {

// How long a worker waits for the last version. It leaves even if it does not
// get it.
constexpr absl::Duration kLastVersion = absl::Seconds(30);

}  // namespace

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
  *request.mutable_declaration() = job().Declared();
  for (const proto::Variable& variable : job().declaration.variables()) {
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
        // Also for a ps without slices.
        for (uint32_t ps = 0; ps < num_ps_; ++ps) by_ps_[ps];
        for (const proto::Slice& slice : response.slices()) {
          by_ps_[slice.ps()].push_back(slice);
        }
        if (world_->Misbehaves(index_, Misdeed::kBringsOtherFact)) {
          return BringOtherFact();
        }
        OnPlaced();
      });
}

void ScriptedWorker::BringOtherFact() {
  world_->OnMisdeed();
  proto::DeclareRequest request;
  *request.mutable_sender() = me_;
  *request.mutable_declaration() = job().Declared();
  (*request.mutable_declaration()->mutable_agreed())["length"] = "50000";
  Ask<proto::DeclareRequest>(
      kCoordinator, request,
      [this](const absl::StatusOr<proto::DeclareResponse>& response) {
        if (!absl::IsAlreadyExists(response.status())) {
          world_->Violate(absl::StrCat("another fact is not refused: ",
                                       response.status().ToString()));
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

void ScriptedWorker::Keep(const proto::PullRequest& request,
                          const PullReply& reply) {
  for (const TensorPiece& piece : TensorsOf(job(), request, reply.tensors)) {
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

}  // namespace holdfast::sim

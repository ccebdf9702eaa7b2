#include "ps_server/shard/shard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/encoding.h"
#include "common/rpc_limits.h"
#include "common/shape.h"
#include "common/task_id.h"
#include "ps_server/request.h"

namespace holdfast {
namespace {

// Held at one time, of however few versions.
constexpr size_t kMaxPins = 1024;

}  // namespace

Shard::Shard(const Options& options, const Clock* clock, ShardDisk* disk)
    : options_(options), clock_(clock), disk_(disk) {
  state_.set_phase(proto::STARTING);
}

GlobalStep Shard::version() const {
  return store_ == nullptr ? GlobalStep(0) : store_->newest()->number;
}

absl::Status Shard::CheckGeneration(const proto::Sender& sender) const {
  if (IsOver(sender)) {
    return absl::AbortedError(absl::StrCat(
        ToTaskId(sender.task()).ToString(), " speaks in generation ",
        sender.generation(), ", /job:ps/task:", options_.index, " is in ",
        generation_.value()));
  }
  if (!ended() &&
      (sender.generation() != generation_.value() || store_ == nullptr)) {
    return absl::UnavailableError(absl::StrCat("/job:ps/task:", options_.index,
                                               " is not in generation ",
                                               sender.generation(), " yet"));
  }
  return absl::OkStatus();
}

absl::Status Shard::CheckRunning(const proto::Sender& sender) const {
  if (absl::Status status = CheckGeneration(sender); !status.ok()) {
    return status;
  }
  return ended() ? absl::AbortedError(EndedText()) : absl::OkStatus();
}

absl::Status Shard::CheckIsCoordinator(const proto::Sender& sender) const {
  if (ToTaskId(sender.task()) == TaskId{kPsJob, 0}) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(ToTaskId(sender.task()).ToString(),
                   " does what only /job:ps/task:0 may"));
}

absl::Status Shard::CheckFromCoordinator(const proto::Sender& sender) const {
  if (absl::Status status = CheckIsCoordinator(sender); !status.ok()) {
    return status;
  }
  return CheckRunning(sender);
}

std::string Shard::EndedText() const {
  return state_.phase() == proto::DONE ? "the job is done" : state_.reason();
}

proto::PushResponse Shard::PushAnswer(proto::Verdict verdict) const {
  proto::PushResponse response;
  response.set_generation(generation_.value());
  response.set_verdict(verdict);
  response.set_version(version().value());
  return response;
}

absl::StatusOr<GradientPiece> Shard::Fit(TensorPiece piece) const {
  const auto error = [&](auto... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("variable \"", piece.variable, "\": ", what...));
  };
  // What is wrong with the shape would show as a range that does not fit.
  const proto::Variable* const found = store_->FindVariable(piece.variable);
  if (found == nullptr) return error("is not on this ps");
  const proto::Variable& declared = *found;
  if (piece.dtype != declared.dtype()) {
    std::string name = proto::DataType_Name(piece.dtype);
    if (name.empty()) name = absl::StrCat("dtype ", piece.dtype);
    return error("gradient is ", name, ", declared ",
                 proto::DataType_Name(declared.dtype()));
  }
  if (!std::equal(piece.shape.begin(), piece.shape.end(),
                  declared.shape().begin(), declared.shape().end())) {
    return error("gradient has shape ", ShapeString(piece.shape), ", declared ",
                 ShapeString(declared.shape()));
  }
  absl::StatusOr<EncodedElements> elements =
      ParseElements(piece.encoding, piece.size, std::move(piece.data));
  if (!elements.ok()) {
    return error("gradient: ", elements.status().message());
  }
  const proto::Compression& compression = declared.compression();
  if (piece.encoding != proto::EXACT && piece.encoding != compression.push()) {
    return error("gradient is ", proto::Encoding_Name(piece.encoding),
                 ", declared ", proto::Encoding_Name(compression.push()));
  }
  if (piece.encoding == proto::TOP_K) {
    const uint64_t most = TopKCount(TopK(compression), elements->size);
    if (KeptElements(*elements) > most) {
      return error("gradient of TOP_K with ", KeptElements(*elements), " of ",
                   elements->size, " elements, declared ", most, " at most");
    }
  }
  const absl::StatusOr<size_t> slice =
      store_->Find(piece.variable, piece.begin, elements->size);
  if (!slice.ok()) {
    return absl::InvalidArgumentError(slice.status().message());
  }
  if (!store_->slices()[*slice].trainable()) {
    return error("gradient for a variable that is not trainable");
  }
  return GradientPiece{*slice, piece.begin, *std::move(elements)};
}

absl::StatusOr<StagedPart> Shard::Fit(PushPart part) const {
  StagedPart staged{{ToWorkerLife(part.sender), part.sequence},
                    part.step,
                    part.part,
                    part.num_parts,
                    {}};
  if (part.part >= part.num_parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part.part, " of ", part.num_parts));
  }
  for (TensorPiece& tensor : part.tensors) {
    absl::StatusOr<GradientPiece> piece = Fit(std::move(tensor));
    if (!piece.ok()) return piece.status();
    staged.pieces.push_back(*std::move(piece));
  }
  return staged;
}

absl::Status Shard::CheckMayPush(const WorkerLife& from) const {
  const bool is_worker = from.worker.job == kWorkerJob &&
                         from.worker.index < declaration_.num_workers();
  if (!is_worker && from.worker != TaskId{kChiefJob, 0}) {
    return absl::InvalidArgumentError("only a worker of the cluster may push");
  }
  if (from.incarnation == Incarnation(0)) {
    return absl::InvalidArgumentError("incarnation 0 may not push");
  }
  return absl::OkStatus();
}

bool Shard::IsFenced(const WorkerLife& from) const {
  const auto fenced = fenced_.find(from.worker);
  return fenced != fenced_.end() && from.incarnation <= fenced->second.through;
}

// What a worker has places of its own for: the pushes of the open step or,
// where pushes are applied in order, the next one.
bool Shard::IsReserved(const PushId& push) const {
  return !asynchronous() ||
         push.sequence == ledger_.DecidedThrough(push.from).next();
}

void Shard::Push(PushPart part, Reply<proto::PushResponse> reply) {
  if (IsOver(part.sender)) return reply(PushAnswer(proto::ABORTED));
  if (absl::Status status = CheckRunning(part.sender); !status.ok()) {
    return reply(status);
  }
  const PushId id{ToWorkerLife(part.sender), part.sequence};
  const auto refuse = [&](const absl::Status& status) {
    reply(absl::Status(status.code(),
                       absl::StrCat(status.message(), " (pushed by ",
                                    id.from.worker.ToString(), ")")));
  };
  if (absl::Status status = CheckMayPush(id.from); !status.ok()) {
    return refuse(status);
  }
  if (IsFenced(id.from)) return reply(PushAnswer(proto::FENCED));
  ledger_.AckThrough(
      id.from,
      std::min(part.acked_through, PushSequence(part.sequence.value() - 1)));
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(id)) {
    return reply(PushAnswer(*verdict));
  }
  if (part.step < version() && !asynchronous()) {
    return reply(PushAnswer(proto::STALE));
  }
  if (part.step > version()) {
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        "gradient of step ", part.step.value(),
        ", /job:ps/task:", options_.index, " is at step ", version().value())));
  }
  if (absl::Status status = ledger_.CheckInWindow(id); !status.ok()) {
    return refuse(status);
  }
  absl::StatusOr<StagedPart> staged = Fit(std::move(part));
  if (!staged.ok()) return refuse(staged.status());
  if (absl::Status status = staged_.Add(*std::move(staged), IsReserved(id));
      !status.ok()) {
    return refuse(status);
  }
  reply(PushAnswer(proto::VERDICT_UNSPECIFIED));
}

proto::ApplyResponse Shard::ApplyAnswer(proto::Verdict verdict) const {
  proto::ApplyResponse response;
  response.set_generation(generation_.value());
  *response.mutable_state() = state_;
  response.set_verdict(verdict);
  response.set_version(version().value());
  return response;
}

proto::ApplyResponse Shard::NotYetAnswer(const WorkerLife& from) const {
  proto::ApplyResponse response = ApplyAnswer(proto::VERDICT_UNSPECIFIED);
  response.set_waiting_for(
      holding_ ? "a checkpoint to be taken"
               : PushId{from, ledger_.DecidedThrough(from).next()}.ToString());
  return response;
}

absl::Status Shard::CheckScalars(
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars)
    const {
  if (scalars.size() == declaration_.optimizers_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scalars of ", scalars.size(), " optimizers, declared ",
                   declaration_.optimizers_size()));
}

void Shard::Apply(const proto::ApplyRequest& request,
                  Reply<proto::ApplyResponse> reply) {
  ApplyOrPark(request, std::move(reply));
  RetryApplies(ToWorkerLife(request.sender()));
}

void Shard::ApplyOrPark(const proto::ApplyRequest& request,
                        Reply<proto::ApplyResponse> reply) {
  if (IsOver(request.sender())) return reply(ApplyAnswer(proto::ABORTED));
  if (absl::Status status = CheckRunning(request.sender()); !status.ok()) {
    return reply(status);
  }
  const PushId id{ToWorkerLife(request.sender()),
                  PushSequence(request.sequence())};
  const auto refuse = [&](const absl::Status& status) {
    reply(absl::Status(status.code(),
                       absl::StrCat(id.ToString(), ": ", status.message())));
  };
  if (!asynchronous()) {
    return refuse(absl::FailedPreconditionError(
        "the job is synchronous: pushes are contributed, not applied"));
  }
  if (absl::Status status = CheckMayPush(id.from); !status.ok()) {
    return refuse(status);
  }
  if (IsFenced(id.from)) return reply(ApplyAnswer(proto::FENCED));
  ledger_.AckThrough(id.from, std::min(PushSequence(request.acked_through()),
                                       PushSequence(request.sequence() - 1)));
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(id)) {
    proto::ApplyResponse response = ApplyAnswer(*verdict);
    if (const Decision* decision = ledger_.FindDecision(id)) {
      response.set_staleness(decision->staleness);
    }
    return reply(std::move(response));
  }
  if (absl::Status status = CheckScalars(request.scalars()); !status.ok()) {
    return refuse(status);
  }
  if (absl::Status status = ledger_.CheckInWindow(id); !status.ok()) {
    return refuse(status);
  }
  const PushSequence next = ledger_.DecidedThrough(id.from).next();
  if (holding_ || id.sequence > next) {
    // Who asks again does not wait for the earlier answer any more.
    auto earlier = parked_applies_.Take(id);
    if (request.wait_ms() == 0 || parked_applies_.full()) {
      reply(NotYetAnswer(id.from));
    } else {
      parked_applies_.Park(id, std::move(reply),
                           ParkedUntil(clock_->Now(), request.wait_ms()),
                           request);
    }
    for (auto& parked : earlier) parked.reply(NotYetAnswer(id.from));
    return;
  }
  const float clip_factor =
      request.has_clip_factor() ? request.clip_factor() : 1.0f;
  if (absl::Status status =
          ApplyNext(id,
                    {proto::ACCEPTED, clip_factor, request.examples(),
                     /*staleness=*/0, request.not_finite()},
                    request.scalars());
      !status.ok()) {
    // The worker's mistake, not ours.
    return reply(absl::FailedPreconditionError(status.message()));
  }
  proto::ApplyResponse response = ApplyAnswer(proto::ACCEPTED);
  response.set_staleness(ledger_.FindDecision(id)->staleness);
  reply(std::move(response));
  AnswerReached();
}

absl::Status Shard::ApplyNext(
    const PushId& push, Decision decision,
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars) {
  GradientSum sum;
  if (decision.clip_factor != 0) {
    absl::StatusOr<StagedPushes::Whole> whole = staged_.Find(push);
    if (!whole.ok()) return whole.status();
    decision.staleness = version().value() - whole->step.value();
    sum.terms.push_back(
        {decision.clip_factor, std::move(whole->gradient), /*share=*/1});
  }
  PublishNext(sum, scalars);
  ledger_.Record(push, decision);
  staged_.Drop(push);
  staged_.Reserve({push.from, push.sequence.next()});
  return absl::OkStatus();
}

void Shard::RetryApplies(const WorkerLife& from) {
  for (;;) {
    const auto parked = parked_applies_.Between(
        {from, PushSequence(0)},
        {from, PushSequence(std::numeric_limits<uint64_t>::max())});
    if (parked.empty()) return;
    const PushId lowest = parked.front()->key;
    if (!IsFenced(from) &&
        (holding_ || lowest.sequence > ledger_.DecidedThrough(from).next())) {
      return;
    }
    for (auto& apply : parked_applies_.Take(lowest)) {
      ApplyOrPark(apply.request, std::move(apply.reply));
    }
  }
}

void Shard::PublishNext(
    const GradientSum& sum,
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars) {
  if (sum.terms.empty()) return store_->PublishUnchanged();
  ApplyOptions options;
  options.threads = options_.update_threads;
  if (declaration_.clipping().kind_case() == proto::GradientClipping::kValue) {
    options.clip_value = declaration_.clipping().value();
  }
  ApplyStep(sum, {scalars.begin(), scalars.end()}, optimizers_, options,
            store_.get());
}

void Shard::Fence(const proto::FenceRequest& request,
                  Reply<proto::FenceResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  proto::FenceResponse response;
  response.set_generation(generation_.value());
  std::vector<WorkerLife> lives;
  for (const proto::WorkerLife& message : request.lives()) {
    const WorkerLife life = ToWorkerLife(message);
    Fenced& fenced = fenced_[life.worker];
    fenced.through = std::max(fenced.through, life.incarnation);
    // In a synchronous job Commit alone tells what counts.
    if (asynchronous()) AddKept(life, response.mutable_applied());
    lives.push_back(life);
  }
  reply(std::move(response));
  for (const WorkerLife& life : lives) RetryApplies(life);
}

void Shard::AddKept(
    const WorkerLife& life,
    google::protobuf::RepeatedPtrField<proto::AppliedPush>* applied) const {
  for (const auto& [sequence, decision] : ledger_.Kept(life)) {
    proto::AppliedPush& push = *applied->Add();
    proto::TaskId& worker = *push.mutable_from()->mutable_worker();
    worker.set_job(life.worker.job);
    worker.set_index(life.worker.index);
    push.mutable_from()->set_incarnation(life.incarnation.value());
    push.set_sequence(sequence.value());
    push.set_clip_factor(decision.clip_factor);
    push.set_examples(decision.examples);
    push.set_staleness(decision.staleness);
    push.set_not_finite(decision.not_finite);
  }
}

bool Shard::IsResolved(const WorkerLife& life) const {
  const auto fenced = fenced_.find(life.worker);
  return fenced != fenced_.end() &&
         life.incarnation <= fenced->second.resolved_through;
}

absl::Status Shard::ApplyMissing(
    const google::protobuf::RepeatedPtrField<proto::AppliedPush>& applied) {
  for (const proto::AppliedPush& push : applied) {
    const PushId id{ToWorkerLife(push.from()), PushSequence(push.sequence())};
    if (IsResolved(id.from) || ledger_.Find(id).has_value()) continue;
    absl::Status status = CheckScalars(push.scalars());
    if (status.ok() && id.sequence != ledger_.DecidedThrough(id.from).next()) {
      status = absl::InternalError("it is not the next in its order");
    }
    if (status.ok()) {
      status = ApplyNext(id,
                         {proto::ACCEPTED, push.clip_factor(), push.examples(),
                          /*staleness=*/0, push.not_finite()},
                         push.scalars());
    }
    if (!status.ok()) {
      return absl::InternalError(
          absl::StrCat(id.ToString(), " at /job:ps/task:", options_.index, ": ",
                       status.message()));
    }
  }
  return absl::OkStatus();
}

// None comes between Hold and Save, for the coordinator has one broadcast under
// way. If one did, what it applies would be in the checkpoint without being in
// its position, and Save would find a version that it does not expect.
void Shard::Resolve(const proto::ResolveRequest& request,
                    Reply<proto::ResolveResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  if (absl::Status status = ApplyMissing(request.applied()); !status.ok()) {
    return reply(
        absl::InternalError(absl::StrCat("resolution of ", status.message())));
  }
  for (const proto::WorkerLife& message : request.lives()) {
    const WorkerLife life = ToWorkerLife(message);
    if (IsResolved(life)) continue;
    fenced_[life.worker].resolved_through = life.incarnation;
    staged_.DropAll(life);
    ledger_.Forget(life);
  }
  proto::ResolveResponse response;
  response.set_generation(generation_.value());
  response.set_version(version().value());
  reply(std::move(response));
  AnswerReached();
}

PullReply Shard::PullAnswer() const {
  PullReply reply;
  reply.generation = generation_;
  reply.state = state_;
  reply.version = version();
  reply.loss_scale = loss_scale_;
  return reply;
}

absl::StatusOr<std::vector<size_t>> Shard::FindRanges(
    const proto::PullRequest& request) const {
  std::vector<size_t> slices;
  uint64_t bytes = 0;
  for (const proto::ReadRange& range : request.ranges()) {
    absl::StatusOr<size_t> slice =
        store_->Find(range.variable(), range.begin(), range.size());
    if (!slice.ok()) return slice.status();
    const proto::Variable& variable = store_->slices()[*slice].variable;
    if (range.encoding() != proto::EXACT &&
        range.encoding() != proto::FLOAT16 &&
        range.encoding() != proto::BFLOAT16) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", variable.name(),
          "\": values come as EXACT, FLOAT16 or BFLOAT16, asked for was "
          "encoding ",
          static_cast<int>(range.encoding())));
    }
    // What surrounds the values counts too: a range may be empty.
    bytes += EncodedBytes(range.encoding(), range.size(), 0) +
             sizeof(TensorPiece) + variable.name().size() +
             sizeof(int64_t) * variable.shape_size();
    if (bytes > kMaxPullBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a pull of more than ", kMaxPullBytes, " bytes: ask in parts"));
    }
    slices.push_back(*slice);
  }
  return slices;
}

absl::StatusOr<PullReply> Shard::Read(const proto::PullRequest& request,
                                      const StoreVersion& version) const {
  const absl::StatusOr<std::vector<size_t>> slices = FindRanges(request);
  if (!slices.ok()) return slices.status();
  PullReply reply = PullAnswer();
  if (version.number != reply.version) reply.loss_scale = 0;
  reply.version = version.number;
  for (int i = 0; i < request.ranges_size(); ++i) {
    const proto::ReadRange& range = request.ranges(i);
    const size_t slice = (*slices)[i];
    const proto::Variable& variable = store_->slices()[slice].variable;
    TensorPiece piece;
    piece.variable = variable.name();
    piece.shape.assign(variable.shape().begin(), variable.shape().end());
    piece.dtype = variable.dtype();
    piece.begin = range.begin();
    EncodedElements elements =
        Encode(range.encoding(),
               store_->Read(version, slice, range.begin(), range.size()));
    piece.encoding = elements.encoding;
    piece.data = std::move(elements.data);
    reply.tensors.push_back(std::move(piece));
  }
  return reply;
}

std::shared_ptr<const StoreVersion> Shard::FindVersion(
    GlobalStep version) const {
  if (store_->newest()->number == version) return store_->newest();
  for (const auto& [id, pin] : pins_) {
    if (pin.version->number == version) return pin.version;
  }
  return nullptr;
}

void Shard::Pull(const proto::PullRequest& request, Reply<PullReply> reply) {
  if (absl::Status status = CheckGeneration(request.sender()); !status.ok()) {
    return reply(status);
  }
  // Either there is state of the generation asked for, or the job has ended.
  if (state_.phase() == proto::FAILED || store_ == nullptr ||
      request.sender().generation() != generation_.value()) {
    return reply(PullAnswer());
  }
  if (request.which_case() == proto::PullRequest::kExactVersion) {
    const auto version = FindVersion(GlobalStep(request.exact_version()));
    if (version == nullptr) {
      return reply(absl::NotFoundError(absl::StrCat(
          "version ", request.exact_version(), " is not held at /job:ps/task:",
          options_.index, ", the newest is ", this->version().value())));
    }
    return reply(Read(request, *version));
  }
  if (version().value() >= request.min_version()) {
    return reply(Read(request, *store_->newest()));
  }
  // What cannot be read is told at once, not when the version is there.
  if (const auto ranges = FindRanges(request); !ranges.ok()) {
    return reply(ranges.status());
  }
  if (request.wait_ms() == 0 || ended() || parked_pulls_.full()) {
    return reply(PullAnswer());
  }
  parked_pulls_.Park(request.min_version(), std::move(reply),
                     ParkedUntil(clock_->Now(), request.wait_ms()), request);
}

void Shard::AnswerReached() {
  Answer(parked_pulls_.TakeBetween(0, version().value()));
}

void Shard::Answer(std::vector<ParkedPulls::Call> pulls) {
  for (auto& pull : pulls) {
    if (pull.request.sender().generation() != generation_.value()) {
      // A reply before this one began another generation.
      pull.reply(CheckGeneration(pull.request.sender()));
    } else if (version().value() >= pull.key &&
               state_.phase() != proto::FAILED) {
      pull.reply(Read(pull.request, *store_->newest()));
    } else {
      pull.reply(PullAnswer());
    }
  }
}

void Shard::Pin(const proto::PinRequest& request,
                Reply<proto::PinResponse> reply) {
  if (absl::Status status = CheckRunning(request.sender()); !status.ok()) {
    return reply(status);
  }
  const auto version = request.has_version()
                           ? FindVersion(GlobalStep(request.version()))
                           : store_->newest();
  if (version == nullptr) {
    return reply(absl::NotFoundError(absl::StrCat(
        "version ", request.version(), " is not held at /job:ps/task:",
        options_.index, ", the newest is ", this->version().value())));
  }
  std::set<GlobalStep> pinned = {version->number};
  for (const auto& [id, pin] : pins_) pinned.insert(pin.version->number);
  if (pinned.size() > memory_.max_pinned_versions || pins_.size() >= kMaxPins) {
    return reply(absl::ResourceExhaustedError(absl::StrCat(
        pins_.size(), " pins are held at /job:ps/task:", options_.index,
        ", at most ", kMaxPins, ", of at most ", memory_.max_pinned_versions,
        " versions")));
  }
  const uint64_t id = next_pin_++;
  pins_[id] = {version, clock_->Now() + absl::Milliseconds(request.hold_ms())};
  proto::PinResponse response;
  response.set_generation(generation_.value());
  response.set_version(version->number.value());
  response.set_pin(id);
  reply(std::move(response));
}

void Shard::Unpin(const proto::UnpinRequest& request,
                  Reply<proto::UnpinResponse> reply) {
  if (absl::Status status = CheckGeneration(request.sender()); !status.ok()) {
    return reply(status);
  }
  pins_.erase(request.pin());
  proto::UnpinResponse response;
  response.set_generation(generation_.value());
  reply(std::move(response));
}

void Shard::Commit(const proto::CommitRequest& request,
                   Reply<proto::CommitResponse> reply) {
  if (absl::Status status = CheckFromCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  const auto answer = [&] {
    proto::CommitResponse response;
    response.set_generation(generation_.value());
    response.set_version(version().value());
    reply(std::move(response));
  };
  const GlobalStep step(request.step());
  if (step < version()) return answer();  // held already
  const auto refuse = [&](const std::string& what) {
    reply(absl::InternalError(absl::StrCat("commit of step ", step.value(),
                                           " at /job:ps/task:", options_.index,
                                           ": ", what)));
  };
  if (step > version()) {
    return refuse(absl::StrCat("the shard is at step ", version().value()));
  }
  if (asynchronous()) return refuse("the job is asynchronous");
  if (absl::Status status = CheckScalars(request.scalars()); !status.ok()) {
    return refuse(std::string(status.message()));
  }

  GradientSum sum;
  for (const auto& [name, told, divisor] :
       {std::tuple("weights", request.weight_divisor(), &sum.weight_divisor),
        std::tuple("shares", request.share_divisor(), &sum.share_divisor)}) {
    if (told == 0) continue;
    if (!std::isfinite(told) || told < 0) {
      return refuse(absl::StrCat("the divisor of ", name, " is ", told));
    }
    *divisor = told;
  }
  std::vector<PushId> accepted;
  for (const proto::StepContribution& contribution : request.contributions()) {
    const PushId id{{ToTaskId(contribution.worker()),
                     Incarnation(contribution.incarnation())},
                    PushSequence(contribution.sequence())};
    if (!std::isfinite(contribution.weight()) ||
        !std::isfinite(contribution.share())) {
      return refuse(absl::StrCat(id.ToString(), " has a weight of ",
                                 contribution.weight(), " and a share of ",
                                 contribution.share()));
    }
    accepted.push_back(id);
    if (contribution.weight() == 0) continue;
    absl::StatusOr<StagedPushes::Whole> whole = staged_.Find(id);
    if (!whole.ok()) return refuse(std::string(whole.status().message()));
    // Only pushes of the open step are staged.
    sum.terms.push_back({contribution.weight(), std::move(whole->gradient),
                         contribution.share()});
  }

  PublishNext(sum, request.scalars());
  loss_scale_ = request.loss_scale();
  for (const PushId& id : accepted) ledger_.Record(id, proto::ACCEPTED);
  for (const PushId& id : staged_.DropThrough(step)) {
    ledger_.Record(id, proto::STALE);  // keeps ACCEPTED where it stands
  }
  answer();
  AnswerReached();
}

void Shard::End(const proto::EndRequest& request,
                Reply<proto::EndResponse> reply) {
  if (absl::Status status = CheckIsCoordinator(request.sender());
      !status.ok()) {
    return reply(status);
  }
  if (IsOver(request.sender())) {
    return reply(CheckGeneration(request.sender()));
  }
  std::vector<ParkedRestores::Call> restores;
  if (!ended()) {
    if (request.sender().generation() > generation_.value()) {
      // What is here is not what the job ended with.
      Begin(Generation(request.sender().generation()));
    }
    state_ = request.state();
    ++load_;
    loading_ = false;
    restores = parked_restores_.TakeAll();
    staged_.Clear();
    pins_.clear();
    holding_ = false;
  }
  auto applies = parked_applies_.TakeAll();
  proto::EndResponse response;
  response.set_generation(generation_.value());
  reply(std::move(response));
  const absl::Status ended = absl::AbortedError(EndedText());
  for (auto& restore : restores) restore.reply(ended);
  for (auto& apply : applies) apply.reply(ended);
  AnswerAwaits(ended);
  Answer(parked_pulls_.TakeAll());
}

void Shard::Tick() {
  const absl::Time now = clock_->Now();
  Answer(parked_pulls_.TakeDue(now));
  for (auto& apply : parked_applies_.TakeDue(now)) {
    apply.reply(NotYetAnswer(apply.key.from));
  }
  for (auto& await : parked_awaits_.TakeDue(now)) await.reply(SavedAnswer());
  AnswerLateRestores(now);
  for (auto it = pins_.begin(); it != pins_.end();) {
    it = it->second.deadline <= now ? pins_.erase(it) : std::next(it);
  }
}

}  // namespace holdfast

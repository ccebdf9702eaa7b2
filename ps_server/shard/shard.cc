// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/shard.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/task_id.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/encoding.h"
#include "common/tensor/shape.h"
#include "ps_server/protocol/request.h"

namespace holdfast {
namespace {

// The maximum number of pins held at a time, however few versions they pin.
constexpr size_t kMaxPins = 1024;

}  // namespace

Shard::Shard(const Options& options, const Clock* clock, ShardDisk* disk)
    : options_(options), clock_(clock), disk_(disk) {
  state_.set_phase(proto::STARTING);
}

void Shard::Count(const std::vector<TensorPiece>& tensors,
                  ShardFigures::Bytes* bytes) {
  for (const TensorPiece& tensor : tensors) {
    // The encoding that a worker sends may be any number.
    const size_t encoding = static_cast<size_t>(tensor.encoding);
    if (encoding < bytes->size()) (*bytes)[encoding] += tensor.data.size();
  }
}

std::vector<proto::TableReport> Shard::TableReports() const {
  std::vector<proto::TableReport> reports = tables_.Reports();
  for (proto::TableReport& report : reports) {
    const auto before = table_totals_.find(report.name());
    if (before == table_totals_.end()) continue;
    const proto::TableReport& totals = before->second;
    report.set_reads(report.reads() + totals.reads());
    report.set_hits(report.hits() + totals.hits());
    report.set_admissions(report.admissions() + totals.admissions());
    report.set_expirations(report.expirations() + totals.expirations());
    report.set_evictions(report.evictions() + totals.evictions());
  }
  return reports;
}

ShardFigures Shard::figures() const {
  ShardFigures figures = totals_;
  figures.limit = options_.memory_limit_bytes;
  figures.pushes = staged_.bytes();
  figures.tables = tables_.bytes();
  figures.table_rows = tables_.rows();
  figures.by_table = TableReports();
  if (store_ != nullptr) {
    figures.values = store_->value_bytes();
    figures.slots = store_->slot_bytes();
    figures.versions = store_->held_bytes() - figures.values - figures.slots +
                       tables_.held_bytes();
  }
  return figures;
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
  HOLDFAST_RETURN_IF_ERROR(CheckGeneration(sender));
  return ended() ? absl::AbortedError(EndedText()) : absl::OkStatus();
}

absl::Status Shard::CheckIsCoordinator(const proto::Sender& sender) const {
  if (ToTaskId(sender.task()) != TaskId{kPsJob, 0}) {
    return absl::PermissionDeniedError(
        absl::StrCat(ToTaskId(sender.task()).ToString(),
                     " sent a message that only /job:ps/task:0 may send"));
  }
  if (sender.receiver_nonce() != options_.nonce) {  // [P5, R4]
    // Not an error of the job: the coordinator names this life once it has
    // registered.
    return absl::UnavailableError(
        absl::StrCat("generation ", sender.generation(),
                     " is for another life of /job:ps/task:", options_.index));
  }
  return absl::OkStatus();
}

absl::Status Shard::CheckFromCoordinator(const proto::Sender& sender) const {
  HOLDFAST_RETURN_IF_ERROR(CheckIsCoordinator(sender));
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
  // Checked first: otherwise a wrong shape would appear as a range that does
  // not fit.
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
                    {},
                    {}};
  if (part.part >= part.num_parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", part.part, " of ", part.num_parts));
  }
  for (TensorPiece& tensor : part.tensors) {
    if (tensor.rows.has_value()) {
      HOLDFAST_ASSIGN_OR_RETURN(auto rows, tables_.Fit(tensor));
      staged.rows.push_back(std::move(rows));
      continue;
    }
    HOLDFAST_ASSIGN_OR_RETURN(auto piece, Fit(std::move(tensor)));
    staged.pieces.push_back(std::move(piece));
  }
  return staged;
}

absl::Status Shard::CheckRoom(StagedPart* part) {
  // Room was found for this part when it was first acknowledged.
  if (part->rows.empty() || staged_.Has(*part)) return absl::OkStatus();
  const auto check = [&] {
    std::vector<int64_t> absent = staged_.absent_rows();
    for (const StagedRows& rows : part->rows) {
      HOLDFAST_RETURN_IF_ERROR(
          tables_.CheckRoom(rows.table, rows.absent, absent));
      absent[rows.table] += rows.absent;
    }
    return absl::OkStatus();
  };
  // Mostly there is room for all of them, whether they exist or not.
  if (check().ok()) return absl::OkStatus();
  staged_.CountAbsent(tables_);
  for (StagedRows& rows : part->rows) tables_.CountAbsent(&rows);
  return check();
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

// An asynchronous worker may have as many pushes in flight as it may hold
// tickets.
absl::Status Shard::CheckSequence(const PushId& push) const {
  if (!asynchronous()) return ledger_.CheckInWindow(push);
  const uint32_t ahead =
      declaration_.consistency().asynchronous().pipeline_depth();
  const PushSequence next = ledger_.DecidedThrough(push.from).next();
  if (push.sequence.value() <= next.value() + ahead) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      push.ToString(), ": expected push ", next.value(), ", or one of the ",
      ahead, " after it: sequences rise by one"));
}

bool Shard::IsFenced(const WorkerLife& from) const {
  const auto fenced = fenced_.find(from.worker);
  return fenced != fenced_.end() && from.incarnation <= fenced->second.through;
}

// A worker has places of its own for the pushes of the open step or, if pushes
// are applied in order, for the next one.
bool Shard::IsReserved(const PushId& push) const {
  return !asynchronous() ||
         push.sequence == ledger_.DecidedThrough(push.from).next();
}

void Shard::Push(PushPart part, Reply<proto::PushResponse> reply) {
  Count(part.tensors, &totals_.received);
  if (IsOver(part.sender)) return reply(PushAnswer(proto::ABORTED));
  if (absl::Status status = CheckRunning(part.sender); !status.ok()) {
    return reply(status);
  }
  const PushId id{ToWorkerLife(part.sender), part.sequence};
  const GlobalStep step = part.step;
  const auto refuse = [&](const absl::Status& status) {
    reply(absl::Status(status.code(),
                       absl::StrCat(status.message(), " (pushed by ",
                                    id.from.worker.ToString(), ")")));
  };
  if (absl::Status status = CheckMayPush(id.from); !status.ok()) {
    return refuse(status);
  }
  if (IsFenced(id.from)) return reply(PushAnswer(proto::FENCED));
  if (!receives()) {
    const absl::Status fits = Fit(std::move(part)).status();
    if (!fits.ok()) return refuse(fits);
    return reply(PushAnswer(proto::VERDICT_UNSPECIFIED));
  }
  // The mark that an asynchronous push carries is ignored: see ApplyNext.
  if (!asynchronous()) {
    ledger_.AckThrough(
        id.from,
        std::min(part.acked_through, PushSequence(part.sequence.value() - 1)));
  }
  if (const std::optional<proto::Verdict> verdict = ledger_.Find(id)) {
    return reply(PushAnswer(*verdict));
  }
  if (part.step < version() && !asynchronous()) {
    return reply(PushAnswer(proto::STALE));
  }
  if (part.step > version()) {
    const std::string text = absl::StrCat(
        "gradient of step ", part.step.value(),
        ", /job:ps/task:", options_.index, " is at step ", version().value());
    // [P4] A verdict is given before every shard has committed its step, but
    // only after all have committed the steps before.
    const bool will_pass = !asynchronous() && part.step == version().next();
    return refuse(will_pass ? absl::UnavailableError(text)
                            : absl::FailedPreconditionError(text));
  }
  if (absl::Status status = CheckSequence(id); !status.ok()) {
    return refuse(status);
  }
  absl::StatusOr<StagedPart> staged = Fit(std::move(part));
  if (!staged.ok()) return refuse(staged.status());
  if (absl::Status status = CheckRoom(&*staged); !status.ok()) {
    return refuse(status);
  }
  if (absl::Status status = staged_.Add(*std::move(staged), IsReserved(id));
      !status.ok()) {
    return refuse(status);
  }
  proto::PushResponse response = PushAnswer(proto::VERDICT_UNSPECIFIED);
  if (staged_.IsWhole(id)) {
    response.set_receipt(
        receipts_->Held(options_.index, id,
                        asynchronous() ? std::nullopt : std::optional(step)));
  }
  reply(std::move(response));
}

absl::Status Shard::CheckScalars(
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars)
    const {
  if (scalars.size() == declaration_.optimizers_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("scalars of ", scalars.size(), " optimizers, declared ",
                   declaration_.optimizers_size()));
}

void Shard::AddTo(StepSum* sum, StagedPushes::Whole whole, float weight,
                  float share) {
  sum->dense.terms.push_back({weight, std::move(whole.gradient), share});
  sum->tables.resize(whole.rows.size());
  for (size_t i = 0; i < whole.rows.size(); ++i) {
    sum->tables[i].terms.push_back({std::move(whole.rows[i]), weight});
  }
}

void Shard::PublishNext(
    const StepSum& sum,
    const google::protobuf::RepeatedPtrField<proto::StepScalars>& scalars) {
  ++totals_.updates;
  const absl::Time begun = clock_->Now();
  ApplyOptions options;
  options.threads = options_.update_threads;
  if (declaration_.clipping().kind_case() == proto::GradientClipping::kValue) {
    options.clip_value = declaration_.clipping().value();
  }
  // Readers see a version completely or not at all: this thread makes both
  // parts of a version, and answers readers.
  if (!tables_.empty()) {
    ApplyRowsOptions rows;
    rows.clip_value = options.clip_value;
    rows.threads = options.threads;
    tables_.ApplyStep(sum.tables, scalars, rows);
  }
  if (sum.dense.terms.empty()) {
    store_->PublishUnchanged();
  } else {
    ApplyStep(sum.dense, {scalars.begin(), scalars.end()}, optimizers_, options,
              store_.get());
  }
  if (sum.dense.terms.empty() && tables_.empty()) return;
  totals_.update_time += clock_->Now() - begun;
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
  const auto too_much = [] {
    return absl::InvalidArgumentError(absl::StrCat(
        "a pull of more than ", kMaxPullBytes, " bytes: pull in parts"));
  };
  for (const proto::ReadRange& range : request.ranges()) {
    if (range.has_rows()) {
      HOLDFAST_ASSIGN_OR_RETURN(const auto values,
                                tables_.ValueBytes(range, kMaxPullBytes + 1));
      bytes += values + sizeof(TensorPiece) + range.variable().size();
      if (bytes > kMaxPullBytes) return too_much();
      slices.push_back(0);
      continue;
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        auto slice,
        store_->Find(range.variable(), range.begin(), range.size()));
    const proto::Variable& variable = store_->slices()[slice].variable;
    if (range.encoding() != proto::EXACT &&
        range.encoding() != proto::FLOAT16 &&
        range.encoding() != proto::BFLOAT16) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name(),
                       "\": values can be pulled as EXACT, FLOAT16 or "
                       "BFLOAT16, not as encoding ",
                       static_cast<int>(range.encoding())));
    }
    // The encoding around the values counts too, because a range may be empty.
    bytes += ValueBytes(range, kMaxPullBytes + 1) + sizeof(TensorPiece) +
             variable.name().size() + sizeof(int64_t) * variable.shape_size();
    if (bytes > kMaxPullBytes) return too_much();
    slices.push_back(slice);
  }
  return slices;
}

absl::StatusOr<PullReply> Shard::Read(const proto::PullRequest& request,
                                      const StoreVersion& version) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto slices, FindRanges(request));
  PullReply reply = PullAnswer();
  if (version.number != reply.version) reply.loss_scale = 0;
  reply.version = version.number;
  for (int i = 0; i < request.ranges_size(); ++i) {
    const proto::ReadRange& range = request.ranges(i);
    if (range.has_rows()) {
      HOLDFAST_ASSIGN_OR_RETURN(
          auto rows, tables_.Read(range, version.number,
                                  options_.update_threads, &row_memory_));
      reply.tensors.push_back(std::move(rows));
      continue;
    }
    const size_t slice = slices[i];
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
  Count(reply.tensors, &totals_.sent);
  return reply;
}

const Shard::Pinned* Shard::FindPin(GlobalStep version) const {
  for (const auto& [id, pin] : pins_) {
    if (pin.version->number == version) return &pin;
  }
  return nullptr;
}

std::shared_ptr<const StoreVersion> Shard::FindVersion(
    GlobalStep version) const {
  if (store_->newest()->number == version) return store_->newest();
  const Pinned* const pin = FindPin(version);
  return pin == nullptr ? nullptr : pin->version;
}

void Shard::Pull(const proto::PullRequest& request, Reply<PullReply> reply) {
  if (absl::Status status = CheckGeneration(request.sender()); !status.ok()) {
    return reply(status);
  }
  // Either the shard has state of the generation asked for, or the job has
  // ended.
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
  if (asynchronous() && !receives()) {
    absl::StatusOr<PullReply> same = Read(request, *store_->newest());
    if (same.ok()) same->version = GlobalStep(request.min_version());
    return reply(std::move(same));
  }
  // A range that cannot be read is refused at once, not when the version
  // exists.
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
      // A reply to an earlier pull has begun another generation.
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
  const Pinned* const same = FindPin(version->number);
  if (same == nullptr && tables_.held_bytes() > memory_.held_row_bytes) {
    return reply(absl::ResourceExhaustedError(absl::StrCat(
        "/job:ps/task:", options_.index,
        " cannot pin another version: copies of ",
        "rows that have changed since held versions take ",
        tables_.held_bytes(), " bytes, of ", memory_.held_row_bytes,
        " available for them; unpin a version, wait for the checkpoint, ",
        "or give the ps more memory")));
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
  pins_[id] = {version, same != nullptr ? same->rows : tables_.Hold(),
               clock_->Now() + absl::Milliseconds(request.hold_ms())};
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

  StepSum sum;
  for (const auto& [name, told, divisor] :
       {std::tuple("weights", request.weight_divisor(),
                   &sum.dense.weight_divisor),
        std::tuple("shares", request.share_divisor(),
                   &sum.dense.share_divisor)}) {
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
    if (!receives()) continue;
    accepted.push_back(id);
    if (contribution.weight() == 0) continue;
    absl::StatusOr<StagedPushes::Whole> whole = staged_.Find(id);
    if (!whole.ok()) return refuse(std::string(whole.status().message()));
    // Cannot fail: only pushes of the open step are staged.
    AddTo(&sum, *std::move(whole), contribution.weight(), contribution.share());
  }
  for (RowSum& rows : sum.tables) rows.divisor = sum.dense.weight_divisor;

  PublishNext(sum, request.scalars());
  // Releases the gradients: a worker may overwrite its gradient as soon as it
  // knows the verdict.
  sum = StepSum();
  loss_scale_ = request.loss_scale();
  for (const PushId& id : accepted) ledger_.Record(id, proto::ACCEPTED);
  for (const PushId& id : staged_.DropThrough(step)) {
    ledger_.Record(id, proto::STALE);  // leaves an ACCEPTED as it is
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
  const proto::JobPhase phase = request.state().phase();
  if (!IsEnd(phase)) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat("state.phase: ", proto::JobPhase_Name(phase),
                     " is not an end of a job")));
  }
  std::vector<ParkedRestores::Call> restores;
  if (!ended()) {
    if (request.sender().generation() > generation_.value()) {
      // The state of this shard is not the state with which the job ended.
      Begin(Generation(request.sender().generation()));
    }
    state_ = request.state();
    ++load_;
    loading_ = false;
    restores = parked_restores_.TakeAll();
    wanted_.reset();
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

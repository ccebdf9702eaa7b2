// SPDX-License-Identifier: Apache-2.0
#include "client/pull.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/neighbors.h"
#include "client/row_reads.h"
#include "client/tensors.h"
#include "common/base/status_macros.h"

namespace holdfast::client {
namespace {

// The maximum number of parts requested from one ps at a time: as in
// part_sender.cc.
constexpr int kMaxPartsInFlight = 4;

enum class Which {
  // The newest version, the same on all shards.
  kNewest,
  kNewestOfEach,
  kExact,
};

class PullHandle : public Cluster::Pull {
 public:
  // `versions`: indexed by ps; the minimum versions, or the exact ones.
  PullHandle(std::shared_ptr<GenerationState> generation, Which which,
             const std::vector<GlobalStep>& versions, Parameters* into)
      : generation_(std::move(generation)),
        mutex_(generation_->context->mutex),
        layout_(generation_->placement.layout),
        which_(which),
        calls_(generation_->context, generation_->sender),
        into_(into),
        shards_(layout_.num_ps()) {
    if (!into->wants_variables()) {
      rows_alone_.emplace();
      rows_alone_->part_bytes = generation_->placement.pull.part_bytes;
      rows_alone_->parts.resize(layout_.num_ps());
    }
    const Plan& plan = rows_alone_ ? *rows_alone_ : generation_->placement.pull;
    if (!rows_alone_) Prepare(layout_, plan, into);
    if (rows_alone_ || !layout_.tables().empty()) {
      row_reads_.emplace(
          &layout_, &plan,
          /*ask_all=*/rows_alone_ || which == Which::kNewestOfEach, into,
          reading());
      row_reads_->Prepare();
    }
    absl::MutexLock lock(&mutex_);
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      shards_[ps].version = versions[ps];
      AskFor(ps, plan);
    }
  }

  ~PullHandle() override { calls_.Cancel(); }

  void Start() {
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) Ask(ps);
  }

  bool done() const override ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return over() || calls_.IsOver();
  }

  bool WaitUntilDone(absl::Time until) override {
    Resume();
    return calls_.Wait(
        until, [this] { return over(); }, [this] { return Missing(); },
        &report_);
  }

  absl::Status Await(absl::Time deadline) override {
    Resume();
    const absl::Status status = calls_.Await(
        deadline, [this] { return over(); }, [this] { return Missing(); });
    calls_.Cancel();
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = status;
    return error_;
  }

  bool HasVariable(size_t variable) const override ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!MayHandOut(variable).ok()) return true;
    absl::MutexLock lock(&mutex_);
    return over() || superseded_ || IsHere(variable) || calls_.IsOver();
  }

  absl::StatusOr<std::optional<Arrived>> AwaitVariable(
      size_t variable, absl::Time deadline) override
      ABSL_LOCKS_EXCLUDED(mutex_) {
    HOLDFAST_RETURN_IF_ERROR(MayHandOut(variable));
    const absl::Status status = calls_.Await(
        deadline, [&] { return over() || superseded_ || IsHere(variable); },
        [this] { return Missing(); });
    if (!status.ok()) calls_.Cancel();
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = status;
    if (!error_.ok()) return error_;
    if (superseded_) return std::nullopt;
    handed_out_ = true;
    return Arrived{shards_.front().version, into_->loss_scale};
  }

  void Resume() override ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      handed_out_ = false;
      if (!superseded_) return;
      superseded_ = false;
      if (newer_ > shards_.front().version) AskForNewer(newer_);
      for (uint32_t ps = 0; ps < shards_.size(); ++ps) GoOnWithoutLoans(ps);
    }
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) Ask(ps);
  }

 private:
  // The state of pulling from one ps.
  struct Shard {
    // The version to pull: the one requested or, for kNewest, the highest that
    // has arrived from any shard.
    GlobalStep version;
    // The plan whose parts are requested.
    const Plan* plan = nullptr;
    // Parts to ask for.
    std::deque<uint32_t> to_ask;
    int in_flight = 0;
    // [H7] Whether a part that is larger than a message was not lent. Then no
    // other parts are requested, and once none is in flight, all are requested
    // by the plan that lends nothing.
    bool not_lent = false;
    // Indexed by part: whether its values have arrived and were taken.
    std::vector<bool> here;
    // For kNewestOfEach: the lowest version of the parts that have arrived.
    std::optional<GlobalStep> least;
    // The permission to keep values of this ps in place (LeaveToKeep); expired
    // if none are kept.
    std::weak_ptr<const void> leave;
  };

  bool over() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !error_.ok() || complete();
  }

  bool complete() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_here_ == num_parts_;
  }

  // Returns OK if AwaitVariable can hand out the variable.
  absl::Status MayHandOut(size_t variable) const {
    if (which_ == Which::kNewestOfEach) {
      return absl::FailedPreconditionError(
          "the job is asynchronous: its variables have no common version");
    }
    if (rows_alone_) {
      return absl::FailedPreconditionError("the pull reads no variables");
    }
    if (variable < layout_.variables().size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("there is no variable ", variable));
  }

  // Whether all values of the variable have arrived.
  bool IsHere(size_t variable) const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    bool has_parts = false;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      for (const Plan::Place& place : shards_[ps].plan->places[variable]) {
        if (place.ps != ps) continue;
        if (!shards_[ps].here[place.part]) return false;
        has_parts = true;
      }
    }
    return has_parts || complete();
  }

  std::string Missing() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> names;
    for (uint32_t ps = 0; ps < shards_.size(); ++ps) {
      const std::vector<bool>& here = shards_[ps].here;
      if (std::find(here.begin(), here.end(), false) != here.end()) {
        names.push_back(generation_->context->ps_names[ps]);
      }
    }
    std::string text = absl::StrCat(What(), " at ", absl::StrJoin(names, ", "));
    const std::string& step = generation_->context->step_waits_for;
    if (!step.empty()) absl::StrAppend(&text, "; ", step);
    return text;
  }

  // Pinned versions are for evaluation, and read without encoding.
  Reading reading() const {
    return which_ == Which::kExact ? Reading::kExact : Reading::kAsDeclared;
  }

  std::string What() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (which_ == Which::kExact) return "the pinned version";
    if (which_ == Which::kNewestOfEach) return "the newest version";
    return absl::StrCat("version ", shards_.front().version.value());
  }

  // Starts requesting everything from one ps, by `plan`. Requires that nothing
  // is in flight to it.
  void AskFor(uint32_t ps, const Plan& plan)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Shard& shard = shards_[ps];
    const size_t num_parts =
        plan.parts[ps].size() + (row_reads_ ? row_reads_->num_parts(ps) : 0);
    num_here_ -= std::count(shard.here.begin(), shard.here.end(), true);
    num_parts_ += num_parts;
    num_parts_ -= shard.here.size();
    shard.plan = &plan;
    shard.here.assign(num_parts, false);
    shard.to_ask.resize(num_parts);
    std::iota(shard.to_ask.begin(), shard.to_ask.end(), 0);
    shard.least.reset();
  }

  // Parts with rows follow those of the plan.
  static bool IsOfRows(const Plan& plan, uint32_t ps, uint32_t part) {
    return part >= plan.parts[ps].size();
  }

  // Called when a part of `plan` was not lent and cannot be sent. Returns
  // whether it can be requested by another plan.
  bool OnNotLent(uint32_t ps, const Plan* plan) ABSL_LOCKS_EXCLUDED(mutex_) {
    const Plan& sent = generation_->placement.sent_pull;
    if (rows_alone_ || !Placement::MayBeSent(ps, *plan, sent)) return false;
    absl::MutexLock lock(&mutex_);
    --shards_[ps].in_flight;
    shards_[ps].not_lent = true;
    GoOnWithoutLoans(ps);
    return true;
  }

  void GoOnWithoutLoans(uint32_t ps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Shard& shard = shards_[ps];
    if (!shard.not_lent || shard.in_flight > 0) return;
    if (handed_out_) {
      superseded_ = true;
      return;
    }
    shard.not_lent = false;
    // Variables that would have been kept are now written range by range.
    const Plan& lent = generation_->placement.pull;
    for (size_t v = 0; v < lent.places.size(); ++v) {
      if (lent.places[v].size() != 1 || lent.places[v][0].ps != ps) continue;
      into_->Write(v, layout_.variables()[v].size);
    }
    AskFor(ps, generation_->placement.sent_pull);
  }

  // Requests parts from one ps that are still to be requested. Called by the
  // user's thread and by answers.
  void Ask(uint32_t ps) ABSL_LOCKS_EXCLUDED(mutex_) {
    for (;;) {
      const Plan* plan;
      uint32_t part;
      GlobalStep asked;
      bool job_is_done;
      proto::PullRequest request;
      {
        absl::MutexLock lock(&mutex_);
        Shard& shard = shards_[ps];
        if (!error_.ok() || superseded_ || shard.to_ask.empty() ||
            shard.not_lent || shard.in_flight == kMaxPartsInFlight) {
          return;
        }
        plan = shard.plan;
        part = shard.to_ask.front();
        shard.to_ask.pop_front();
        ++shard.in_flight;
        asked = shard.version;
        job_is_done = JobIsDone();
      }
      if (which_ == Which::kExact) {
        request.set_exact_version(asked.value());
      } else {
        request.set_min_version(asked.value());
        // After the job is done, a version that does not exist yet never will.
        if (!job_is_done) {
          request.set_wait_ms(
              absl::ToInt64Milliseconds(generation_->context->timing.park));
        }
      }
      if (IsOfRows(*plan, ps, part)) {
        row_reads_->AddRanges(ps, part - plan->parts[ps].size(),
                              request.mutable_ranges());
      } else {
        AddRanges(layout_, plan->parts[ps][part], reading(),
                  request.mutable_ranges());
      }
      calls_.Start(
          rpc::kPull, ps, std::move(request),
          [this, ps, plan, part, asked, job_is_done](
              const absl::StatusOr<WithTensors<proto::PullResponse>>& answer) {
            return OnAnswer(ps, plan, part, asked, job_is_done, answer);
          });
    }
  }

  // `job_was_done`: whether the job was done when the part was requested.
  Next OnAnswer(uint32_t ps, const Plan* plan, uint32_t part, GlobalStep asked,
                bool job_was_done,
                const absl::StatusOr<WithTensors<proto::PullResponse>>& answer)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    if (absl::IsOutOfRange(answer.status()) && OnNotLent(ps, plan)) {
      Ask(ps);
      return Next::kDone;
    }
    if (!answer.ok()) return Fail(answer.status());
    const proto::PullResponse& response = answer->message;
    if (response.state().phase() == proto::FAILED) {
      return Fail(absl::AbortedError(response.state().reason()));
    }
    const GlobalStep version(response.version());
    if (version < asked) {
      if (response.state().phase() != proto::DONE && !job_was_done) {
        return AskAnew(ps, part);
      }
      return Fail(absl::FailedPreconditionError(absl::StrCat(
          generation_->context->ps_names[ps], ": the job is done at version ",
          version.value(), ", version ", asked.value(), " will not come")));
    }
    if (which_ == Which::kExact && version != asked) {
      return Fail(absl::InternalError(absl::StrCat(
          generation_->context->ps_names[ps], ": version ", asked.value(),
          " was requested, but ", version.value(), " arrived")));
    }

    // Other parts may be taken at the same time, to other places.
    const absl::Status status =
        IsOfRows(*plan, ps, part)
            ? row_reads_->Take(ps, part - plan->parts[ps].size(),
                               answer->tensors)
            : TakeValues(layout_, *plan, plan->parts[ps][part], reading(),
                         answer->tensors, LeaveToKeep(ps), into_);
    if (!status.ok()) {
      return Fail(absl::Status(
          status.code(), absl::StrCat(generation_->context->ps_names[ps], ": ",
                                      status.message())));
    }
    {
      absl::MutexLock lock(&mutex_);
      Shard& shard = shards_[ps];
      --shard.in_flight;
      if (which_ == Which::kNewest && version > shard.version) {
        AskForNewer(version);
      }
      if (version < shard.version || (superseded_ && version > shard.version)) {
        shard.to_ask.push_back(part);
      } else {
        into_->loss_scale = LossScaleOf(response);
        shard.here[part] = true;
        ++num_here_;
        if (which_ == Which::kNewestOfEach) {
          shard.least = std::min(shard.least.value_or(version), version);
        }
      }
      GoOnWithoutLoans(ps);
      if (complete()) TellVersions();
    }
    for (uint32_t other = 0; other < shards_.size(); ++other) Ask(other);
    return Next::kDone;
  }

  // The version has not arrived yet. If the coordinator has said meanwhile that
  // the job is done, the version exists now or never will, so it is requested
  // without a wait. The shard itself hears of the end only when all workers
  // have left.
  Next AskAnew(uint32_t ps, uint32_t part) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      absl::MutexLock lock(&mutex_);
      if (!JobIsDone()) return Next::kAgain;
      --shards_[ps].in_flight;
      shards_[ps].to_ask.push_back(part);
      GoOnWithoutLoans(ps);
    }
    Ask(ps);
    return Next::kDone;
  }

  bool JobIsDone() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return generation_->context->state().phase() == proto::DONE;
  }

  // [R7] Everything that has arrived has a lower version, and is requested
  // again, once nobody reads it any more.
  void AskForNewer(GlobalStep version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (handed_out_) {
      superseded_ = true;
      newer_ = std::max(newer_, version);
      return;
    }
    num_here_ = 0;
    for (Shard& shard : shards_) {
      shard.version = version;
      for (uint32_t part = 0; part < shard.here.size(); ++part) {
        if (!shard.here[part]) continue;
        shard.here[part] = false;
        shard.to_ask.push_back(part);
      }
    }
  }

  // Returns the permission to keep values in place (Neighbors::Keep), one for
  // all values of a ps. Returns null for pinned versions, which are copied
  // because they take longer to read than a step.
  std::shared_ptr<const void> LeaveToKeep(uint32_t ps)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    Neighbors* const neighbors = generation_->context->transport.neighbors();
    if (neighbors == nullptr || which_ == Which::kExact) return nullptr;
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<const void> leave = shards_[ps].leave.lock();
    if (leave == nullptr) {
      leave = neighbors->Keep(ps);
      shards_[ps].leave = leave;
    }
    return leave;
  }

  void TellVersions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    into_->versions.clear();
    for (const Shard& shard : shards_) {
      into_->versions.push_back(shard.least.value_or(shard.version));
    }
    into_->version = generation_->placement.VersionOf(into_->versions);
    generation_->sequences.Reached(into_->version);
  }

  Next Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = error;
    return Next::kDone;
  }

  const std::shared_ptr<GenerationState> generation_;
  absl::Mutex& mutex_;
  const Layout& layout_;
  const Which which_;
  CallGroup calls_;
  // Used only by the waiting thread.
  CallGroup::NextReport report_;
  // Written to by answers, each to the place of its part.
  Parameters* const into_;
  // Set if no variables are read: a plan without parts.
  std::optional<Plan> rows_alone_;
  // Set in a job with tables, or if no variables are read.
  std::optional<RowReads> row_reads_;

  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  size_t num_parts_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_here_ ABSL_GUARDED_BY(mutex_) = 0;
  // Whether AwaitVariable has handed out values that the caller may still read.
  // Parts that have arrived are then not requested again; if that would be
  // necessary, the pull is superseded, and nothing more is requested until
  // Resume.
  bool handed_out_ ABSL_GUARDED_BY(mutex_) = false;
  bool superseded_ ABSL_GUARDED_BY(mutex_) = false;
  // The highest version that has arrived since the pull was superseded.
  GlobalStep newer_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// Stands for a pull that could not be started. Await returns the reason.
class FailedPull : public Cluster::Pull {
 public:
  explicit FailedPull(absl::Status error) : error_(std::move(error)) {}
  bool done() const override { return true; }
  bool WaitUntilDone(absl::Time) override { return true; }
  absl::Status Await(absl::Time) override { return error_; }
  bool HasVariable(size_t) const override { return true; }
  absl::StatusOr<std::optional<Arrived>> AwaitVariable(size_t,
                                                       absl::Time) override {
    return error_;
  }
  void Resume() override {}

 private:
  const absl::Status error_;
};

std::unique_ptr<Cluster::Pull> Start(
    std::shared_ptr<GenerationState> generation, Which which,
    const std::vector<GlobalStep>& versions, Parameters* into) {
  absl::Status status = CheckWantedRows(generation->placement.layout, *into);
  if (!status.ok()) return std::make_unique<FailedPull>(std::move(status));
  auto pull = std::make_unique<PullHandle>(std::move(generation), which,
                                           versions, into);
  pull->Start();
  return pull;
}

}  // namespace

std::unique_ptr<Cluster::Pull> StartPull(
    absl::StatusOr<std::shared_ptr<GenerationState>> ready,
    GlobalStep min_version, Parameters* into) {
  if (!ready.ok()) return std::make_unique<FailedPull>(ready.status());
  std::shared_ptr<GenerationState> generation = *std::move(ready);
  const Which which = generation->placement.asynchronous()
                          ? Which::kNewestOfEach
                          : Which::kNewest;
  const std::vector<GlobalStep> versions(generation->context->num_ps(),
                                         min_version);
  return Start(std::move(generation), which, versions, into);
}

std::unique_ptr<Cluster::Pull> StartPullOfPinned(
    std::shared_ptr<GenerationState> generation,
    const std::vector<GlobalStep>& versions, Parameters* into) {
  absl::Status over;
  {
    absl::MutexLock lock(&generation->context->mutex);
    over = generation->WhyOver();
  }
  if (!over.ok()) return std::make_unique<FailedPull>(std::move(over));
  return Start(std::move(generation), Which::kExact, versions, into);
}

}  // namespace holdfast::client

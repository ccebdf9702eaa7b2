#include "worker/trainer/fake_cluster.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

class FakeCluster::FakePush final : public Cluster::Push {
 public:
  FakePush(FakeCluster* cluster, GlobalStep step, uint64_t sequence)
      : cluster_(cluster), step_(step), sequence_(sequence) {}

  PushSequence sequence() const override { return PushSequence(sequence_); }

  absl::Status Add(size_t variable, absl::Span<const float> gradient) override {
    {
      absl::MutexLock lock(&cluster_->mutex_);
      cluster_->pushed_[sequence_][variable] = {gradient.begin(),
                                                gradient.end()};
    }
    return cluster_->Call(absl::StrCat("add ", variable));
  }

  absl::StatusOr<proto::Verdict> Await(absl::Time deadline) override {
    absl::Status status =
        cluster_->Call(absl::StrCat("await push #", sequence_), deadline);
    if (!status.ok()) return status;
    const auto found = cluster_->early_verdicts.find(step_.value());
    return found == cluster_->early_verdicts.end() ? proto::VERDICT_UNSPECIFIED
                                                   : found->second;
  }

 private:
  FakeCluster* const cluster_;
  const GlobalStep step_;
  const uint64_t sequence_;
};

class FakeCluster::FakeOffer final : public Cluster::Offer {
 public:
  FakeOffer(FakeCluster* cluster, const Contribution& offer)
      : cluster_(cluster), offer_(offer) {}

  absl::StatusOr<Outcome> Await(absl::Time deadline) override {
    absl::Status status = cluster_->Call(
        absl::StrCat("await verdict #", offer_.sequence.value()), deadline);
    if (!status.ok()) return status;
    const auto found =
        cluster_->verdicts.find({offer_.step.value(), offer_.seat});
    return Outcome{
        found == cluster_->verdicts.end() ? proto::ACCEPTED : found->second,
        offer_.step.next()};
  }

 private:
  FakeCluster* const cluster_;
  const Contribution offer_;
};

class FakeCluster::FakePull final : public Cluster::Pull {
 public:
  FakePull(FakeCluster* cluster, GlobalStep min_version, Parameters* into)
      : cluster_(cluster), min_version_(min_version), into_(into) {}

  absl::Status Await(absl::Time deadline) override {
    absl::Status status = cluster_->Call(
        absl::StrCat("await pull ", min_version_.value()), deadline);
    if (!status.ok()) return status;
    const auto found = cluster_->newest.find(min_version_.value());
    const GlobalStep version(
        found == cluster_->newest.end() ? min_version_.value() : found->second);
    cluster_->Fill(version, into_);
    absl::MutexLock lock(&cluster_->mutex_);
    cluster_->version_ = std::max(cluster_->version_, version.value());
    return absl::OkStatus();
  }

 private:
  FakeCluster* const cluster_;
  const GlobalStep min_version_;
  Parameters* const into_;
};

class FakeCluster::FakePin final : public Cluster::Pin {
 public:
  FakePin(FakeCluster* cluster, GlobalStep version)
      : cluster_(cluster), version_(version) {}

  GlobalStep version() const override { return version_; }

  absl::Status Read(Parameters* into, absl::Time deadline) override {
    cluster_->Fill(version_, into);
    return cluster_->Call(absl::StrCat("read ", version_.value()), deadline);
  }

 private:
  FakeCluster* const cluster_;
  const GlobalStep version_;
};

std::vector<std::string> FakeCluster::calls() const { return calls(""); }

std::vector<std::string> FakeCluster::calls(const std::string& prefix) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> lines;
  for (const auto& [line, deadline] : calls_) {
    if (absl::StartsWith(line, prefix)) lines.push_back(line);
  }
  return lines;
}

absl::Time FakeCluster::deadline_of(const std::string& prefix) const {
  absl::MutexLock lock(&mutex_);
  absl::Time last = absl::InfinitePast();
  for (const auto& [line, deadline] : calls_) {
    if (absl::StartsWith(line, prefix)) last = deadline;
  }
  return last;
}

std::vector<Contribution> FakeCluster::contributions() const {
  absl::MutexLock lock(&mutex_);
  return contributions_;
}

std::map<size_t, std::vector<float>> FakeCluster::pushed(uint64_t n) const {
  absl::MutexLock lock(&mutex_);
  const auto found = pushed_.find(n);
  if (found == pushed_.end()) return {};
  return found->second;
}

absl::Status FakeCluster::Declare(const proto::Declaration& declaration,
                                  absl::Time deadline) {
  declared_ = declaration;
  return Call("declare", deadline);
}

absl::Status FakeCluster::AwaitVariables(absl::Time deadline) {
  return Call("await variables", deadline);
}

std::unique_ptr<Cluster::Push> FakeCluster::StartPush(GlobalStep step) {
  const uint64_t sequence = NextSequence().value();
  Call(absl::StrCat("push #", sequence, " of step ", step.value()))
      .IgnoreError();
  return std::make_unique<FakePush>(this, step, sequence);
}

PushSequence FakeCluster::NextSequence() {
  absl::MutexLock lock(&mutex_);
  return PushSequence(++last_sequence_);
}

std::unique_ptr<Cluster::Offer> FakeCluster::StartContribute(
    const Contribution& offer) {
  Call(absl::StrCat("contribute #", offer.sequence.value(), ": step ",
                    offer.step.value(), ", seat ", offer.seat, ", ",
                    offer.examples, " examples"))
      .IgnoreError();
  {
    absl::MutexLock lock(&mutex_);
    contributions_.push_back(offer);
  }
  return std::make_unique<FakeOffer>(this, offer);
}

std::unique_ptr<Cluster::Pull> FakeCluster::StartPull(GlobalStep min_version,
                                                      Parameters* into) {
  Call(absl::StrCat("pull ", min_version.value())).IgnoreError();
  return std::make_unique<FakePull>(this, min_version, into);
}

absl::StatusOr<std::unique_ptr<Cluster::Pin>> FakeCluster::PinVersion(
    absl::Duration hold, absl::Time deadline) {
  GlobalStep version;
  {
    absl::MutexLock lock(&mutex_);
    version = GlobalStep(version_);
  }
  absl::Status status = Call(absl::StrCat("pin ", version.value()), deadline);
  if (!status.ok()) return status;
  return std::make_unique<FakePin>(this, version);
}

absl::Status FakeCluster::ReportEvaluation(
    const proto::EvaluationResult& result, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    reports_.push_back(result);
  }
  return Call(absl::StrCat("report ", result.step()), deadline);
}

absl::StatusOr<proto::GetStatusResponse> FakeCluster::GetStatus(
    absl::Time deadline) {
  absl::Status called = Call("status", deadline);
  if (!called.ok()) return called;
  return status;
}

absl::Status FakeCluster::Leave(const std::string& error, absl::Time deadline) {
  return Call(error.empty() ? "leave" : absl::StrCat("leave: ", error),
              deadline);
}

proto::JobState FakeCluster::state() const {
  proto::JobState state;
  state.set_phase(phase);
  state.set_reason(reason);
  return state;
}

absl::Status FakeCluster::Call(const std::string& line, absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    calls_.emplace_back(line, deadline);
  }
  const auto found = errors.find(line);
  return found == errors.end() ? absl::OkStatus() : found->second;
}

void FakeCluster::Fill(GlobalStep version, Parameters* into) const {
  into->version = version;
  into->values.resize(declaration_.variables_size());
  for (int i = 0; i < declaration_.variables_size(); ++i) {
    int64_t size = 1;
    for (const int64_t dimension : declaration_.variables(i).shape()) {
      size *= dimension;
    }
    into->values[i].assign(size, version.value());
  }
}

}  // namespace holdfast

#ifndef HOLDFAST_WORKER_TRAINER_FAKE_CLUSTER_H_
#define HOLDFAST_WORKER_TRAINER_FAKE_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/cluster.h"

namespace holdfast {

// A cluster that does as a test has written down, and writes down what it was
// asked. Without other orders it accepts every contribution, and a pull finds
// the version that it asks for. At version v every value of every variable is
// v.
//
// Orders are given before the worker begins. Thread-safe from then on.
class FakeCluster final : public Cluster {
 public:
  // What AwaitVariables finds, whoever declared it.
  explicit FakeCluster(const proto::Declaration& declaration)
      : declaration_(declaration) {}

  // Orders.

  // The verdict on the contribution to (step, seat).
  std::map<std::pair<uint64_t, uint32_t>, proto::Verdict> verdicts;
  // The verdict that a push on this step's version finds before it is offered.
  std::map<uint64_t, proto::Verdict> early_verdicts;
  // What a pull of at least this version finds.
  std::map<uint64_t, uint64_t> newest;
  // What a call comes to; by its line in calls().
  std::map<std::string, absl::Status> errors;
  // What state() says.
  proto::JobPhase phase = proto::TRAINING;
  std::string reason;
  proto::GetStatusResponse status;

  // One line per call, in their order:
  //   "declare", "await variables", "push #1 of step 0", "add 2",
  //   "await push #1", "contribute #1: step 0, seat 1, 8 examples",
  //   "await verdict #1", "pull 1", "await pull 1", "pin 4", "read 4",
  //   "report 4", "status", "leave", "leave: why"
  std::vector<std::string> calls() const;
  // Those of them that begin with `prefix`.
  std::vector<std::string> calls(const std::string& prefix) const;
  // Of the last call that begins with `prefix`.
  absl::Time deadline_of(const std::string& prefix) const;
  std::vector<Contribution> contributions() const;

  // The gradients of push #n, by variable.
  std::map<size_t, std::vector<float>> pushed(uint64_t n) const;

  absl::Status Declare(const proto::Declaration& declaration,
                       absl::Time deadline) override;
  absl::Status AwaitVariables(absl::Time deadline) override;
  const proto::Declaration& declaration() const override {
    return declaration_;
  }
  std::unique_ptr<Push> StartPush(GlobalStep step) override;
  PushSequence NextSequence() override;
  std::unique_ptr<Offer> StartContribute(const Contribution& offer) override;
  std::unique_ptr<Pull> StartPull(GlobalStep min_version,
                                  Parameters* into) override;
  absl::StatusOr<std::unique_ptr<Pin>> PinVersion(absl::Duration hold,
                                                  absl::Time deadline) override;
  absl::Status ReportEvaluation(const proto::EvaluationResult& result,
                                absl::Time deadline) override;
  absl::StatusOr<proto::GetStatusResponse> GetStatus(
      absl::Time deadline) override;
  absl::Status Leave(const std::string& error, absl::Time deadline) override;
  proto::JobState state() const override;

  const std::vector<proto::EvaluationResult>& reports() const {
    return reports_;
  }
  const proto::Declaration& declared() const { return declared_; }

 private:
  class FakePush;
  class FakeOffer;
  class FakePull;
  class FakePin;

  // Writes the call down. What it is to come to.
  absl::Status Call(const std::string& line,
                    absl::Time deadline = absl::InfiniteFuture());
  void Fill(GlobalStep version, Parameters* into) const;

  const proto::Declaration declaration_;

  mutable absl::Mutex mutex_;
  std::vector<std::pair<std::string, absl::Time>> calls_
      ABSL_GUARDED_BY(mutex_);
  std::vector<Contribution> contributions_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::map<size_t, std::vector<float>>> pushed_
      ABSL_GUARDED_BY(mutex_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  // The greatest version that a pull has found.
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<proto::EvaluationResult> reports_;
  proto::Declaration declared_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_FAKE_CLUSTER_H_

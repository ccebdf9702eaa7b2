// SPDX-License-Identifier: Apache-2.0
#include "worker/model/replicated.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/strand.h"
#include "common/trace/trace.h"
#include "worker/input/batch.h"
#include "worker/model/gradient_delivery.h"
#include "worker/model/parameter_arrival.h"
#include "worker/model/sequential.h"

namespace holdfast {
namespace {

// Tracks which gradients of the batch under way the replicas have made, and
// whether their losses are finite. Thread-safe.
class Handover {
 public:
  void Begin(size_t replicas, size_t variables) {
    absl::MutexLock lock(&mutex_);
    made_.assign(replicas, std::vector<bool>(variables));
    finite_.assign(replicas, std::nullopt);
    ended_.assign(replicas, false);
  }
  void Put(size_t replica, int variable) {
    absl::MutexLock lock(&mutex_);
    made_[replica][variable] = true;
  }
  void TellLoss(size_t replica, bool finite) {
    absl::MutexLock lock(&mutex_);
    finite_[replica] = finite;
  }
  // Notes that the replica makes no more gradients, and tells no loss.
  void End(size_t replica) {
    absl::MutexLock lock(&mutex_);
    ended_[replica] = true;
  }

  // Waits until all replicas have made this gradient. Returns false if one will
  // not make it.
  bool AwaitMade(int variable) {
    absl::MutexLock lock(&mutex_);
    for (size_t replica = 0; replica < made_.size(); ++replica) {
      const auto decided = [&] {
        return made_[replica][variable] || ended_[replica];
      };
      mutex_.Await(absl::Condition(&decided));
      if (!made_[replica][variable]) return false;
    }
    return true;
  }
  // Waits until the losses of all replicas are known, and returns whether all
  // are finite. Returns false if a replica has ended without a loss.
  bool AwaitFinite() {
    absl::MutexLock lock(&mutex_);
    for (size_t replica = 0; replica < finite_.size(); ++replica) {
      const auto decided = [&] {
        return finite_[replica].has_value() || ended_[replica];
      };
      mutex_.Await(absl::Condition(&decided));
      if (!finite_[replica].value_or(false)) return false;
    }
    return true;
  }
  void AwaitEnds() {
    absl::MutexLock lock(&mutex_);
    const auto over = [this] {
      return std::find(ended_.begin(), ended_.end(), false) == ended_.end();
    };
    mutex_.Await(absl::Condition(&over));
  }

 private:
  absl::Mutex mutex_;
  // Indexed by replica and variable.
  std::vector<std::vector<bool>> made_ ABSL_GUARDED_BY(mutex_);
  // Indexed by replica. Absent: the loss is not known.
  std::vector<std::optional<bool>> finite_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> ended_ ABSL_GUARDED_BY(mutex_);
};

// Lets the threads of all replicas await the parameters. The first replica's
// thread, which called the model, waits for the arrival, and the others wait
// for the first replica to have done so.
class SharedArrival {
 public:
  // `arrival` may be null.
  void Begin(ParameterArrival* arrival, size_t variables) {
    absl::MutexLock lock(&mutex_);
    arrival_ = arrival;
    arrived_.assign(variables, false);
    ended_ = false;
  }
  // Notes that the first replica awaits no more parameters.
  void End() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  }
  // Returns what a replica awaits; null if all parameters have arrived.
  ParameterArrival* Of(size_t replica) {
    if (arrival_ == nullptr) return nullptr;
    if (replica == 0) return &first_;
    return &others_;
  }

 private:
  class First final : public ParameterArrival {
   public:
    explicit First(SharedArrival* shared) : shared_(*shared) {}
    absl::Status Await(size_t variable) override {
      HOLDFAST_RETURN_IF_ERROR(shared_.arrival_->Await(variable));
      absl::MutexLock lock(&shared_.mutex_);
      shared_.arrived_[variable] = true;
      return absl::OkStatus();
    }

   private:
    SharedArrival& shared_;
  };

  class Others final : public ParameterArrival {
   public:
    explicit Others(SharedArrival* shared) : shared_(*shared) {}
    absl::Status Await(size_t variable) override {
      absl::MutexLock lock(&shared_.mutex_);
      const auto decided = [&] {
        return shared_.arrived_[variable] || shared_.ended_;
      };
      shared_.mutex_.Await(absl::Condition(&decided));
      if (shared_.arrived_[variable]) return absl::OkStatus();
      return absl::CancelledError("the first replica has ended");
    }

   private:
    SharedArrival& shared_;
  };

  First first_{this};
  Others others_{this};
  // Changed only between batches.
  ParameterArrival* arrival_ = nullptr;
  absl::Mutex mutex_;
  // Indexed by variable.
  std::vector<bool> arrived_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// The part of a replicated model that does not depend on where gradients are
// kept and how they are summed.
class ReplicatedModel : public Model {
 public:
  std::vector<proto::Variable> Variables() const override { return variables_; }
  bool AwaitsParameters() const override { return First().AwaitsParameters(); }

  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
      GradientSink sink) override {
    std::vector<Batch> parts = CutBatch(batch, num_replicas_);
    if (parts.empty()) return absl::InvalidArgumentError("the batch is empty");
    arrival_.Begin(batch.arrival, variables_.size());
    for (size_t replica = 0; replica < parts.size(); ++replica) {
      parts[replica].arrival = arrival_.Of(replica);
    }
    weights_.clear();
    for (const Batch& part : parts) {
      weights_.push_back(static_cast<float>(static_cast<double>(part.size()) /
                                            static_cast<double>(batch.size())));
    }
    handover_.Begin(parts.size(), variables_.size());
    std::vector<absl::StatusOr<BatchResult>> results(parts.size());
    for (size_t replica = 1; replica < parts.size(); ++replica) {
      strands_[replica - 1]->Post([&, replica] {
        results[replica] = Compute(replica, parameters, parts[replica],
                                   [](int) { return absl::OkStatus(); });
        handover_.End(replica);
      });
    }

    // Gradients that the first replica has made and that are not yet summed.
    std::vector<int> waiting;
    // An error of summing, not of the first replica itself.
    absl::Status failure;
    const auto sum_but = [&](size_t rest) {
      while (failure.ok() && waiting.size() > rest) {
        const int variable = waiting.front();
        waiting.erase(waiting.begin());
        failure = AwaitMade(variable)
                      ? Sum(variable, weights_, sink)
                      : absl::CancelledError("another replica has ended");
      }
      return failure;
    };
    const auto decide = [this]() -> absl::StatusOr<bool> {
      const ScopedTrace waiting(tracer_, TraceKind::kWait, "the losses");
      return handover_.AwaitFinite();
    };
    StartBatch(sink, decide);
    results[0] = Compute(0, parameters, parts[0], [&](int variable) {
      waiting.push_back(variable);
      return sum_but(1);
    });
    arrival_.End();
    handover_.End(0);
    const bool summing = results[0].ok() && results[0]->finite;
    if (summing) failure = sum_but(0);
    failure.Update(FinishBatch(/*complete=*/summing && failure.ok()));
    AwaitEnds();
    return Combined(results, failure);
  }

  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>> parameters,
      const Batch& batch) override {
    return First().Evaluate(parameters, batch);
  }
  OutputSpec Outputs() const override { return First().Outputs(); }

 protected:
  // Must be called when the gradient of a variable has been made; an error ends
  // the pass.
  using Made = absl::FunctionRef<absl::Status(int variable)>;

  // Waits are recorded in `tracer`.
  ReplicatedModel(size_t num_replicas, std::vector<proto::Variable> variables,
                  Tracer* tracer)
      : num_replicas_(num_replicas),
        variables_(std::move(variables)),
        tracer_(tracer) {
    for (size_t replica = 1; replica < num_replicas; ++replica) {
      strands_.push_back(
          std::make_unique<Strand>(absl::StrCat("replica ", replica)));
    }
  }

  // Ends the threads. Must be called by the destructor, before anything that
  // they use is destroyed.
  void Stop() { strands_.clear(); }

  // Tells whether the loss of a replica is finite, before ComputeReplica
  // returns. Called by the replica's thread.
  void TellLoss(size_t replica, bool finite) {
    handover_.TellLoss(replica, finite);
  }

  virtual Model& First() const = 0;
  // Makes a replica compute its gradients and keep them.
  virtual absl::StatusOr<BatchResult> ComputeReplica(
      size_t replica, absl::Span<const absl::Span<const float>> parameters,
      const Batch& part, Made made) = 0;
  // `sink` and `decide` (GradientDelivery) stay valid until FinishBatch has
  // returned.
  virtual void StartBatch(GradientSink /*sink*/,
                          GradientDelivery::Decide /*decide*/) {}
  // Sums a gradient that all replicas have made; the sum goes to `sink`, before
  // FinishBatch returns. Called by the caller's thread.
  virtual absl::Status Sum(int variable, absl::Span<const float> weights,
                           GradientSink sink) = 0;
  // Waits until the sums have gone to the sink. If not `complete`, because the
  // batch has failed, no more of them go there.
  virtual absl::Status FinishBatch(bool /*complete*/) {
    return absl::OkStatus();
  }

  const size_t num_replicas_;
  const std::vector<proto::Variable> variables_;

 private:
  absl::StatusOr<BatchResult> Compute(
      size_t replica, absl::Span<const absl::Span<const float>> parameters,
      const Batch& part, Made then) {
    return ComputeReplica(replica, parameters, part,
                          [&](int variable) -> absl::Status {
                            handover_.Put(replica, variable);
                            return then(variable);
                          });
  }

  bool AwaitMade(int variable) {
    const ScopedTrace waiting(tracer_, TraceKind::kWait, "another replica");
    return handover_.AwaitMade(variable);
  }
  void AwaitEnds() {
    const ScopedTrace waiting(tracer_, TraceKind::kWait, "the other replicas");
    handover_.AwaitEnds();
  }

  static absl::StatusOr<BatchResult> Combined(
      const std::vector<absl::StatusOr<BatchResult>>& results,
      const absl::Status& failure) {
    BatchResult all;
    all.correct = 0;
    all.absolute_error_sum = 0;
    all.squared_error_sum = 0;
    for (size_t replica = 0; replica < results.size(); ++replica) {
      const absl::StatusOr<BatchResult>& result = results[replica];
      if (!result.ok()) {
        // This replica has ended because another one has failed.
        if (replica == 0 && result.status() == failure) continue;
        return absl::Status(
            result.status().code(),
            absl::StrCat("replica ", replica, ": ", result.status().message()));
      }
      all.examples += result->examples;
      all.loss_sum += result->loss_sum;
      all.finite = all.finite && result->finite;
      if (!result->correct.has_value()) all.correct.reset();
      if (all.correct.has_value()) *all.correct += *result->correct;
      if (!result->absolute_error_sum.has_value()) {
        all.absolute_error_sum.reset();
      }
      if (all.absolute_error_sum.has_value()) {
        *all.absolute_error_sum += *result->absolute_error_sum;
      }
      if (!result->squared_error_sum.has_value()) all.squared_error_sum.reset();
      if (all.squared_error_sum.has_value()) {
        *all.squared_error_sum += *result->squared_error_sum;
      }
    }
    if (!all.finite) return all;
    if (absl::IsCancelled(failure)) {
      return absl::InternalError(
          "the replicas of the model did not make the same gradients");
    }
    if (!failure.ok()) return failure;
    return all;
  }

  Tracer* const tracer_;
  SharedArrival arrival_;
  Handover handover_;
  std::vector<float> weights_;
  // The threads of all replicas except the first.
  std::vector<std::unique_ptr<Strand>> strands_;
};

// Sums on the backend of the first replica.
class SequentialReplicas final : public ReplicatedModel {
 public:
  SequentialReplicas(std::vector<std::unique_ptr<NetworkModel>> models,
                     absl::Span<Backend* const> backends)
      : ReplicatedModel(models.size(), models[0]->Variables(),
                        backends[0]->tracer()),
        models_(std::move(models)),
        backends_(backends.begin(), backends.end()),
        own_(variables_.size()),
        shared_(models_.size()),
        sums_(variables_.size()),
        delivery_(backends_[0], static_cast<int64_t>(variables_.size())) {
    for (std::vector<SharedMatrix>& shared : shared_) {
      shared.resize(variables_.size());
    }
  }
  ~SequentialReplicas() override { Stop(); }

 private:
  Model& First() const override { return *models_[0]; }

  absl::StatusOr<BatchResult> ComputeReplica(
      size_t replica, absl::Span<const absl::Span<const float>> parameters,
      const Batch& part, Made made) override {
    const auto result = models_[replica]->ComputeOnDevice(
        parameters, part, [&](int variable, ConstMatrix gradient) {
          if (replica == 0) {
            own_[variable] = gradient;
          } else {
            HOLDFAST_RETURN_IF_ERROR(backends_[replica]->Share(
                gradient, &shared_[replica][variable]));
          }
          return made(variable);
        });
    absl::Status status = result.status();
    if (status.ok()) TellLoss(replica, result->finite);
    status.Update(models_[replica]->AwaitUploads());
    if (!status.ok()) return status;
    return result;
  }

  void StartBatch(GradientSink sink, GradientDelivery::Decide decide) override {
    delivery_.Begin(sink, decide);
  }

  absl::Status Sum(int variable, absl::Span<const float> weights,
                   GradientSink) override {
    Backend* const backend = backends_[0];
    const ConstMatrix own = own_[variable];
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto sum,
        backend->ReserveFor(delivery_.Memory(variable), own.rows, own.cols,
                            &sums_[variable]));
    backend->Scale(weights[0], own, sum);
    for (size_t replica = 1; replica < weights.size(); ++replica) {
      HOLDFAST_ASSIGN_OR_RETURN(
          const auto fetched,
          backend->Fetch(shared_[replica][variable],
                         &fetched_[next_fetched_++ % fetched_.size()]));
      backend->AddScaled(weights[replica], fetched, sum);
    }
    return delivery_.Add(variable, sum);
  }

  absl::Status FinishBatch(bool complete) override {
    return delivery_.Finish(complete);
  }

  const std::vector<std::unique_ptr<NetworkModel>> models_;
  const std::vector<Backend*> backends_;
  // Indexed by variable: the first replica's gradients.
  std::vector<ConstMatrix> own_;
  // Indexed by replica and variable: the other replicas' gradients.
  std::vector<std::vector<SharedMatrix>> shared_;
  // Indexed by variable, on the first backend.
  std::vector<DeviceBuffer> sums_;
  // On the first backend too. Used in turn, so that a copy seldom waits for the
  // previous sum.
  std::array<DeviceBuffer, 4> fetched_;
  size_t next_fetched_ = 0;
  GradientDelivery delivery_;
};

// Sums on the host.
class HostReplicas final : public ReplicatedModel {
 public:
  HostReplicas(std::vector<std::unique_ptr<Model>> models, Tracer* tracer)
      : ReplicatedModel(models.size(), models[0]->Variables(), tracer),
        models_(std::move(models)),
        gradients_(models_.size()),
        sums_(variables_.size()) {
    for (auto& gradients : gradients_) gradients.resize(variables_.size());
  }
  ~HostReplicas() override { Stop(); }

 private:
  Model& First() const override { return *models_[0]; }

  absl::StatusOr<BatchResult> ComputeReplica(
      size_t replica, absl::Span<const absl::Span<const float>> parameters,
      const Batch& part, Made made) override {
    absl::Status status;
    const auto result = models_[replica]->ComputeGradients(
        parameters, part, [&](int variable, absl::Span<const float> gradient) {
          if (!status.ok()) return;
          if (variable < 0 ||
              static_cast<size_t>(variable) >= variables_.size()) {
            status = absl::InvalidArgumentError(
                absl::StrCat("the model made a gradient of variable ", variable,
                             ", which it does not have"));
            return;
          }
          gradients_[replica][variable] = gradient;
          status = made(variable);
        });
    if (result.ok() && !status.ok()) return status;
    return result;
  }

  absl::Status Sum(int variable, absl::Span<const float> weights,
                   GradientSink sink) override {
    const size_t size = gradients_[0][variable].size();
    absl::Span<float> sum = sink.Memory(variable);
    // A model may make a gradient of a wrong size.
    if (sum.size() != size) {
      sums_[variable].resize(size);
      sum = absl::MakeSpan(sums_[variable]);
    }
    // Uses pointers, whose loops GCC vectorises.
    float* const out = sum.data();
    for (size_t replica = 0; replica < weights.size(); ++replica) {
      const absl::Span<const float> gradient = gradients_[replica][variable];
      if (gradient.size() != sum.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "replicas 0 and ", replica, " made gradients of ", sum.size(),
            " and ", gradient.size(), " elements for variable ", variable));
      }
      const float* const in = gradient.data();
      const float weight = weights[replica];
      for (size_t i = 0; i < sum.size(); ++i) {
        const float product = weight * in[i];
        out[i] = replica == 0 ? product : out[i] + product;
      }
    }
    sink(variable, sum);
    return absl::OkStatus();
  }

  const std::vector<std::unique_ptr<Model>> models_;
  // Indexed by replica and variable.
  std::vector<std::vector<absl::Span<const float>>> gradients_;
  // Indexed by variable.
  std::vector<std::vector<float>> sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateReplicatedModel(
    const proto::Model& config, const ExampleSpec& examples, uint64_t seed,
    absl::Span<Backend* const> backends, const ModelRegistry& registry) {
  if (backends.size() == 1) {
    return CreateModel(config, examples, seed, backends[0], registry);
  }
  if (config.has_sequential()) {
    std::vector<std::unique_ptr<NetworkModel>> models;
    for (Backend* const backend : backends) {
      HOLDFAST_ASSIGN_OR_RETURN(
          auto model,
          CreateSequential(config.sequential(), examples, seed, backend));
      models.push_back(std::move(model));
    }
    return std::make_unique<SequentialReplicas>(std::move(models), backends);
  }
  std::vector<std::unique_ptr<Model>> models;
  for (Backend* const backend : backends) {
    HOLDFAST_ASSIGN_OR_RETURN(
        auto model, CreateModel(config, examples, seed, backend, registry));
    if (!model->Tables().empty()) {
      return absl::InvalidArgumentError(
          "--device names several devices, but a worker computes a model with "
          "embedding tables on one: start a worker for each device");
    }
    models.push_back(std::move(model));
  }
  return std::make_unique<HostReplicas>(std::move(models),
                                        backends[0]->tracer());
}

}  // namespace holdfast

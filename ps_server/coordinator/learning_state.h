// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_COORDINATOR_LEARNING_STATE_H_
#define HOLDFAST_PS_SERVER_COORDINATOR_LEARNING_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "google/protobuf/repeated_field.h"
#include "proto/checkpoint.pb.h"
#include "proto/cluster.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/coordinator/divergence_watch.h"
#include "ps_server/coordinator/loss_scaler.h"
#include "ps_server/coordinator/step.h"

namespace holdfast {

// What later steps need to know of earlier steps: the number of steps that have
// changed something, which is Adam's count of updates; the loss scale; and the
// number of consecutive contributions that were not finite.
//
// Thread-compatible. Copies are independent.
class LearningState {
 public:
  // The state before the first step.
  LearningState() = default;
  LearningState(const proto::Declaration& declaration,
                const proto::Position& position);

  // The loss scale with which the next gradients are computed; 0 if the job has
  // none.
  float loss_scale() const {
    return loss_scaler_.has_value() ? loss_scaler_->scale() : 0;
  }

  // Called when a synchronous step is closed with its offers. Fills in the
  // scalars of `commit`, whose contributions must be filled in, and the next
  // loss scale. `rate_factor` is as in ScalarsAt.
  void OnStep(const proto::Declaration& declaration, const Step& step,
              float rate_factor, proto::CommitRequest* commit);
  // Appends the scalars of the asynchronous push that holds ticket number
  // `index`.
  void AddScalarsOfTicket(
      const proto::Declaration& declaration, uint64_t index, float rate_factor,
      google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const;
  // Called when an asynchronous push counts. `loss_scale` is that of its
  // ticket, with which its gradient was computed.
  void OnPush(uint64_t examples, bool not_finite, float loss_scale);

  bool diverged() const {
    return divergence_.has_value() && divergence_->diverged();
  }
  // Describes, for users, why a job that has diverged ends.
  std::string DescribeDivergence(GlobalStep committed) const;

  // Whether the job has loss scaling.
  bool has_loss_scale() const { return loss_scaler_.has_value(); }
  void AddTo(proto::Position* position) const;

 private:
  // Appends the scalars of the step or ticket number `index`, which is the
  // `update`-th of this job to change something, counted from 1.
  void AddScalars(
      const proto::Declaration& declaration, uint64_t index, uint64_t update,
      float rate_factor,
      google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const;

  uint64_t updates_ = 0;
  // Position.updates_before, indexed by optimizer.
  std::vector<uint64_t> updates_before_;
  std::optional<LossScaler> loss_scaler_;
  std::optional<DivergenceWatch> divergence_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_LEARNING_STATE_H_

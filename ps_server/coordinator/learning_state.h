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

// What later steps need to know of earlier ones: how many have changed
// something, which is Adam's count; the loss scale; and how many contributions
// in a row were not finite.
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

  // A synchronous step is closed with its offers. Fills in the scalars of its
  // commit, whose contributions must be filled in, and the next loss scale.
  // `rate_factor`: see ScalarsAt.
  void OnStep(const proto::Declaration& declaration, const Step& step,
              float rate_factor, proto::CommitRequest* commit);
  // Appends the scalars of the asynchronous push with the ticket of that index.
  void AddScalarsOfTicket(
      const proto::Declaration& declaration, uint64_t index, float rate_factor,
      google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const;
  // An asynchronous push counts. `loss_scale`: that of its ticket, with which
  // the push was computed.
  void OnPush(uint64_t examples, bool not_finite, float loss_scale);

  bool diverged() const {
    return divergence_.has_value() && divergence_->diverged();
  }
  // Why the job ends when it has diverged.
  std::string DescribeDivergence(GlobalStep committed) const;

  // Whether the job has loss scaling.
  bool has_loss_scale() const { return loss_scaler_.has_value(); }
  void AddTo(proto::Position* position) const;

 private:
  // Appends the scalars of the step at `index`, which makes update number
  // `update` of this job.
  void AddScalars(
      const proto::Declaration& declaration, uint64_t index, uint64_t update,
      float rate_factor,
      google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const;

  uint64_t updates_ = 0;
  // Indexed by optimizer; see proto::Position.
  std::vector<uint64_t> updates_before_;
  std::optional<LossScaler> loss_scaler_;
  std::optional<DivergenceWatch> divergence_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_LEARNING_STATE_H_

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

// What the steps so far leave behind for those to come: how many have changed
// something, as Adam counts; the loss scale; and how many contributions in a
// row were not finite.
//
// Thread-compatible. Copies are independent.
class LearningState {
 public:
  // Nothing was learned.
  LearningState() = default;
  LearningState(const proto::Declaration& declaration,
                const proto::Position& position);

  // With which the next gradients are computed. 0: the job has none.
  float loss_scale() const {
    return loss_scaler_.has_value() ? loss_scaler_->scale() : 0;
  }

  // A synchronous step is made of its offers: fills in the scalars of its
  // commit, whose contributions are filled in, and the next loss scale.
  // `rate_factor`: see ScalarsAt.
  void OnStep(const proto::Declaration& declaration, const Step& step,
              float rate_factor, proto::CommitRequest* commit);
  // The same of the asynchronous push with the ticket of that index: added to
  // `scalars`.
  void AddScalarsOfTicket(
      const proto::Declaration& declaration, uint64_t index, float rate_factor,
      google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const;
  // An asynchronous push counts, computed with the loss scale of its ticket.
  void OnPush(uint64_t examples, bool not_finite, float loss_scale);

  bool diverged() const {
    return divergence_.has_value() && divergence_->diverged();
  }
  // Why the job ends then.
  std::string DescribeDivergence(GlobalStep committed) const;

  // Of a job with loss scaling.
  bool has_loss_scale() const { return loss_scaler_.has_value(); }
  void AddTo(proto::Position* position) const;

 private:
  // Those of the step at `index` that makes update `update` of this job.
  void AddScalars(
      const proto::Declaration& declaration, uint64_t index, uint64_t update,
      float rate_factor,
      google::protobuf::RepeatedPtrField<proto::StepScalars>* scalars) const;

  uint64_t updates_ = 0;
  // By optimizer; see proto::Position.
  std::vector<uint64_t> updates_before_;
  std::optional<LossScaler> loss_scaler_;
  std::optional<DivergenceWatch> divergence_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_COORDINATOR_LEARNING_STATE_H_

// SPDX-License-Identifier: Apache-2.0
#include "worker/model/sequential.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/model/layers/chain.h"
#include "worker/model/losses.h"
#include "worker/model/network.h"

namespace holdfast {
namespace {

class LayerNetwork final : public Network {
 public:
  explicit LayerNetwork(std::unique_ptr<Chain> layers)
      : layers_(std::move(layers)) {}

  const std::vector<proto::Variable>& variables() const override {
    return layers_->variables();
  }
  const std::vector<int64_t>& output_shape() const override {
    return layers_->output_shape();
  }
  std::string OutputName() const override {
    return absl::StrCat("layer \"", layers_->last_name(), "\", the last,");
  }

  bool BringsParameters() const override { return true; }

  absl::StatusOr<ConstMatrix> Forward(const Pass& pass,
                                      absl::Span<const ConstMatrix> parameters,
                                      ConstMatrix x, const Batch&) override {
    return layers_->Forward(pass, parameters, x);
  }

  absl::Status Backward(absl::Span<const ConstMatrix> parameters, Matrix dy,
                        Layer::GradientSink sink) override {
    return layers_->Backward(parameters, dy, /*want_dx=*/false, sink).status();
  }

 private:
  const std::unique_ptr<Chain> layers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkModel>> CreateSequential(
    const proto::Sequential& config, const ExampleSpec& examples, uint64_t seed,
    Backend* backend) {
  if (config.layers().empty()) {
    return absl::InvalidArgumentError("the model has no layers");
  }
  HOLDFAST_ASSIGN_OR_RETURN(const auto loss, Loss::Create(config.loss()));
  if (!examples.id_fields.empty()) {
    return absl::InvalidArgumentError(
        "a sequential model has no use for ids, which the examples have: use "
        "a "
        "model with embedding tables (docs/click_models.md), or leave the ids "
        "out");
  }
  HOLDFAST_ASSIGN_OR_RETURN(
      auto layers, Chain::Create(config.layers(), /*prefix=*/"", examples.shape,
                                 seed, /*first_place=*/0, backend));
  if (layers->variables().empty()) {
    return absl::InvalidArgumentError(
        "the model has nothing to train: no layer has variables");
  }
  return NetworkModel::Create(std::make_unique<LayerNetwork>(std::move(layers)),
                              loss, examples, backend);
}

}  // namespace holdfast

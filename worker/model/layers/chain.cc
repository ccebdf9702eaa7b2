// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/chain.h"

#include <array>
#include <map>
#include <utility>

#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/job/job_file.h"
#include "worker/model/layers/create.h"

namespace holdfast {
namespace {

// Errors: INVALID_ARGUMENT when two names are the same.
absl::Status CheckDistinct(const std::vector<std::string>& names,
                           const std::string& prefix) {
  std::map<absl::string_view, size_t> place_of_name;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto [other, is_first] = place_of_name.emplace(names[i], i);
    if (!is_first) {
      return absl::InvalidArgumentError(absl::StrCat(
          "layers ", other->second, " and ", i,
          " (counted from 0) are both named \"", prefix, names[i], "\""));
    }
  }
  return absl::OkStatus();
}

// Returns the key from which the randomness of the layer at `place` follows.
uint64_t KeyOfLayer(uint64_t key, uint32_t layer) {
  // Keeps these keys apart from other uses of Philox under one seed ("laye").
  constexpr uint32_t kPurpose = 0x6c617965;
  const std::array<uint32_t, 4> bits = Philox4x32(
      {layer, 0, 0, kPurpose},
      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  return uint64_t{bits[1]} << 32 | bits[0];
}

}  // namespace

absl::StatusOr<std::unique_ptr<Chain>> Chain::Create(
    const google::protobuf::RepeatedPtrField<proto::Layer>& layers,
    const std::string& prefix, absl::Span<const int64_t> input_shape,
    uint64_t key, uint32_t first_place, Backend* backend) {
  const std::vector<std::string> names = LayerNames(layers);
  HOLDFAST_RETURN_IF_ERROR(CheckDistinct(names, prefix));
  std::unique_ptr<Chain> chain(new Chain);
  chain->backend_ = backend;
  chain->output_shape_.assign(input_shape.begin(), input_shape.end());
  for (int i = 0; i < layers.size(); ++i) {
    chain->names_.push_back(absl::StrCat(prefix, names[i]));
    HOLDFAST_ASSIGN_OR_RETURN(
        auto layer,
        CreateLayer(layers.Get(i), chain->names_.back(), chain->output_shape_,
                    KeyOfLayer(key, first_place + i), backend));
    chain->output_shape_ = layer->output_shape();
    const std::vector<proto::Variable>& variables = layer->variables();
    chain->first_variable_.push_back(chain->variables_.size());
    chain->variables_.insert(chain->variables_.end(), variables.begin(),
                             variables.end());
    if (chain->variables_.empty()) chain->first_trained_layer_ = i + 1;
    chain->absorbed_.push_back(layers.Get(i).has_relu() && i > 0 &&
                               !chain->absorbed_.back() &&
                               chain->layers_.back()->TakesRelu());
    chain->layers_.push_back(std::move(layer));
  }
  chain->values_.resize(chain->layers_.size() + 1);
  // The layers in order, without those that other layers absorb.
  std::vector<Layer*> own;
  for (size_t i = 0; i < chain->layers_.size(); ++i) {
    if (!chain->absorbed_[i]) own.push_back(chain->layers_[i].get());
  }
  for (size_t i = 1; i < own.size(); ++i) {
    own[i - 1]->TellUseOfOutput(own[i]->UseOfInput());
    own[i]->TellUseOfInputGradient(own[i - 1]->UseOfGradient());
  }
  if (!own.empty()) chain->last_own_ = own.back();
  return chain;
}

bool Chain::TakesAddend() const {
  return !layers_.empty() && layers_.back()->TakesAddend();
}

absl::StatusOr<ConstMatrix> Chain::Forward(
    const Pass& pass, absl::Span<const ConstMatrix> parameters, ConstMatrix x) {
  values_[0] = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (absorbed_[i]) {
      values_[i + 1] = values_[i];
      continue;
    }
    const ScopedTrace trace(backend_->tracer(), TraceKind::kModel, names_[i]);
    Pass of_layer = pass;
    if (i + 1 < layers_.size()) {
      of_layer.addend = {};
      of_layer.relu = absorbed_[i + 1];
    }
    if (pass.bring != nullptr) {
      HOLDFAST_RETURN_IF_ERROR((*pass.bring)(ParametersOf(parameters, i)));
      // Including those of chains within the layer.
      of_layer.bring = nullptr;
    }
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto value,
        layers_[i]->Forward(of_layer, ParametersOf(parameters, i), values_[i]));
    values_[i + 1] = value;
  }
  return values_.back();
}

absl::StatusOr<Matrix> Chain::Backward(absl::Span<const ConstMatrix> parameters,
                                       Matrix dy, bool want_dx,
                                       Layer::GradientSink sink) {
  const int last = want_dx ? 0 : first_trained_layer_;
  for (int i = static_cast<int>(layers_.size()) - 1; i >= last; --i) {
    if (absorbed_[i]) continue;
    const ScopedTrace trace(backend_->tracer(), TraceKind::kModel, names_[i]);
    const auto take = [&](int variable, Matrix gradient) {
      return sink(first_variable_[i] + variable, gradient);
    };
    const auto memory_of = [&](int variable) {
      return sink.Memory(first_variable_[i] + variable);
    };
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto dx,
        layers_[i]->Backward(ParametersOf(parameters, i), values_[i],
                             values_[i + 1], dy, want_dx || i > last,
                             Layer::GradientSink(take, memory_of)));
    // A gradient that a layer has computed in place has no rounded copy.
    const bool in_place = dx.data == dy.data;
    dy = dx;
    if (in_place) dy.rounded = nullptr;
  }
  return dy;
}

absl::Span<const ConstMatrix> Chain::ParametersOf(
    absl::Span<const ConstMatrix> parameters, int layer) const {
  return parameters.subspan(first_variable_[layer],
                            layers_[layer]->variables().size());
}

}  // namespace holdfast

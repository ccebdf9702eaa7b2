// SPDX-License-Identifier: Apache-2.0
#include "worker/model/layers/create.h"

#include "common/tensor/shape.h"
#include "worker/model/layers/convolution.h"
#include "worker/model/layers/dense.h"
#include "worker/model/layers/elementwise.h"
#include "worker/model/layers/normalization.h"
#include "worker/model/layers/pooling.h"
#include "worker/model/layers/residual.h"

namespace holdfast {

absl::StatusOr<std::unique_ptr<Layer>> CreateLayer(
    const proto::Layer& config, const std::string& name,
    absl::Span<const int64_t> input_shape, uint64_t key, Backend* backend) {
  int64_t size = 1;
  for (int64_t dimension : input_shape) {
    if (dimension < 1 || dimension > kMaxDimension / size) {
      return LayerError(name, "its input has the shape ",
                        ShapeString(input_shape), ", but must have 1 to ",
                        kMaxDimension, " elements");
    }
    size *= dimension;
  }
  switch (config.kind_case()) {
    case proto::Layer::kFlatten:
      return CreateFlatten(size, backend);
    case proto::Layer::kReshape:
      return CreateReshape(config.reshape(), name, input_shape, backend);
    case proto::Layer::kDense:
      return CreateDense(config.dense(), name, input_shape, backend);
    case proto::Layer::kRelu:
      return CreateRelu(input_shape, backend);
    case proto::Layer::kTanh:
      return CreateTanh(input_shape, backend);
    case proto::Layer::kSigmoid:
      return CreateSigmoid(input_shape, backend);
    case proto::Layer::kDropout:
      return CreateDropout(config.dropout(), name, input_shape, key, backend);
    case proto::Layer::kConv2D:
      return CreateConv2d(config.conv2d(), name, input_shape, backend);
    case proto::Layer::kMaxPool2D:
      return CreateMaxPool2d(config.max_pool2d(), name, input_shape, backend);
    case proto::Layer::kAveragePool2D:
      return CreateAveragePool2d(config.average_pool2d(), name, input_shape,
                                 backend);
    case proto::Layer::kGlobalAveragePool2D:
      return CreateGlobalAveragePool2d(name, input_shape, backend);
    case proto::Layer::kLayerNorm:
      return CreateLayerNorm(config.layer_norm(), name, input_shape, backend);
    case proto::Layer::kBatchNorm:
      return CreateBatchNorm(config.batch_norm(), name, input_shape, backend);
    case proto::Layer::kResidual:
      return CreateResidual(config.residual(), name, input_shape, key, backend);
    case proto::Layer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", name, "\" has no kind"));
}

}  // namespace holdfast

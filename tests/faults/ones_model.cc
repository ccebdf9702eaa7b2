// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/ones_model.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/rpc_limits.h"

namespace holdfast {
namespace {

// A third of this variable is just large enough to be lent to neighbors
// (docs/protocol/same_host.md).
constexpr int64_t kPushes = 3 * kMinLentBytes / sizeof(float);
constexpr int64_t kMaxPositions = 1 << 20;

proto::Variable Counter(const std::string& name, int64_t elements) {
  proto::Variable variable;
  variable.set_name(name);
  variable.add_shape(elements);
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  return variable;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> OnesModel::Create(
    const ModelContext& context) {
  int64_t positions = 0;
  const auto option = context.options.find("positions");
  if (context.options.size() != 1 || option == context.options.end() ||
      !absl::SimpleAtoi(option->second, &positions) || positions < 1 ||
      positions > kMaxPositions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "takes one option, \"positions\", from 1 to ", kMaxPositions));
  }
  return std::unique_ptr<Model>(new OnesModel(positions));
}

OnesModel::OnesModel(int64_t positions)
    : pushes_(kPushes, -1), seen_(positions) {}

std::vector<proto::Variable> OnesModel::Variables() const {
  return {Counter("pushes", pushes_.size()), Counter("seen", seen_.size())};
}

absl::StatusOr<BatchResult> OnesModel::ComputeGradients(
    absl::Span<const absl::Span<const float>> parameters, const Batch& batch,
    GradientSink sink) {
  std::fill(seen_.begin(), seen_.end(), 0.0f);
  for (const int64_t position : batch.positions) {
    if (position >= static_cast<int64_t>(seen_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("position ", position, " is beyond the end of the job"));
    }
    seen_[position] = -1;
  }
  sink(0, pushes_);
  sink(1, seen_);
  return Evaluate(parameters, batch);
}

absl::StatusOr<BatchResult> OnesModel::Evaluate(
    absl::Span<const absl::Span<const float>>, const Batch& batch) {
  BatchResult result;
  result.examples = batch.size();
  return result;
}

}  // namespace holdfast

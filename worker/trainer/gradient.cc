#include "worker/trainer/gradient.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/norm.h"

namespace holdfast {
namespace {

// The loops below go by pointers: the test of a Span's operator[] keeps GCC
// from vectorising them.

// sum = weight x part, which are of one size.
void SetTo(float weight, absl::Span<const float> part, absl::Span<float> sum) {
  const float* const in = part.data();
  float* const out = sum.data();
  for (size_t i = 0; i < part.size(); ++i) out[i] = weight * in[i];
}

// sum += weight x part.
void Add(float weight, absl::Span<const float> part, absl::Span<float> sum) {
  const float* const in = part.data();
  float* const out = sum.data();
  for (size_t i = 0; i < part.size(); ++i) out[i] += weight * in[i];
}

// The batch in `parts` stretches that are computed one after the other: the
// next one of each is the stretch behind it, and that of the last the first of
// the batch's next.
std::vector<Batch> CutInTurn(const Batch& batch, uint32_t parts) {
  std::vector<Batch> cut = CutBatch(batch, parts);
  if (cut.empty()) return cut;
  const Batch first = cut.front();
  for (size_t i = 0; i + 1 < cut.size(); ++i) {
    cut[i].next_inputs = cut[i + 1].inputs;
    cut[i].next_positions = cut[i + 1].positions;
  }
  cut.back().next_inputs = first.next_inputs;
  cut.back().next_positions = first.next_positions;
  return cut;
}

}  // namespace

GradientComputer::GradientComputer(Model* model, const Options& options)
    : model_(model), options_(options) {
  for (const proto::Variable& variable : model->Variables()) {
    is_in_norm_.push_back(!variable.has_moving_average());
  }
}

absl::StatusOr<GradientComputer::Result> GradientComputer::Compute(
    const Parameters& at, const Batch& batch, Cluster::Push* push,
    Buffers* keep) {
  const std::vector<absl::Span<const float>> values = at.All();
  const std::vector<Batch> parts = CutInTurn(batch, options_.micro_batches);
  const bool in_place = parts.size() == 1 && keep == nullptr;
  Buffers& sums = keep != nullptr ? *keep : sums_;
  sums.resize(values.size());
  squares_.assign(values.size(), 0);

  bool finite = true;
  absl::Status added;
  // Where the whole gradient of a variable is to be.
  const auto place_of = [&](size_t variable) {
    const absl::Span<float> memory = push->Memory(variable);
    if (!memory.empty()) return memory;
    sums[variable].resize(values[variable].size());
    return absl::MakeSpan(sums[variable]);
  };
  const auto hand_over = [&](size_t variable, absl::Span<const float> whole) {
    finite = finite && AllFinite(whole);
    if (!finite) return;
    if (options_.max_global_norm.has_value() && is_in_norm_[variable]) {
      squares_[variable] = SumOfSquares(whole);
    }
    added = push->Add(variable, whole);
  };

  Result result;
  double loss_sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const float weight =
        static_cast<float>(static_cast<double>(parts[i].size()) /
                           static_cast<double>(batch.size()));
    const auto memory_of = [&](size_t variable) {
      return parts.size() == 1 ? push->Memory(variable) : absl::Span<float>();
    };
    const auto take = [&](size_t variable, absl::Span<const float> gradient) {
      if (!added.ok()) return;
      // A model may be the user's own.
      if (variable >= values.size() ||
          gradient.size() != values[variable].size()) {
        added = absl::InvalidArgumentError(absl::StrCat(
            "the model made a gradient of ", gradient.size(),
            " elements for variable ", variable, ", which does not fit"));
        return;
      }
      if (in_place) return hand_over(variable, gradient);
      const absl::Span<float> sum = place_of(variable);
      if (sum.data() != gradient.data()) {
        i == 0 ? SetTo(weight, gradient, sum) : Add(weight, gradient, sum);
      }
      if (i + 1 == parts.size()) hand_over(variable, sum);
    };
    const auto part = model_->ComputeGradients(values, parts[i],
                                               GradientSink(take, memory_of));
    if (!part.ok()) return part.status();
    if (!added.ok()) return added;
    if (!part->finite || !finite) {
      return Result{.not_finite = part->finite ? "a gradient" : "the loss"};
    }
    result.examples += part->examples;
    loss_sum += part->loss_sum;
  }
  if (result.examples > 0) result.loss = loss_sum / result.examples;
  if (options_.max_global_norm.has_value()) {
    double sum = 0;
    for (const double square : squares_) sum += square;
    result.clip_factor = ClipFactor(std::sqrt(sum), *options_.max_global_norm);
  }
  return result;
}

}  // namespace holdfast

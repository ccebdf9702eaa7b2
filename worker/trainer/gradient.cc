// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/gradient.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/norm.h"
#include "worker/model/parameter_arrival.h"

namespace holdfast {
namespace {

// The loops below use pointers: the check in Span's operator[] keeps GCC from
// vectorising them.

// sum = weight x part, which have the same size.
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

// Cuts the batch into `parts` ranges that are computed one after the other: the
// next batch of each range is the range after it, and that of the last range is
// the first range of the batch's next.
std::vector<Batch> CutInTurn(const Batch& batch, uint32_t parts,
                             std::vector<TableBags>* bags) {
  std::vector<Batch> cut = CutBatch(batch, parts);
  if (cut.size() == 1) {
    cut[0].bags = batch.bags;
    cut[0].rows = batch.rows;
  } else {
    CutBags(batch, bags, absl::MakeSpan(cut));
  }
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

// Fills in the values of the variables as they arrive.
class FillingArrival final : public ParameterArrival {
 public:
  // `from` has the values, which go to the elements of `values`. `arrival` may
  // be null; then all have arrived.
  FillingArrival(ParameterArrival* arrival, const Parameters* from,
                 std::vector<absl::Span<const float>>* values)
      : arrival_(arrival),
        from_(*from),
        values_(*values),
        filled_(arrival == nullptr ? 0 : values->size(), false),
        missing_(filled_.size()) {}

  absl::Status Await(size_t variable) override {
    if (missing_ == 0 || filled_[variable]) return absl::OkStatus();
    HOLDFAST_RETURN_IF_ERROR(arrival_->Await(variable));
    values_[variable] = from_.Of(variable);
    filled_[variable] = true;
    --missing_;
    return absl::OkStatus();
  }

  absl::Status AwaitAll() {
    for (size_t i = 0; missing_ > 0; ++i) HOLDFAST_RETURN_IF_ERROR(Await(i));
    return absl::OkStatus();
  }

 private:
  ParameterArrival* const arrival_;
  const Parameters& from_;
  std::vector<absl::Span<const float>>& values_;
  std::vector<bool> filled_;
  size_t missing_;
};

}  // namespace

GradientComputer::GradientComputer(Model* model, const Options& options)
    : model_(model), options_(options) {
  for (const proto::Variable& variable : model->Variables()) {
    is_in_norm_.push_back(!variable.has_moving_average());
  }
  tables_ = model->Tables();
}

absl::StatusOr<GradientComputer::Result> GradientComputer::Compute(
    const Parameters& at, const Batch& batch, Cluster::Push* push, Kept* keep) {
  std::vector<absl::Span<const float>> values =
      batch.arrival == nullptr
          ? at.All()
          : std::vector<absl::Span<const float>>(at.size());
  FillingArrival arrival(batch.arrival, &at, &values);
  std::vector<Batch> parts =
      CutInTurn(batch, options_.micro_batches, &part_bags_);
  if (batch.arrival != nullptr && !parts.empty()) parts[0].arrival = &arrival;
  const bool in_place = parts.size() == 1 && keep == nullptr;
  Kept& sums = keep != nullptr ? *keep : sums_;
  const size_t num_gradients = values.size() + tables_.size();
  sums.gradients.resize(num_gradients);
  sums.ids.resize(tables_.size());
  squares_.assign(num_gradients, 0);

  const auto is_row = [&](size_t place) { return place >= values.size(); };
  const auto size_of = [&](size_t place) {
    return is_row(place) ? batch.rows[place - values.size()].size()
                         : values[place].size();
  };
  bool finite = true;
  absl::Status added;
  const auto memory_of_push = [&](size_t place) {
    return is_row(place) ? absl::Span<float>() : push->Memory(place);
  };
  // Where the whole gradient is written.
  const auto place_of = [&](size_t place) {
    const absl::Span<float> memory = memory_of_push(place);
    if (!memory.empty()) return memory;
    sums.gradients[place].resize(size_of(place));
    return absl::MakeSpan(sums.gradients[place]);
  };
  const auto add_rows = [&](size_t table, absl::Span<const float> gradients) {
    absl::Span<const uint64_t> ids = batch.bags->Of(table).unique();
    if (keep != nullptr) {
      keep->ids[table].assign(ids.begin(), ids.end());
      ids = keep->ids[table];
    }
    return push->AddRows(table, ids, gradients);
  };
  const auto hand_over = [&](size_t place, absl::Span<const float> whole,
                             const GradientFacts& facts) {
    const std::optional<double>& squares = facts.sum_of_squares;
    finite = finite &&
             (squares.has_value() ? std::isfinite(*squares) : AllFinite(whole));
    if (!finite) return;
    if (options_.max_global_norm.has_value() &&
        (is_row(place) || is_in_norm_[place])) {
      squares_[place] = squares.has_value() ? *squares : SumOfSquares(whole);
    }
    added = is_row(place) ? add_rows(place - values.size(), whole)
                          : push->Add(place, whole);
  };

  Result result;
  double loss_sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const float weight =
        static_cast<float>(static_cast<double>(parts[i].size()) /
                           static_cast<double>(batch.size()));
    const auto memory_of = [&](size_t place) {
      return parts.size() == 1 ? memory_of_push(place) : absl::Span<float>();
    };
    const auto take = [&](size_t place, absl::Span<const float> gradient,
                          const GradientFacts& facts) {
      if (added.ok()) added = arrival.AwaitAll();
      if (!added.ok()) return;
      // A model may be the user's own.
      if (place >= num_gradients || gradient.size() != size_of(place)) {
        added = absl::InvalidArgumentError(absl::StrCat(
            "the model made a gradient of ", gradient.size(), " elements for ",
            place >= num_gradients || !is_row(place)
                ? absl::StrCat("variable ", place)
                : absl::StrCat("table ", place - values.size()),
            ", which does not fit"));
        return;
      }
      if (in_place) return hand_over(place, gradient, facts);
      const absl::Span<float> sum = place_of(place);
      if (sum.data() != gradient.data()) {
        i == 0 ? SetTo(weight, gradient, sum) : Add(weight, gradient, sum);
      }
      if (i + 1 == parts.size()) hand_over(place, sum, {});
    };
    HOLDFAST_ASSIGN_OR_RETURN(
        const auto part, model_->ComputeGradients(
                             values, parts[i], GradientSink(take, memory_of)));
    if (added.ok()) added = arrival.AwaitAll();
    if (!added.ok()) return added;
    if (!part.finite || !finite) {
      return Result{.not_finite = part.finite ? "a gradient" : "the loss"};
    }
    result.examples += part.examples;
    loss_sum += part.loss_sum;
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

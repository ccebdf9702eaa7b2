// SPDX-License-Identifier: Apache-2.0
#include "tests/world/job.h"

#include <algorithm>
#include <cmath>

#include "common/tensor/row_bucket.h"
#include "common/tensor/row_ids.h"
#include "glog/logging.h"

namespace holdfast::sim {

size_t NumElements(const proto::Variable& variable) {
  size_t n = 1;
  for (const int64_t d : variable.shape()) n *= d;
  return n;
}

double LossOf(uint64_t step) { return std::abs(static_cast<double>(step) - 4); }

float RateFactorOf(uint64_t step) { return step % 2 == 0 ? 2 : 0.5f; }

proto::Declaration Job::Declared() const {
  proto::Declaration declared = declaration;
  if (tables_alone) declared.clear_variables();
  if (misdeed == Misdeed::kBringsOtherFact) {
    (*declared.mutable_agreed())["length"] = "60000";
  }
  return declared;
}

Batch BatchOfSeat(const Job& job, uint64_t step, uint32_t seat) {
  const bool empty = job.empty_handed && (step + 2 * seat) % 3 == 0;
  return {5 * seat + 7 * step, empty ? 0 : 10 + 3 * seat};
}

Batch BatchOfTicket(const Job& job, uint64_t ticket) {
  const bool empty = job.empty_handed && ticket % 3 == 0;
  return {7 * ticket, empty ? 0 : 10 + 3 * (ticket % 4)};
}

namespace {

// Whether a batch uses a row. All batches of one step use the same rows.
bool Touches(const Batch& batch, uint64_t row) {
  const uint64_t kind = batch.number % 5;
  return kind == 4 || kind % 2 != row % 2;
}

}  // namespace

Values GradientOf(const Job& job, const Batch& batch, const Values& values,
                  float loss_scale) {
  const auto& variables = job.declaration.variables();
  Values gradient;
  for (int v = 0; v < variables.size(); ++v) {
    if (variables[v].has_trainable() && !variables[v].trainable()) continue;
    const std::vector<float>& own = values.at(variables[v].name());
    const std::vector<float>& next =
        values.at(variables[(v + 1) % variables.size()].name());
    std::vector<float>& g = gradient[variables[v].name()];
    g.reserve(own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      const float after = i + 1 < own.size() ? own[i + 1] : next[0];
      g.push_back(
          after * 0.3f +
          1.0f / (static_cast<float>(3 + batch.number + 11 * i) + loss_scale) +
          0.01f * v);
      if (v == 0 && HasRows(job) && !Touches(batch, i / RowLength(job))) {
        g.back() = 0;
      }
    }
  }
  return gradient;
}

void AddRows(proto::Declaration* declaration) {
  const proto::Variable& variable = declaration->variables(0);
  proto::EmbeddingTable& table = *declaration->add_tables();
  table.set_name(kRows);
  table.set_row_length(NumElements(variable) / variable.shape(0));
  table.set_optimizer(variable.optimizer());
  *table.mutable_initializer() = variable.initializer();
  table.set_max_rows_per_push(variable.shape(0));
  if (declaration->has_checkpoints()) {
    declaration->mutable_checkpoints()->set_max_deltas(kMaxDeltas);
  }
}

bool HasRows(const Job& job) { return job.declaration.tables_size() > 0; }

uint32_t RowLength(const Job& job) {
  return job.declaration.tables(0).row_length();
}

std::vector<uint64_t> RowsOn(const Job& job, uint32_t ps, uint32_t num_ps) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; HasRows(job) && id < NumRows(job); ++id) {
    if (BucketsOfPs(ps, num_ps).Contains(BucketOfRow(id))) ids.push_back(id);
  }
  return ids;
}

proto::ReadRange RangeOfRows(const std::vector<uint64_t>& ids) {
  proto::ReadRange range;
  range.set_variable(kRows);
  range.mutable_rows()->set_num_rows(ids.size());
  range.mutable_rows()->set_ids(EncodeRowIds(ids));
  return range;
}

absl::Span<const float> RowOf(const Job& job, const Values& values,
                              uint64_t id) {
  return absl::MakeConstSpan(values.at(job.declaration.variables(0).name()))
      .subspan(id * RowLength(job), RowLength(job));
}

std::vector<TensorPiece> TensorsOf(const Job& job,
                                   const proto::PullRequest& request,
                                   const std::vector<TensorPiece>& answer) {
  if (!job.tables_alone) return answer;
  const size_t row_bytes = RowLength(job) * sizeof(float);
  std::vector<TensorPiece> tensors;
  for (size_t i = 0; i < answer.size(); ++i) {
    const proto::RowIds& rows = request.ranges(static_cast<int>(i)).rows();
    const auto ids = DecodeRowIds(rows.ids(), rows.num_rows());
    CHECK_EQ(answer[i].data.size(), ids->size() * row_bytes);
    for (size_t row = 0; row < ids->size(); ++row) {
      TensorPiece& piece = tensors.emplace_back();
      piece.variable = job.declaration.variables(0).name();
      piece.begin = (*ids)[row] * RowLength(job);
      piece.data = answer[i].data.Sub(row * row_bytes, row_bytes);
    }
  }
  return tensors;
}

std::vector<uint64_t> RowsOfPush(const Job& job, const Values& gradient,
                                 std::vector<uint64_t> ids) {
  ids.erase(std::remove_if(ids.begin(), ids.end(),
                           [&](uint64_t id) {
                             const auto row = RowOf(job, gradient, id);
                             return std::all_of(row.begin(), row.end(),
                                                [](float g) { return g == 0; });
                           }),
            ids.end());
  return ids;
}

bool HasVariable(const Job& job, const std::string& name) {
  const auto& all = job.declaration.variables();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& v) { return v.name() == name; });
}

uint32_t NumRows(const Job& job) {
  return job.declaration.variables(0).shape(0);
}

Values GradientOf(const Job& job, const Given& given) {
  const uint32_t rows = NumRows(job);
  Values gradient;
  std::vector<float>& tickets = gradient[kTickets];
  tickets.assign(rows * 2 * job.tickets(), 0);
  for (uint32_t row = 0; row < rows; ++row) {
    float* const at = &tickets[2 * (row * job.tickets() + given.ticket)];
    at[0] = -1;
    at[1] = -std::ldexp(1.0f, 2 * given.attempt);
  }
  if (HasVariable(job, kCount)) gradient[kCount].assign(3 * rows, -1);
  if (HasVariable(job, kRates)) gradient[kRates].assign(rows, -1);
  if (HasVariable(job, kMomentum)) gradient[kMomentum].assign(rows, -1);
  return gradient;
}

Values MadeOf(const Job& job, const std::vector<Given>& counted) {
  std::vector<float> which(2 * job.tickets(), 0.0f);
  float count = 0, rates = 0, momentum = 0, accumulator = 0;
  for (const Given& by : counted) {
    const float c = by.clip_factor.value_or(0);
    count += c;
    which[2 * by.ticket] = c;
    which[2 * by.ticket + 1] = c * std::ldexp(1.0f, 2 * by.attempt);
    rates += c * std::ldexp(1.0f, -static_cast<int>(by.ticket));
    if (c > 0) {
      accumulator = kMomentumKept * accumulator + 1;
      momentum += kMomentumRate * accumulator;
    }
  }
  const uint32_t rows = NumRows(job);
  Values values;
  for (uint32_t row = 0; row < rows; ++row) {
    std::vector<float>& tickets = values[kTickets];
    tickets.insert(tickets.end(), which.begin(), which.end());
  }
  if (HasVariable(job, kCount)) values[kCount].assign(3 * rows, count);
  if (HasVariable(job, kRates)) values[kRates].assign(rows, rates);
  if (HasVariable(job, kMomentum)) values[kMomentum].assign(rows, momentum);
  return values;
}

int64_t PushBytes(const Job& job) {
  if (job.tables_alone) return 0;
  int64_t elements = 0;
  for (const proto::Variable& variable : job.declaration.variables()) {
    elements += NumElements(variable) / NumRows(job);
  }
  return sizeof(float) * elements;
}

}  // namespace holdfast::sim

// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_row_worker.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cli/zipf.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "proto/cluster.pb.h"

namespace holdfast {
namespace {

constexpr uint64_t kWithoutEnd = 100'000'000'000;
constexpr int kBatches = 16;
// Values in one push of Fill.
constexpr uint64_t kFillValues = uint64_t{1} << 20;
// A prime above the maximum number of rows, so that multiplying by it permutes
// the ids, which spreads frequent ones over the whole range.
constexpr uint64_t kPrime = 2654435761;

absl::Time Late() { return SteadyNow() + absl::Seconds(60); }

// Rows in one push of Fill.
uint64_t RowsToFill(const BenchRowJob& job) {
  return std::max<uint64_t>(kFillValues / job.row_length, 1);
}

proto::Declaration DeclarationOf(const BenchRowJob& job) {
  proto::Declaration declaration;
  proto::Optimizer& optimizer = *declaration.add_optimizers();
  optimizer.set_learning_rate(1e-3f);
  optimizer.mutable_sgd();
  proto::EmbeddingTable& table = *declaration.add_tables();
  table.set_name("table");
  table.set_row_length(job.row_length);
  table.mutable_initializer()->mutable_zeros();
  table.set_max_rows_per_push(
      static_cast<uint32_t>(std::max<uint64_t>(job.ids, RowsToFill(job))));
  declaration.mutable_consistency()->mutable_asynchronous();
  declaration.set_examples(proto::BY_TICKET);
  declaration.set_total_steps(kWithoutEnd);
  declaration.set_total_tickets(kWithoutEnd);
  return declaration;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BenchRowWorker>> BenchRowWorker::Start(
    const ClusterSpec& spec, const TaskId& task, const Credentials& credentials,
    const BenchRowJob& job) {
  Cluster::Options options{spec};
  options.task = task;
  options.credentials = credentials;
  options.job_digest = "bench";
  options.data_digest = "bench";
  options.connect_timeout = absl::Seconds(60);
  HOLDFAST_ASSIGN_OR_RETURN(auto cluster, Cluster::Connect(std::move(options)));
  absl::Status status = cluster->Declare(DeclarationOf(job), Late());
  if (status.ok()) status = cluster->AwaitVariables(Late());
  if (!status.ok()) return status;
  std::unique_ptr<BenchRowWorker> worker(
      new BenchRowWorker(std::move(cluster), job));
  status = worker->Pull();
  if (!status.ok()) return status;
  return worker;
}

BenchRowWorker::BenchRowWorker(std::unique_ptr<Cluster> cluster,
                               const BenchRowJob& job)
    : cluster_(std::move(cluster)), job_(job), batches_(kBatches) {
  ZipfRanks ranks(job.rows, job.zipf, /*seed=*/1);
  for (Batch& batch : batches_) {
    batch.ids.resize(job.ids);
    for (uint64_t& id : batch.ids) id = ranks.Next() * kPrime % job.rows;
    batch.rows.Assign(batch.ids);
  }
  const size_t num_values = size_t{job.ids} * job.row_length;
  std::minstd_rand random(1);
  gradients_.resize(num_values);
  for (float& value : gradients_) {
    value = static_cast<float>(random() % 20001) * 1e-4f - 1;
  }
  sums_.resize(num_values);
  values_.resize(num_values);
  this_batch_.Assign(batches_[0].ids);
}

absl::Status BenchRowWorker::Fill() {
  const uint64_t chunk = RowsToFill(job_);
  const std::vector<float> zeros(chunk * job_.row_length);
  std::vector<uint64_t> ids;
  for (uint64_t begin = 0; begin < job_.rows; begin += chunk) {
    ids.resize(std::min(chunk, job_.rows - begin));
    std::iota(ids.begin(), ids.end(), begin);
    absl::Status status = TakeTicket();
    if (status.ok()) status = Apply(ids, zeros.data(), nullptr);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status BenchRowWorker::TakeTicket() {
  HOLDFAST_ASSIGN_OR_RETURN(auto ticket,
                            cluster_->StartTakeTicket()->Await(Late()));
  if (!ticket.has_value()) {
    return absl::InternalError("a job without end has no more tickets");
  }
  ticket_ = *std::move(ticket);
  return absl::OkStatus();
}

absl::Status BenchRowWorker::Push() {
  return Apply(NextBatch().rows.unique(), gradients_.data(), nullptr);
}

absl::Status BenchRowWorker::Pull() {
  parameters_.WantRows(0, NextBatch().rows.unique());
  return cluster_->StartPull(GlobalStep(0), &parameters_)->Await(Late());
}

absl::Status BenchRowWorker::PushPull() {
  const absl::Span<const uint64_t> pushed = NextBatch().rows.unique();
  parameters_.WantRows(0, NextBatch().rows.unique());
  return Apply(pushed, gradients_.data(), &parameters_);
}

void BenchRowWorker::Assign() { assigned_.Assign(NextBatch().ids); }

void BenchRowWorker::Sum() {
  NextBatch().rows.Sum(gradients_.data(), job_.row_length, sums_.data());
}

void BenchRowWorker::Spread() {
  NextBatch().rows.Spread(sums_.data(), job_.row_length, values_.data());
}

absl::Status BenchRowWorker::TrainBatch() {
  next_batch_.Assign(NextBatch().ids);
  this_batch_.Sum(gradients_.data(), job_.row_length, sums_.data());
  parameters_.WantRows(0, next_batch_.unique());
  HOLDFAST_RETURN_IF_ERROR(
      Apply(this_batch_.unique(), sums_.data(), &parameters_));
  next_batch_.Spread(parameters_.RowsOf(0).data(), job_.row_length,
                     values_.data());
  std::swap(this_batch_, next_batch_);
  return absl::OkStatus();
}

double BenchRowWorker::unique_ids() const {
  double sum = 0;
  for (const Batch& batch : batches_) {
    sum += static_cast<double>(batch.rows.unique().size());
  }
  return sum / kBatches;
}

const BenchRowWorker::Batch& BenchRowWorker::NextBatch() {
  turn_ = (turn_ + 1) % batches_.size();
  return batches_[turn_];
}

absl::Status BenchRowWorker::Apply(absl::Span<const uint64_t> ids,
                                   const float* gradients, Parameters* next) {
  const auto push = cluster_->StartPush(*ticket_, parameters_);
  absl::Status status = push->AddRows(
      0, ids, absl::MakeConstSpan(gradients, ids.size() * job_.row_length));
  Contribution contribution;
  contribution.examples = 1;
  if (status.ok()) status = push->Contribute(contribution, next);
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto outcome, push->Await(Late()));
  if (outcome.verdict == proto::ACCEPTED) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the verdict on a push was ", proto::Verdict_Name(outcome.verdict)));
}

}  // namespace holdfast

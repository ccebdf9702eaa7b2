// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_worker.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/bench_limits.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

constexpr uint64_t kWithoutEnd = 1000000000000000;

absl::Time Late() { return SteadyNow() + absl::Seconds(60); }

// The encoding for its name in a job file, in lower case.
proto::Encoding EncodingOf(const std::string& codec) {
  proto::Encoding encoding = proto::EXACT;
  proto::Encoding_Parse(absl::AsciiStrToUpper(codec), &encoding);
  return encoding;
}

proto::Declaration DeclarationOf(const BenchJob& job) {
  proto::Declaration declaration;
  proto::Variable& variable = *declaration.add_variables();
  variable.set_name("tensor");
  variable.add_shape(static_cast<int64_t>(job.bytes / sizeof(float)));
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  variable.mutable_partitioner()->mutable_fixed_shards()->set_shards(
      job.shards);
  const proto::Encoding encoding = EncodingOf(job.codec);
  if (encoding != proto::EXACT) {
    proto::Compression& compression = *variable.mutable_compression();
    compression.set_push(encoding);
    // The others are only for pushes.
    if (encoding == proto::FLOAT16 || encoding == proto::BFLOAT16) {
      compression.set_pull(encoding);
    }
  }
  proto::Optimizer& optimizer = *declaration.add_optimizers();
  optimizer.set_learning_rate(1e-3f);
  if (job.optimizer == "momentum") {
    optimizer.mutable_momentum()->set_momentum(0.9f);
  } else if (job.optimizer == "adam") {
    optimizer.mutable_adam();
  } else {
    optimizer.mutable_sgd();
  }
  declaration.set_total_steps(kWithoutEnd);
  if (job.asynchronous) {
    declaration.mutable_consistency()->mutable_asynchronous();
    declaration.set_examples(proto::BY_TICKET);
    declaration.set_total_tickets(kWithoutEnd);
  } else {
    declaration.mutable_consistency()->mutable_synchronous();
    declaration.set_examples(proto::BY_STEP);
  }
  return declaration;
}

// Various values, because codecs may depend on them.
std::vector<float> MakeGradient(uint64_t size) {
  std::minstd_rand random(1);
  std::vector<float> gradient(size);
  for (float& value : gradient) {
    value = static_cast<float>(random() % 20001) * 1e-4f - 1;
  }
  return gradient;
}

absl::Status CheckAccepted(proto::Verdict verdict) {
  if (verdict == proto::ACCEPTED) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the verdict on a push was ", proto::Verdict_Name(verdict)));
}

}  // namespace

std::vector<std::string> BenchCodecs() {
  std::vector<std::string> codecs;
  const auto& encodings = *proto::Encoding_descriptor();
  for (int i = 0; i < encodings.value_count(); ++i) {
    codecs.push_back(absl::AsciiStrToLower(encodings.value(i)->name()));
  }
  return codecs;
}

std::vector<std::string> BenchOptimizers() {
  return {"sgd", "momentum", "adam"};
}

absl::StatusOr<std::unique_ptr<BenchWorker>> BenchWorker::Start(
    const ClusterSpec& spec, const TaskId& task, const Credentials& credentials,
    const BenchJob& job) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto seat, spec.ReplicaIndex(task));
  Cluster::Options options{spec};
  options.task = task;
  options.credentials = credentials;
  options.same_host = job.same_host;
  options.job_digest = "bench";
  options.data_digest = "bench";
  options.connect_timeout = absl::Seconds(60);
  HOLDFAST_ASSIGN_OR_RETURN(auto cluster, Cluster::Connect(std::move(options)));
  std::unique_ptr<BenchWorker> worker(
      new BenchWorker(std::move(cluster), seat, job.bytes / sizeof(float)));
  absl::Status status = absl::OkStatus();
  if (seat == 0) {
    status = worker->cluster().Declare(DeclarationOf(job), Late());
  }
  if (status.ok()) status = worker->cluster().AwaitVariables(Late());
  if (status.ok()) status = worker->Pull();
  if (!status.ok()) return status;
  return worker;
}

BenchWorker::BenchWorker(std::unique_ptr<Cluster> cluster, uint32_t seat,
                         uint64_t size)
    : cluster_(std::move(cluster)),
      seat_(seat),
      gradient_(MakeGradient(size)) {}

absl::Status BenchWorker::TakeTicket() {
  if (request_ == nullptr) PrefetchTicket();
  auto ticket = request_->Await(Late());
  request_.reset();
  if (!ticket.ok()) return ticket.status();
  if (!ticket->has_value()) {
    return absl::InternalError("a job without end has no more tickets");
  }
  ticket_ = **std::move(ticket);
  return absl::OkStatus();
}

void BenchWorker::PrefetchTicket() { request_ = cluster_->StartTakeTicket(); }

void BenchWorker::CopyValues() {
  copy_.resize(gradient_.size());
  now_.SetMemory({absl::MakeSpan(copy_)});
}

absl::Status BenchWorker::Push() {
  const auto push = cluster_->StartPush(*ticket_, now_);
  return Apply(push.get(), gradient_, nullptr);
}

absl::Status BenchWorker::WriteInPlace() {
  written_ = cluster_->StartPush(*ticket_, now_);
  const absl::Span<float> memory = written_->Memory(0);
  std::copy_n(gradient_.begin(), memory.size(), memory.begin());
  written_gradient_ = memory;
  if (memory.empty()) written_gradient_ = gradient_;
  return absl::OkStatus();
}

absl::Status BenchWorker::PushWritten() {
  absl::Status status = Apply(written_.get(), written_gradient_, nullptr);
  written_.reset();
  return status;
}

absl::Status BenchWorker::ReadInPlace() {
  absl::Status status =
      cluster_->StartPull(GlobalStep(0), &in_place_)->Await(Late());
  if (status.ok()) sum_ += SumOf(in_place_.Of(0));
  in_place_.Release();
  return status;
}

absl::Status BenchWorker::Pull() {
  return cluster_->StartPull(GlobalStep(0), &now_)->Await(Late());
}

absl::Status BenchWorker::PushPull() {
  const auto push = cluster_->StartPush(*ticket_, now_);
  return Apply(push.get(), gradient_, &now_);
}

absl::Status BenchWorker::Apply(Cluster::Push* push,
                                absl::Span<const float> gradient,
                                Parameters* next) {
  absl::Status status = push->Add(0, gradient);
  Contribution contribution;
  contribution.examples = 1;
  if (status.ok()) status = push->Contribute(contribution, next);
  if (!status.ok()) return status;
  const auto outcome = push->Await(Late());
  return outcome.ok() ? CheckAccepted(outcome->verdict) : outcome.status();
}

absl::Status BenchWorker::Step() {
  const auto push = cluster_->StartPush(now_.version);
  absl::Status status = push->Add(0, gradient_);
  if (!status.ok()) return status;
  Contribution contribution;
  contribution.seat = seat_;
  contribution.examples = 1;
  status = push->Contribute(contribution, &next_);
  if (!status.ok()) return status;
  HOLDFAST_ASSIGN_OR_RETURN(const auto outcome, push->Await(Late()));
  std::swap(now_, next_);
  next_.Release();
  return CheckAccepted(outcome.verdict);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/job/task_id.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

double PerSecond(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

void AddStaleness(const proto::GetStatusResponse& status,
                  proto::TrainingResult* result) {
  proto::TrainingResult::Staleness* staleness = result->mutable_staleness();
  double sum = 0;
  double pushes = 0;
  for (const proto::StalenessCount& count : status.staleness()) {
    sum += static_cast<double>(count.staleness()) * count.pushes();
    pushes += count.pushes();
    staleness->set_max(count.staleness());
    auto* copy = staleness->add_counts();
    copy->set_staleness(count.staleness());
    copy->set_pushes(count.pushes());
  }
  if (pushes > 0) staleness->set_mean(sum / pushes);
}

absl::Status WriteSynced(const std::string& path, const std::string& content) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  }
  const auto close_file = absl::MakeCleanup([fd] { close(fd); });
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t size =
        write(fd, content.data() + written, content.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    }
    written += size;
  }
  if (fsync(fd) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot sync ", path));
  }
  return absl::OkStatus();
}

}  // namespace

void AddDeclaration(const proto::Declaration& declaration,
                    proto::TrainingResult* result) {
  proto::TrainingResult::Consistency* consistency =
      result->mutable_consistency();
  consistency->set_examples(
      declaration.examples() == proto::BY_TICKET ? "by ticket" : "by step");
  if (declaration.consistency().has_asynchronous()) {
    const auto& asynchronous = declaration.consistency().asynchronous();
    consistency->set_mode("asynchronous");
    consistency->set_pipeline_depth(asynchronous.pipeline_depth());
    if (asynchronous.has_staleness_bound()) {
      consistency->set_staleness_bound(asynchronous.staleness_bound());
    }
    return;
  }
  const auto& synchronous = declaration.consistency().synchronous();
  consistency->set_mode("synchronous");
  consistency->set_replicas_to_aggregate(synchronous.replicas_to_aggregate());
  consistency->set_total_num_replicas(synchronous.total_num_replicas());
  consistency->set_aggregation(
      proto::Consistency::Aggregation_Name(synchronous.aggregation()));
}

void AddEvaluation(const EvaluationScores& scores,
                   proto::TrainingResult* result) {
  const proto::EvaluationResult& test = scores.result;
  result->set_test_loss(test.loss());
  if (test.has_accuracy()) result->set_test_accuracy(test.accuracy());
  if (test.has_mean_absolute_error()) {
    result->set_test_mean_absolute_error(test.mean_absolute_error());
  }
  if (test.has_mean_squared_error()) {
    result->set_test_mean_squared_error(test.mean_squared_error());
  }
  if (test.has_top_k_accuracy()) {
    result->set_test_top_k_accuracy(test.top_k_accuracy());
  }
  if (test.has_auc()) result->set_test_auc(test.auc());
  if (test.has_calibration()) {
    result->set_test_calibration(test.calibration());
  }
  result->mutable_test_by_class()->Assign(scores.by_class.begin(),
                                          scores.by_class.end());
}

void AddStatus(const proto::GetStatusResponse& status,
               proto::TrainingResult* result) {
  result->set_global_step(status.global_step());
  result->set_examples(status.examples());
  result->set_train_loss(status.train_loss());
  const double seconds = status.training_seconds();
  result->set_wall_seconds(seconds);
  result->set_steps_per_second(PerSecond(status.global_step(), seconds));
  result->set_examples_per_second(PerSecond(status.examples(), seconds));
  const proto::PushCounts& counts = status.pushes();
  proto::TrainingResult::Pushes* pushes = result->mutable_pushes();
  pushes->set_accepted(counts.accepted());
  pushes->set_not_finite(counts.not_finite());
  pushes->set_stale(counts.stale());
  pushes->set_duplicate(counts.duplicate());
  pushes->set_fenced(counts.fenced());
  pushes->set_aborted(counts.aborted());
  for (const proto::WorkerCounts& counts : status.workers()) {
    proto::TrainingResult::Worker* worker = result->add_by_worker();
    worker->set_task(
        TaskId{counts.worker().job(), counts.worker().index()}.ToString());
    worker->set_pushes(counts.pushes());
    worker->set_examples(counts.examples());
    for (const proto::TaskStatus& task : status.tasks()) {
      if (!task.has_input_wait() ||
          task.task().job() != counts.worker().job() ||
          task.task().index() != counts.worker().index()) {
        continue;
      }
      worker->set_input_wait(task.input_wait().overall());
    }
  }
  if (status.generation() > 0) result->set_recoveries(status.generation() - 1);
  if (status.staleness_size() > 0) AddStaleness(status, result);
}

absl::StatusOr<std::string> ResultToJson(
    const google::protobuf::Message& result) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(result, &json, options);
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("cannot write the result as JSON: ", status.ToString()));
  }
  return json;
}

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content) {
  const std::string aside = absl::StrCat(path, ".tmp");
  absl::Status status = WriteSynced(aside, content);
  if (status.ok() && rename(aside.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(
        errno, absl::StrCat("cannot rename ", aside, " to ", path));
  }
  if (!status.ok()) unlink(aside.c_str());
  return status;
}

}  // namespace holdfast

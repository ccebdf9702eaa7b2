// SPDX-License-Identifier: Apache-2.0

// Figures with which every metric has a value.
#ifndef HOLDFAST_PS_SERVER_METRICS_TESTING_FULL_FIGURES_H_
#define HOLDFAST_PS_SERVER_METRICS_TESTING_FULL_FIGURES_H_

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/task_id.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "ps_server/metrics/ps_metrics.h"
#include "ps_server/service/rpc_figures.h"
#include "ps_server/shard/shard_figures.h"

namespace holdfast {

// The status of a synchronous or an asynchronous job with `ps` ps and `workers`
// workers. Every worker waits and is slow, so that no other status of so many
// tasks has more series.
inline proto::GetStatusResponse FullStatus(bool asynchronous, uint32_t ps,
                                           uint32_t workers) {
  proto::GetStatusResponse status;
  status.set_generation(2);
  status.mutable_state()->set_phase(proto::TRAINING);
  status.set_global_step(1000);
  status.set_total_steps(4000);
  status.set_durable_step(900);
  status.set_examples(64000);
  status.mutable_pushes()->set_accepted(2000);
  status.mutable_pushes()->set_stale(5);
  status.mutable_pushes()->set_not_finite(1);
  status.set_train_loss(0.5);
  status.set_training_seconds(12.5);
  status.set_steps_per_second(80);
  status.set_examples_per_second(5120);
  status.set_seconds_since_progress(0.25);
  status.set_lease_seconds(10);
  proto::EvaluationResult& evaluation = *status.mutable_evaluation();
  evaluation.set_step(800);
  evaluation.set_loss(0.625);
  evaluation.set_accuracy(0.75);
  evaluation.set_mean_absolute_error(0.125);
  proto::CheckpointCounts& checkpoints = *status.mutable_checkpoints();
  checkpoints.set_written(9);
  checkpoints.set_failed(1);
  checkpoints.set_last_seconds(1.5);
  checkpoints.set_last_bytes(123456);
  checkpoints.set_age_seconds(20);
  if (asynchronous) {
    for (const uint64_t staleness : {0, 1, 3, 100}) {
      proto::StalenessCount& count = *status.add_staleness();
      count.set_staleness(staleness);
      count.set_pushes(10);
    }
  } else {
    for (proto::DurationHistogram* histogram :
         {status.mutable_step_times()->mutable_collect(),
          status.mutable_step_times()->mutable_commit()}) {
      for (int i = 0; i < 20; ++i) {
        histogram->add_bounds(0.001 * (1 << i));
        histogram->add_counts(10 * i);
      }
      histogram->add_counts(1000);
      histogram->set_sum_seconds(30);
    }
  }
  const auto add = [&](const std::string& job, uint32_t index) -> auto& {
    proto::TaskStatus& task = *status.add_tasks();
    task.mutable_task()->set_job(job);
    task.mutable_task()->set_index(index);
    task.set_alive(true);
    task.set_silent_seconds(1);
    return task;
  };
  for (uint32_t i = 0; i < ps; ++i) add(kPsJob, i);
  status.mutable_tasks(0)->clear_silent_seconds();
  for (uint32_t i = 0; i < workers; ++i) {
    // A chief is one of the workers.
    proto::TaskStatus& task =
        i == 0 ? add(kChiefJob, 0) : add(kWorkerJob, i - 1);
    task.mutable_worker()->set_waiting_for("verdict");
    task.mutable_worker()->set_waiting_seconds(2);
    task.mutable_pace()->set_seconds_per_push(0.125);
    task.mutable_pace()->set_slow(true);
  }
  return status;
}

inline ShardFigures FullShardFigures() {
  ShardFigures figures;
  figures.values = 1000;
  figures.slots = 2000;
  figures.versions = 1500;
  figures.pushes = 500;
  figures.limit = 10000;
  figures.updates = 100;
  figures.update_time = absl::Milliseconds(250);
  figures.received = {1, 2, 3, 4, 5};
  figures.sent = {6, 7, 8, 0, 0};
  figures.saves = 3;
  figures.failed_saves = 1;
  figures.save_time = absl::Seconds(2);
  figures.save_bytes = 3000;
  return figures;
}

// For each method of the services in proto/, two calls of 3 s, one of which
// failed.
inline RpcFigures FullRpcFigures() {
  RpcFigures figures;
  for (const google::protobuf::FileDescriptor* file :
       {proto::GetStatusRequest::descriptor()->file(),
        proto::PushRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        MethodFigures& method =
            figures[absl::StrCat("/", file->service(s)->full_name(), "/",
                                 file->service(s)->method(m)->name())];
        method.calls = 2;
        method.failed = 1;
        method.total_time = absl::Seconds(6);
        method.handler_time = absl::Seconds(1);
      }
    }
  }
  return figures;
}

// The snapshot of ps 0.
inline PsSnapshot FullSnapshot(bool asynchronous, uint32_t ps,
                               uint32_t workers) {
  PsSnapshot snapshot;
  snapshot.task = {kPsJob, 0};
  snapshot.shard = FullShardFigures();
  snapshot.rpc = FullRpcFigures();
  snapshot.status = FullStatus(asynchronous, ps, workers);
  return snapshot;
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_TESTING_FULL_FIGURES_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_METRICS_JOB_METRICS_H_
#define HOLDFAST_PS_SERVER_METRICS_JOB_METRICS_H_

#include "common/metrics/metrics.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// Adds what the coordinator knows about the job: the metrics whose names begin
// with holdfast_job_ (docs/operating/metrics.md). They are made from `status`,
// the message that the status page and `holdfast status` show, so that the
// numbers agree.
//
// Each worker has three series, whatever it does; one more is added for each
// slow worker, for at most kMaxSlowWorkers workers.
void AddJobMetrics(const proto::GetStatusResponse& status, Metrics* metrics);

inline constexpr int kMaxSlowWorkers = 4;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_JOB_METRICS_H_

#ifndef HOLDFAST_PS_SERVER_METRICS_JOB_METRICS_H_
#define HOLDFAST_PS_SERVER_METRICS_JOB_METRICS_H_

#include "common/metrics/metrics.h"
#include "proto/coordinator.pb.h"

namespace holdfast {

// What the coordinator knows of the job: the metrics that begin with
// holdfast_job_ (docs/operating/metrics.md), made from the message that the
// status page and `holdfast status` show, so that their numbers agree.
//
// Of each worker there are three series, whatever it does; slow workers have
// one more, at most kMaxSlowWorkers of them.
void AddJobMetrics(const proto::GetStatusResponse& status, Metrics* metrics);

inline constexpr int kMaxSlowWorkers = 4;

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_METRICS_JOB_METRICS_H_

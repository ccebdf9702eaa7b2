// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_BENCH_SAMPLES_H_
#define HOLDFAST_CLI_BENCH_SAMPLES_H_

#include <sys/types.h>

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/benchmark.pb.h"

namespace holdfast {

// Runs `call` and appends its duration, measured by a monotonic clock, to
// `samples` unless that is null.
absl::Status Timed(const std::function<absl::Status()>& call,
                   std::vector<absl::Duration>* samples);

// Total user and system time that the processes have used so far. Errors: those
// of the system, when there is no such process.
absl::StatusOr<absl::Duration> CpuTimeOf(const std::vector<pid_t>& pids);

// Sets rounds, median_us, p90_us and p99_us of `result`. A quantile is the
// sample of that rank, rounded up, so that it is a measured value. There must
// be at least one sample.
void Summarize(std::vector<absl::Duration> samples,
               proto::BenchmarkResult* result);

// Sets gb_per_s from `bytes` and median_us.
void SetRate(proto::BenchmarkResult* result);

// Sets rows_per_second and ns_per_row from `rows` and median_us, and
// cpu_ns_per_row from `rows` and cpu_us.
void SetRowCosts(proto::BenchmarkResult* result);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_SAMPLES_H_

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

// Runs `call` and appends how long it took, by a clock that nobody sets, to
// `samples`. Null: it is not wanted.
absl::Status Timed(const std::function<absl::Status()>& call,
                   std::vector<absl::Duration>* samples);

// User and system time that the processes have used so far, all together.
// Errors: as the system says, when there is no such process.
absl::StatusOr<absl::Duration> CpuTimeOf(const std::vector<pid_t>& pids);

// Sets rounds, median_us, p90_us and p99_us of `result`. A quantile is the
// sample of that rank, rounded up, so that it is one that was measured. There
// must be a sample.
void Summarize(std::vector<absl::Duration> samples,
               proto::BenchmarkResult* result);

// Sets gb_per_s from `bytes` and median_us.
void SetRate(proto::BenchmarkResult* result);

// Sets rows_per_second and ns_per_row from `rows` and median_us, and
// cpu_ns_per_row from `rows` and cpu_us.
void SetRowCosts(proto::BenchmarkResult* result);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_BENCH_SAMPLES_H_

// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_samples.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace holdfast {

absl::Status Timed(const std::function<absl::Status()>& call,
                   std::vector<absl::Duration>* samples) {
  const auto begun = std::chrono::steady_clock::now();
  absl::Status status = call();
  if (status.ok() && samples != nullptr) {
    samples->push_back(
        absl::FromChrono(std::chrono::steady_clock::now() - begun));
  }
  return status;
}

absl::StatusOr<absl::Duration> CpuTimeOf(const std::vector<pid_t>& pids) {
  absl::Duration sum;
  for (const pid_t pid : pids) {
    clockid_t clock;
    timespec used;
    // Unlike other functions, this one returns the error.
    int error = clock_getcpuclockid(pid, &clock);
    if (error == 0 && clock_gettime(clock, &used) != 0) error = errno;
    if (error != 0) {
      return absl::ErrnoToStatus(
          error, absl::StrCat("cannot tell how much CPU time process ", pid,
                              " has used"));
    }
    sum += absl::DurationFromTimespec(used);
  }
  return sum;
}

void Summarize(std::vector<absl::Duration> samples,
               proto::BenchmarkResult* result) {
  CHECK(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * samples.size()));
    return absl::ToDoubleMicroseconds(samples[rank - 1]);
  };
  result->set_rounds(samples.size());
  result->set_median_us(quantile(0.5));
  result->set_p90_us(quantile(0.9));
  result->set_p99_us(quantile(0.99));
}

void SetRate(proto::BenchmarkResult* result) {
  result->set_gb_per_s(result->bytes() / result->median_us() / 1e3);
}

void SetRowCosts(proto::BenchmarkResult* result) {
  result->set_rows_per_second(result->rows() / result->median_us() * 1e6);
  result->set_ns_per_row(result->median_us() / result->rows() * 1e3);
  result->set_cpu_ns_per_row(result->cpu_us() / result->rows() * 1e3);
}

}  // namespace holdfast

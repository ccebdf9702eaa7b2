// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_METRICS_METRICS_H_
#define HOLDFAST_COMMON_METRICS_METRICS_H_

#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// A snapshot of figures as Prometheus metrics, and their text format
// (docs/operating/metrics.md).
//
// A snapshot is made at each scrape from the counts that the figures' owners
// keep; no metric is registered, and the code here runs only at a scrape.
// Adding a metric again with other labels adds a series to it.
//
// Thread-compatible.
class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // A cumulative histogram, as in Prometheus: counts[i] values are at most
  // bounds[i], and the last of `counts` is the number of all values.
  struct Distribution {
    std::vector<double> bounds;
    std::vector<uint64_t> counts;
    double sum = 0;
  };

  // In the following methods, `name` and `help` are the same for all series of
  // a metric.

  // Adds a figure that only grows while the process lives. `name` must end in
  // _total.
  void Counter(absl::string_view name, absl::string_view help, double value,
               const Labels& labels = {});
  void Gauge(absl::string_view name, absl::string_view help, double value,
             const Labels& labels = {});
  // Adds a summary: how often something happened, and the sum of its
  // measurements.
  void Summary(absl::string_view name, absl::string_view help, uint64_t count,
               double sum, const Labels& labels = {});
  void Histogram(absl::string_view name, absl::string_view help,
                 const Distribution& distribution, const Labels& labels = {});

  // The number of series as Prometheus counts them: each bucket, sum and count
  // is one.
  size_t num_series() const;

  // The snapshot in Prometheus's text format, version 0.0.4.
  std::string ToText() const;
  // The media type of the text format.
  static constexpr char kContentType[] =
      "text/plain; version=0.0.4; charset=utf-8";

 private:
  prometheus::ClientMetric& Add(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type,
                                const Labels& labels);

  std::vector<prometheus::MetricFamily> families_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

// Returns `distribution` with at most `max_bounds` of its bounds, evenly chosen
// and including the last.
Metrics::Distribution Thin(const Metrics::Distribution& distribution,
                           size_t max_bounds);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_METRICS_METRICS_H_

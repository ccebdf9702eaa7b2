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

// A snapshot of figures as Prometheus's metrics, and the text in which it reads
// them (docs/operating/metrics.md).
//
// Made at each scrape from what the owners of figures have counted; nothing is
// registered, and nothing here is touched while the job works. A metric that is
// added again, with other labels, adds a series to it.
//
// Thread-compatible.
class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // By bounds, as Prometheus counts: counts[i] at most bounds[i], the last of
  // counts all.
  struct Distribution {
    std::vector<double> bounds;
    std::vector<uint64_t> counts;
    double sum = 0;
  };

  // All of these: `name` and `help` are those of the metric's other series.

  // What only grows while the process lives. `name` ends in _total.
  void Counter(absl::string_view name, absl::string_view help, double value,
               const Labels& labels = {});
  void Gauge(absl::string_view name, absl::string_view help, double value,
             const Labels& labels = {});
  // How often something happened, and the sum of what it took.
  void Summary(absl::string_view name, absl::string_view help, uint64_t count,
               double sum, const Labels& labels = {});
  void Histogram(absl::string_view name, absl::string_view help,
                 const Distribution& distribution, const Labels& labels = {});

  // As Prometheus counts: each bucket, sum and count is a series.
  size_t num_series() const;

  // In the text format, version 0.0.4.
  std::string ToText() const;
  // Its media type.
  static constexpr char kContentType[] =
      "text/plain; version=0.0.4; charset=utf-8";

 private:
  prometheus::ClientMetric& Add(absl::string_view name, absl::string_view help,
                                prometheus::MetricType type,
                                const Labels& labels);

  std::vector<prometheus::MetricFamily> families_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

// As Distribution::counts and bounds, but with at most `max_bounds` of the
// bounds, evenly chosen, the last among them.
Metrics::Distribution Thin(const Metrics::Distribution& distribution,
                           size_t max_bounds);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_METRICS_METRICS_H_

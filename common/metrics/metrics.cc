// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>

#include "glog/logging.h"

namespace holdfast {

prometheus::ClientMetric& Metrics::Add(absl::string_view name,
                                       absl::string_view help,
                                       prometheus::MetricType type,
                                       const Labels& labels) {
  const auto [place, is_first] =
      by_name_.try_emplace(std::string(name), families_.size());
  if (is_first) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = std::string(name);
    family.help = std::string(help);
    family.type = type;
  }
  prometheus::MetricFamily& family = families_[place->second];
  CHECK(family.type == type) << name << " has two types";
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  for (const auto& [label, value] : labels) {
    metric.label.push_back({label, value});
  }
  return metric;
}

void Metrics::Counter(absl::string_view name, absl::string_view help,
                      double value, const Labels& labels) {
  Add(name, help, prometheus::MetricType::Counter, labels).counter.value =
      value;
}

void Metrics::Gauge(absl::string_view name, absl::string_view help,
                    double value, const Labels& labels) {
  Add(name, help, prometheus::MetricType::Gauge, labels).gauge.value = value;
}

void Metrics::Summary(absl::string_view name, absl::string_view help,
                      uint64_t count, double sum, const Labels& labels) {
  auto& summary =
      Add(name, help, prometheus::MetricType::Summary, labels).summary;
  summary.sample_count = count;
  summary.sample_sum = sum;
}

void Metrics::Histogram(absl::string_view name, absl::string_view help,
                        const Distribution& distribution,
                        const Labels& labels) {
  auto& histogram =
      Add(name, help, prometheus::MetricType::Histogram, labels).histogram;
  histogram.sample_sum = distribution.sum;
  const size_t finite =
      std::min(distribution.bounds.size(), distribution.counts.size());
  for (size_t i = 0; i < finite; ++i) {
    histogram.bucket.push_back(
        {distribution.counts[i], distribution.bounds[i]});
  }
  histogram.sample_count =
      distribution.counts.empty() ? 0 : distribution.counts.back();
  histogram.bucket.push_back(
      {histogram.sample_count, std::numeric_limits<double>::infinity()});
}

size_t Metrics::num_series() const {
  size_t series = 0;
  for (const prometheus::MetricFamily& family : families_) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      switch (family.type) {
        case prometheus::MetricType::Summary:
          series += 2;
          break;
        case prometheus::MetricType::Histogram:
          series += metric.histogram.bucket.size() + 2;
          break;
        default:
          series += 1;
      }
    }
  }
  return series;
}

std::string Metrics::ToText() const {
  return prometheus::TextSerializer().Serialize(families_);
}

Metrics::Distribution Thin(const Metrics::Distribution& distribution,
                           size_t max_bounds) {
  const size_t bounds = distribution.bounds.size();
  if (bounds <= max_bounds || max_bounds == 0 ||
      distribution.counts.size() != bounds + 1) {
    return distribution;
  }
  Metrics::Distribution thinned;
  thinned.sum = distribution.sum;
  for (size_t i = 1; i <= max_bounds; ++i) {
    const size_t from = i * bounds / max_bounds - 1;
    thinned.bounds.push_back(distribution.bounds[from]);
    thinned.counts.push_back(distribution.counts[from]);
  }
  thinned.counts.push_back(distribution.counts.back());
  return thinned;
}

}  // namespace holdfast

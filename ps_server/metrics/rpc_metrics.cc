// SPDX-License-Identifier: Apache-2.0
#include "ps_server/metrics/rpc_metrics.h"

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace holdfast {
namespace {

constexpr absl::string_view kOwnSeries[] = {
    "Apply", "Commit",   "Contribute", "Pull",
    "Push",  "PushPull", "RenewLease", "TakeTicket",
};
constexpr char kOther[] = "other";

std::string LabelOf(absl::string_view full_name) {
  const absl::string_view method = full_name.substr(full_name.rfind('/') + 1);
  for (const absl::string_view own : kOwnSeries) {
    if (method == own) return std::string(own);
  }
  return kOther;
}

}  // namespace

void AddRpcMetrics(const RpcFigures& figures, Metrics* metrics) {
  std::map<std::string, MethodFigures> by_label;
  uint64_t failed = 0;
  absl::Duration handler_time;
  for (const auto& [name, method] : figures) {
    MethodFigures& sum = by_label[LabelOf(name)];
    sum.calls += method.calls;
    sum.total_time += method.total_time;
    handler_time += method.handler_time;
    failed += method.failed;
  }
  for (const auto& [label, method] : by_label) {
    metrics->Summary("holdfast_rpc_seconds",
                     "Calls that were answered, and the time from the request "
                     "to the answer, parking included.",
                     method.calls, absl::ToDoubleSeconds(method.total_time),
                     {{"method", label}});
  }
  metrics->Counter(
      "holdfast_debug_rpc_handler_seconds_total",
      "The part of the time of calls spent on a thread that serves calls.",
      absl::ToDoubleSeconds(handler_time));
  metrics->Counter("holdfast_rpc_failed_total",
                   "Calls that were answered with an error.", failed);
}

}  // namespace holdfast

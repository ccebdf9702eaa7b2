// SPDX-License-Identifier: Apache-2.0
#include "ps_server/own_trace.h"

#include <optional>
#include <utility>

#include "common/trace/trace_parts.h"
#include "proto/trace.pb.h"

namespace holdfast {

void OwnTrace::Look() {
  const auto order = coordinator_.trace_order().value_or(
      proto::TraceOrder::default_instance());
  const uint64_t wanted = order.over() ? 0 : order.trace();
  if (wanted == recording_) return;
  if (wanted != 0) {
    tracer_.Begin();
    coordinator_.OnOwnRecording(wanted);
  } else {
    // Whatever other threads still do with the last calls takes less than a
    // tick.
    auto recorded = tracer_.End(FromTraceNanos(order.begin_ns()),
                                FromTraceNanos(order.end_ns()));
    if (order.trace() == recording_) {
      coordinator_.AddOwnTrace(std::move(recorded.tracks),
                               recorded.complete_from);
    }
  }
  recording_ = wanted;
}

}  // namespace holdfast

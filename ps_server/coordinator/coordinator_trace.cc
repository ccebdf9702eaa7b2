// SPDX-License-Identifier: Apache-2.0

// The coordinator's part in a trace of the cluster.
#include <utility>

#include "common/trace/trace_parts.h"
#include "ps_server/coordinator/coordinator.h"

namespace holdfast {

void Coordinator::Trace(const proto::TraceRequest& request,
                        Reply<proto::TraceResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  job_.outbox.Answer(std::move(reply), trace_.Answer(request));
}

void Coordinator::ReportTrace(const proto::ReportTraceRequest& request,
                              Reply<proto::ReportTraceResponse> reply) {
  const Outbox::Event event(&job_.outbox);
  proto::ReportTraceResponse response;
  response.set_time_ns(ToTraceNanos(job_.clock->Now()));
  if (request.has_part()) {
    // The sender may not have heard of the generation.
    absl::Status status = job_.members.FindLife(request.sender()).status();
    if (status.ok()) status = trace_.Add(request);
    if (!status.ok()) return job_.outbox.Answer(std::move(reply), status);
  }
  job_.outbox.Answer(std::move(reply), std::move(response));
}

void Coordinator::OnOwnRecording(uint64_t trace) {
  const Outbox::Event event(&job_.outbox);
  trace_.OnOwnRecording(trace);
}

void Coordinator::AddOwnTrace(std::vector<TraceTrack> tracks,
                              std::optional<absl::Time> complete_from) {
  const Outbox::Event event(&job_.outbox);
  trace_.AddOwn(std::move(tracks), complete_from);
}

}  // namespace holdfast

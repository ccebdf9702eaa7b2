// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/call_recorder.h"

#include <cstddef>
#include <initializer_list>

#include "common/job/task_id.h"
#include "common/trace/trace_request.h"
#include "proto/cluster.pb.h"

namespace holdfast {
namespace {

// The end of the name of every method's request, which follows the method's
// name.
constexpr char kRequest[] = "Request";
constexpr size_t kRequestSize = sizeof(kRequest) - 1;

// Adds whose push or pull it is.
void AddSender(const google::protobuf::Message& request,
               TraceSpan::Args* args) {
  const auto* const field = request.GetDescriptor()->FindFieldByName("sender");
  if (field == nullptr) return;
  const auto& sender = static_cast<const proto::Sender&>(
      request.GetReflection()->GetMessage(request, field));
  const proto::TaskId& task = sender.task();
  if (task.job() == kWorkerJob) args->emplace_back("worker", task.index());
  if (task.job() == kChiefJob) args->emplace_back("chief", task.index());
}

}  // namespace

CallRecorder::CallRecorder(Tracer* tracer) : tracer_(tracer) {
  const auto add = [&](const char* name,
                       std::initializer_list<const char*> methods) {
    const Tracer::Track track =
        tracer->AddTrack(name, Tracer::TrackKind::kOverlapping);
    for (const char* method : methods) {
      rows_[std::string(method) + kRequest] = track;
    }
  };
  add("contributions", {"Contribute"});
  add("requests for tickets", {"TakeTicket"});
  add("pushes", {"Push", "PushPull", "Give"});
  add("shard: apply", {"Apply"});
  add("shard: commit", {"Commit", "Restore", "Fence", "Resolve", "Hold"});
  add("pulls", {"Pull", "Pin"});
  add("saves", {"Save", "AwaitSaved"});
}

TraceSpan CallRecorder::Begin(const google::protobuf::Message& request) const {
  TraceSpan span;
  span.kind = TraceKind::kRpc;
  span.begin = tracer_->Now();
  span.name = request.GetDescriptor()->name();
  span.name.resize(span.name.size() - kRequestSize);
  AddRequestArgs(request, &span.args);
  AddSender(request, &span.args);
  return span;
}

void CallRecorder::End(Tracer* tracer, Tracer::Track track, TraceSpan span,
                       const absl::Status& status) {
  span.end = tracer->Now();
  span.error = std::string(status.message());
  tracer->Add(track, std::move(span));
}

}  // namespace holdfast

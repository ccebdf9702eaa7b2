// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SERVICE_CALL_RECORDER_H_
#define HOLDFAST_PS_SERVER_SERVICE_CALL_RECORDER_H_

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trace/trace.h"
#include "google/protobuf/message.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Records the calls that a ps's machines serve, for traces of the whole
// cluster: there is a row for pushes, one for pulls, for commits, saves and the
// like, and each call is a span that ends when the call is answered, whether
// the call was parked or worked on.
//
// While nothing is recorded, a call costs one atomic load.
//
// Thread-safe.
class CallRecorder {
 public:
  // `tracer` must outlive the recorder and all replies passed to it.
  explicit CallRecorder(Tracer* tracer);

  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  // Returns `reply` extended so that calling it ends a span that begins here.
  template <typename Response>
  Reply<Response> Record(const google::protobuf::Message& request,
                         Reply<Response> reply) {
    if (!tracer_->recording()) return reply;
    const auto row = rows_.find(request.GetDescriptor()->name());
    if (row == rows_.end()) return reply;
    return
        [tracer = tracer_, track = row->second, span = Begin(request),
         reply = std::move(reply)](absl::StatusOr<Response> response) mutable {
          End(tracer, track, std::move(span), response.status());
          reply(std::move(response));
        };
  }

 private:
  TraceSpan Begin(const google::protobuf::Message& request) const;
  static void End(Tracer* tracer, Tracer::Track track, TraceSpan span,
                  const absl::Status& status);

  Tracer* const tracer_;
  // The rows, indexed by the name of the request's type.
  std::map<std::string, Tracer::Track> rows_;
};

// Returns what recorder->Record returns, or `reply` itself if `recorder` is
// null.
template <typename Response>
Reply<Response> Recorded(CallRecorder* recorder,
                         const google::protobuf::Message& request,
                         Reply<Response> reply) {
  if (recorder == nullptr) return reply;
  return recorder->Record(request, std::move(reply));
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SERVICE_CALL_RECORDER_H_

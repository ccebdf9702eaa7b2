// SPDX-License-Identifier: Apache-2.0

// Tells ThreadSanitizer that handing a tag to gRPC happens before the tag comes
// back: libgrpc passes tags from thread to thread without a lock that
// bazel/tsan/absl_synchronization.cc would see. Callbacks of calls are covered
// as well, because their thread takes them out of a completion queue by the
// same functions. libgrpc++ sets alarms without libgrpc's public functions, so
// its own functions are overridden too; callbacks of alarms are handed over
// under a lock.

#include <grpc/grpc.h>
#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <sanitizer/tsan_interface.h>

#include "bazel/tsan/next.h"

using ::holdfast::tsan::Next;

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops,
                                      size_t nops, void* tag, void* reserved) {
  static auto* const next =
      Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return next(call, ops, nops, tag, reserved);
}

grpc_call_error grpc_server_request_call(
    grpc_server* server, grpc_call** call, grpc_call_details* details,
    grpc_metadata_array* metadata, grpc_completion_queue* call_queue,
    grpc_completion_queue* notification_queue, void* tag) {
  static auto* const next =
      Next<decltype(grpc_server_request_call)>("grpc_server_request_call");
  __tsan_release(tag);
  return next(server, call, details, metadata, call_queue, notification_queue,
              tag);
}

grpc_call_error grpc_server_request_registered_call(
    grpc_server* server, void* method, grpc_call** call, gpr_timespec* deadline,
    grpc_metadata_array* metadata, grpc_byte_buffer** payload,
    grpc_completion_queue* call_queue,
    grpc_completion_queue* notification_queue, void* tag) {
  static auto* const next = Next<decltype(grpc_server_request_registered_call)>(
      "grpc_server_request_registered_call");
  __tsan_release(tag);
  return next(server, method, call, deadline, metadata, payload, call_queue,
              notification_queue, tag);
}

void grpc_server_shutdown_and_notify(grpc_server* server,
                                     grpc_completion_queue* queue, void* tag) {
  static auto* const next = Next<decltype(grpc_server_shutdown_and_notify)>(
      "grpc_server_shutdown_and_notify");
  __tsan_release(tag);
  next(server, queue, tag);
}

void grpc_channel_watch_connectivity_state(
    grpc_channel* channel, grpc_connectivity_state last_observed,
    gpr_timespec deadline, grpc_completion_queue* queue, void* tag) {
  static auto* const next =
      Next<decltype(grpc_channel_watch_connectivity_state)>(
          "grpc_channel_watch_connectivity_state");
  __tsan_release(tag);
  next(channel, last_observed, deadline, queue, tag);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                      gpr_timespec deadline, void* reserved) {
  static auto* const next =
      Next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const next = Next<decltype(grpc_completion_queue_pluck)>(
      "grpc_completion_queue_pluck");
  const grpc_event event = next(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

}  // extern "C"

namespace grpc {

void Alarm::SetInternal(CompletionQueue* queue, gpr_timespec deadline,
                        void* tag) {
  static auto* const next =
      Next<void(Alarm*, CompletionQueue*, gpr_timespec, void*)>(
          "_ZN4grpc5Alarm11SetInternalEPNS_15CompletionQueueE12gpr_timespecPv");
  __tsan_release(tag);
  next(this, queue, deadline, tag);
}

// The caller's tag. The tag in grpc_event, libgrpc's, may be one of libgrpc++.
CompletionQueue::NextStatus CompletionQueue::AsyncNextInternal(
    void** tag, bool* ok, gpr_timespec deadline) {
  static auto* const next = ::holdfast::tsan::Next<NextStatus(
      CompletionQueue*, void**, bool*, gpr_timespec)>(
      "_ZN4grpc15CompletionQueue17AsyncNextInternalEPPvPb12gpr_timespec");
  const NextStatus status = next(this, tag, ok, deadline);
  if (status == GOT_EVENT) __tsan_acquire(*tag);
  return status;
}

}  // namespace grpc

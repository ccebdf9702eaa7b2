// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_OWN_TRACE_H_
#define HOLDFAST_PS_SERVER_OWN_TRACE_H_

#include <cstdint>

#include "common/trace/trace.h"
#include "ps_server/coordinator/coordinator.h"

namespace holdfast {

// Records ps 0's part of a trace of the whole cluster. Other tasks learn of a
// trace through their leases (common/rpc/trace_reporter.h); ps 0 has no lease,
// so it asks the coordinator in its own process.
//
// Thread-compatible: used on the coordinator's strand.
class OwnTrace {
 public:
  // `coordinator` and `tracer` must outlive this object.
  OwnTrace(Coordinator* coordinator, Tracer* tracer)
      : coordinator_(*coordinator), tracer_(*tracer) {}

  // Begins or ends recording as the coordinator asks. Call it about ten times a
  // second.
  void Look();

 private:
  Coordinator& coordinator_;
  Tracer& tracer_;
  // The number of the trace that is being recorded; 0 if none.
  uint64_t recording_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_OWN_TRACE_H_

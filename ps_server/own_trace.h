#ifndef HOLDFAST_PS_SERVER_OWN_TRACE_H_
#define HOLDFAST_PS_SERVER_OWN_TRACE_H_

#include <cstdint>

#include "common/trace/trace.h"
#include "ps_server/coordinator/coordinator.h"

namespace holdfast {

// The part of ps 0 in a trace of the whole cluster. It has no lease by which it
// would hear of one, as other tasks do (common/rpc/trace_reporter.h), and asks
// the coordinator beside it.
//
// Thread-compatible: used on the coordinator's strand.
class OwnTrace {
 public:
  // Both must outlive this.
  OwnTrace(Coordinator* coordinator, Tracer* tracer)
      : coordinator_(*coordinator), tracer_(*tracer) {}

  // Does what the coordinator wants. To be called some ten times a second.
  void Look();

 private:
  Coordinator& coordinator_;
  Tracer& tracer_;
  // For which trace it records; 0: for none.
  uint64_t recording_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_OWN_TRACE_H_

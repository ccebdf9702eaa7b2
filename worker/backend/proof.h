#ifndef HOLDFAST_WORKER_BACKEND_PROOF_H_
#define HOLDFAST_WORKER_BACKEND_PROOF_H_

#include "absl/status/status.h"
#include "worker/backend/backend.h"

namespace holdfast {

// Has a backend copy a few values there and back, multiply and scale them: what
// a device that is there but of no use cannot do (of another's, full, a library
// that is a stub, no machine code for it). Errors: the backend's; INTERNAL when
// it comes to other values.
absl::Status ProveBackend(Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PROOF_H_

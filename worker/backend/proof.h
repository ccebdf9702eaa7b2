// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_PROOF_H_
#define HOLDFAST_WORKER_BACKEND_PROOF_H_

#include "absl/status/status.h"
#include "worker/backend/backend.h"

namespace holdfast {

// Makes a backend copy a few values to its device, multiply and scale them, and
// copy them back. A device that exists but is unusable fails this: for example
// because it belongs to another user, its memory is full, a library is a stub,
// or there is no machine code for it. Errors: the backend's; INTERNAL when the
// results are wrong.
absl::Status ProveBackend(Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PROOF_H_

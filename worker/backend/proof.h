// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_PROOF_H_
#define HOLDFAST_WORKER_BACKEND_PROOF_H_

#include "absl/status/status.h"
#include "worker/backend/backend.h"

namespace holdfast {

// Has a backend copy a few values to its device and back, multiply and scale
// them. A device that exists but is unusable fails this (it belongs to another
// user, its memory is full, a library is a stub, there is no machine code for
// it). Errors: the backend's; INTERNAL when the results are wrong.
absl::Status ProveBackend(Backend* backend);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PROOF_H_

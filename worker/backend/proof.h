// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_BACKEND_PROOF_H_
#define HOLDFAST_WORKER_BACKEND_PROOF_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/backend/backend.h"

namespace holdfast {

// Makes a backend copy a few values to its device, multiply and scale them, and
// copy them back. A device that exists but is unusable fails this: for example
// because it belongs to another user, its memory is full, a library is a stub,
// or there is no machine code for it. Errors: the backend's; INTERNAL when the
// results are wrong.
absl::Status ProveBackend(Backend* backend);

// Makes the first backend fetch a pattern from each other one, and compares
// what arrives: some machines report that their GPUs can copy from each other,
// but the copies contain something else. If it gets something else, or an
// error, the first backend fetches from that one over host memory from then on
// (Backend::FetchOverHost), and a warning is logged. `backends` are of one
// kind; `names`: theirs, for people.
// Errors: the backends'; INTERNAL when copies over host memory are wrong, too.
absl::Status ProvePeers(absl::Span<Backend* const> backends,
                        absl::Span<const std::string> names);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_PROOF_H_

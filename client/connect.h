// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_CONNECT_H_
#define HOLDFAST_CLIENT_CONNECT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/cluster.h"
#include "client/context.h"

namespace holdfast::client {

// Cluster::Connect with timeouts of the caller's choice, for tests.
absl::StatusOr<std::unique_ptr<Cluster>> Connect(Cluster::Options options,
                                                 const Timing& timing);

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_CONNECT_H_

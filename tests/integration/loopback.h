// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_INTEGRATION_LOOPBACK_H_
#define HOLDFAST_TESTS_INTEGRATION_LOOPBACK_H_

#include <cstdint>
#include <string>

#include "common/job/cluster_spec.h"

namespace holdfast {

// Addresses for the servers of one test process.
//
// They are on a loopback address of the process's own, drawn at random from
// 127.0.0.0/8. So they conflict neither with ports of other tests that run at
// the same time, nor with those of outgoing connections, which the system opens
// from 127.0.0.1.

// "127.x.y.z", the same for the whole process.
const std::string& LoopbackHost();

// Returns an unused port of LoopbackHost(), a different one in each call.
uint16_t PickUnusedPort();

// "LoopbackHost():PickUnusedPort()".
std::string UnusedAddress();

// Returns a cluster on unused addresses.
ClusterSpec MakeLoopbackCluster(uint32_t num_ps, uint32_t num_workers,
                                bool has_chief = false);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_LOOPBACK_H_

#ifndef HOLDFAST_TESTS_INTEGRATION_LOOPBACK_H_
#define HOLDFAST_TESTS_INTEGRATION_LOOPBACK_H_

#include <cstdint>
#include <string>

#include "common/job/cluster_spec.h"

namespace holdfast {

// Addresses for the servers of one test process.
//
// They are on a loopback address of the process' own, drawn at random from
// 127.0.0.0/8: the ports of tests that run beside it, and those that the system
// gives to outgoing connections, which come from 127.0.0.1, are others.

// "127.x.y.z", the same for the whole process.
const std::string& LoopbackHost();

// A port of LoopbackHost() that nobody has. It is another one at each call.
uint16_t PickUnusedPort();

// "LoopbackHost():PickUnusedPort()".
std::string UnusedAddress();

// A cluster on unused addresses.
ClusterSpec MakeLoopbackCluster(uint32_t num_ps, uint32_t num_workers,
                                bool has_chief = false);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_INTEGRATION_LOOPBACK_H_

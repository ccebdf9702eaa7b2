// SPDX-License-Identifier: Apache-2.0

// How much of its machine a process may use; in a container, the container's
// limits.
#ifndef HOLDFAST_COMMON_PROCESS_MACHINE_LIMITS_H_
#define HOLDFAST_COMMON_PROCESS_MACHINE_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace holdfast {

// `root` is the prefix of the paths of the files that are read: "" on a real
// machine. Control groups may be of version 1 or 2. The lowest limit applies
// among those of this process's own group and of the groups that contain it.

// 80 % of the memory that this process may use, which is the minimum of the
// machine's memory and the limits of its control groups.
// Errors: NOT_FOUND when neither the machine's memory nor a limit can be read.
absl::StatusOr<int64_t> DefaultMemoryLimit(const std::string& root);

// The number of cores that this process may use, at least 1: the minimum of
// `cores` and the CPU quotas of its control groups, rounded up. Use it only to
// choose how many threads wait and move bytes. The number of threads that do
// arithmetic changes results, so it must not depend on the machine.
int AvailableCores(const std::string& root, int cores);

// AvailableCores of this machine, where `cores` is the number of cores on which
// this process may be scheduled.
int AvailableCores();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_MACHINE_LIMITS_H_

// How much of its machine a process may use: in a container, what the container
// may.
#ifndef HOLDFAST_COMMON_PROCESS_MACHINE_LIMITS_H_
#define HOLDFAST_COMMON_PROCESS_MACHINE_LIMITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace holdfast {

// `root` is what the paths of the files that are read begin with: "" on a real
// machine. Control groups are of version 1 or 2; the least limit counts of this
// process' own group and of those that it is in.

// 80 % of the memory that this process may use: of the least of the machine's
// and the limits of its control groups. Errors: NOT_FOUND when none of them can
// be read.
absl::StatusOr<int64_t> DefaultMemoryLimit(const std::string& root);

// The cores that this process may use, at least 1: the least of `cores` and the
// quotas of CPU time of its control groups, part of a core counted as one. For
// the number of threads that wait and move bytes; that of threads that do
// arithmetic changes results, and must not depend on the machine.
int AvailableCores(const std::string& root, int cores);

// Of this process: `cores` are those that it may be scheduled on.
int AvailableCores();

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_MACHINE_LIMITS_H_

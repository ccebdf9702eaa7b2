// How much memory a ps may take.
#ifndef HOLDFAST_PS_SERVER_MEMORY_LIMIT_H_
#define HOLDFAST_PS_SERVER_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace holdfast {

// 80 % of what this process may use: of the least of the machine's memory and
// the limits of its control groups, as the files under `root` say ("" on a real
// machine). Errors: NOT_FOUND when none of them can be read.
absl::StatusOr<int64_t> DefaultMemoryLimit(const std::string& root);

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_MEMORY_LIMIT_H_

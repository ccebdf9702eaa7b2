// SPDX-License-Identifier: Apache-2.0

// Rules between the fields of a job's `data`.
#ifndef HOLDFAST_COMMON_JOB_JOB_DATA_RULES_H_
#define HOLDFAST_COMMON_JOB_JOB_DATA_RULES_H_

#include <vector>

#include "common/base/validate.h"
#include "proto/job.pb.h"

namespace holdfast {

// Appends to `broken` the rules that a job's `data` breaks, apart from those
// that hold for any message (common/base/validate.h).
void CheckData(const proto::Data& data, std::vector<BrokenRule>* broken);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_JOB_DATA_RULES_H_

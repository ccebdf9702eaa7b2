// SPDX-License-Identifier: Apache-2.0

// Rules between the fields of a job's `model`.
#ifndef HOLDFAST_COMMON_JOB_JOB_MODEL_RULES_H_
#define HOLDFAST_COMMON_JOB_JOB_MODEL_RULES_H_

#include <vector>

#include "common/base/validate.h"
#include "proto/job.pb.h"

namespace holdfast {

// Appends to `broken` the rules that the model of `job` breaks, apart from
// those that hold for any message (common/base/validate.h).
void CheckModel(const proto::Job& job, std::vector<BrokenRule>* broken);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_JOB_MODEL_RULES_H_

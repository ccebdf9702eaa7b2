// SPDX-License-Identifier: Apache-2.0

// The layout of the Criteo data sets (docs/data.md, "Criteo").
#ifndef HOLDFAST_COMMON_DATA_CRITEO_H_
#define HOLDFAST_COMMON_DATA_CRITEO_H_

#include "common/data/csv_loader.h"
#include "proto/job.pb.h"

namespace holdfast {

inline constexpr int kCriteoNumbers = 13;
inline constexpr int kCriteoCategories = 26;

// The CSV table that `config` stands for, with columns label, I1 to I13 and C1
// to C26. If `unlabeled`, the label's cell may hold anything.
CsvTable CriteoTable(const proto::Criteo& config, bool unlabeled);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_CRITEO_H_

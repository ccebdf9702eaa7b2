// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_JOIN_SOME_H_
#define HOLDFAST_COMMON_BASE_JOIN_SOME_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {

// Joins the names with ", ". Of more than 20 names, those after the 20th are
// replaced by their number: "... and 3 more".
inline std::string JoinSome(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  if (names.size() <= kMost) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kMost, ", "),
                      " and ", names.size() - kMost, " more");
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_JOIN_SOME_H_

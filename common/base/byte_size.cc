// SPDX-License-Identifier: Apache-2.0
#include "common/base/byte_size.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace holdfast {

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"TiB", 1024. * 1024 * 1024 * 1024},
      {"GiB", 1024. * 1024 * 1024},
      {"MiB", 1024. * 1024},
      {"KiB", 1024.},
      {"TB", 1e12},
      {"GB", 1e9},
      {"MB", 1e6},
      {"kB", 1e3},
      {"KB", 1e3},
      {"B", 1.},
      {"", 1.}};
  for (const auto& [unit, bytes] : kUnits) {
    const size_t length = text.size() - std::min(text.size(), unit.size());
    if (text.substr(length) != unit) continue;
    double number;
    if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text.substr(0, length)),
                          &number) ||
        !(number * bytes >= 1) ||
        number * bytes >=
            static_cast<double>(std::numeric_limits<int64_t>::max())) {
      break;
    }
    return static_cast<int64_t>(number * bytes);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text,
      "\" is not a number of bytes: use a value such as 8GiB, 500MB or "
      "1000000"));
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/data/libsvm_line.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "common/data/parse_number.h"

namespace holdfast {

LibsvmLine::LibsvmLine(absl::string_view line)
    : text_(absl::StripAsciiWhitespace(line.substr(0, line.find('#')))),
      rest_(text_) {
  const absl::string_view first = Cut();
  if (first.find(':') == absl::string_view::npos) {
    label_ = first;
  } else {
    rest_ = text_;
  }
}

absl::string_view LibsvmLine::Cut() {
  while (!rest_.empty() && absl::ascii_isspace(rest_.front())) {
    rest_.remove_prefix(1);
  }
  const auto end =
      std::find_if(rest_.begin(), rest_.end(), absl::ascii_isspace);
  const absl::string_view part = rest_.substr(0, end - rest_.begin());
  rest_.remove_prefix(part.size());
  return part;
}

LibsvmLine::Result LibsvmLine::Next(uint64_t* index, float* value) {
  part_ = Cut();
  if (part_.empty()) return Result::kEnd;
  const size_t colon = part_.find(':');
  double number = 0;
  if (colon == absl::string_view::npos ||
      !ParseWhole(part_.substr(0, colon), index) ||
      !ParseFinite(part_.substr(colon + 1), &number)) {
    return Result::kFault;
  }
  *value = static_cast<float>(number);
  return std::isfinite(*value) ? Result::kFeature : Result::kFault;
}

}  // namespace holdfast

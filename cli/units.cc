// SPDX-License-Identifier: Apache-2.0
#include "cli/units.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/printable_text.h"

namespace holdfast {
namespace {

// Whether the byte begins a character, that is, is not a continuation byte of
// UTF-8.
bool BeginsCharacter(char c) {
  return (static_cast<uint8_t>(c) & 0xc0) != 0x80;
}

}  // namespace

std::string BytesText(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B")
                   : absl::StrFormat("%.1f %s", value, units[unit]);
}

std::string SecondsText(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds == 0) return "0 s";
  if (seconds < 0.00995) return absl::StrFormat("%.2f ms", 1000 * seconds);
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", 1000 * seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  return absl::FormatDuration(absl::Seconds(std::round(seconds)));
}

std::string RateText(double per_second) {
  if (!std::isfinite(per_second)) return "-";
  if (per_second == 0) return "0";
  const int digits = per_second < 0.995 ? 2 : per_second < 9.95 ? 1 : 0;
  return absl::StrFormat("%.*f", digits, per_second);
}

std::string TaskText(const proto::TaskId& task) {
  return PrintableText(absl::StrCat(task.job(), ":", task.index()));
}

size_t TextWidth(absl::string_view text) {
  size_t width = 0;
  for (const char c : text) width += BeginsCharacter(c) ? 1 : 0;
  return width;
}

std::string CutText(absl::string_view text, size_t width) {
  if (TextWidth(text) <= width) return std::string(text);
  if (width == 0) return "";
  size_t end = 0;
  size_t characters = 0;
  while (end < text.size()) {
    if (BeginsCharacter(text[end]) && characters++ == width - 1) break;
    ++end;
  }
  return absl::StrCat(text.substr(0, end), ">");
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/data/parse_number.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

namespace holdfast {
namespace {

// Parses the number in [begin, end) if it has no exponent and so few digits
// that one division rounds it correctly, because both operands are exact
// (Clinger, "How to read floating point numbers accurately", 1990). Returns
// false for all other numbers.
bool ParseShortDecimal(const char* begin, const char* end, double* value) {
  constexpr uint64_t kExact = uint64_t{1} << 53;
  // At most 19 digits, so that the mantissa cannot overflow.
  constexpr double kPowersOf10[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                    1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                    1e14, 1e15, 1e16, 1e17, 1e18, 1e19};
  const bool negative = begin < end && *begin == '-';
  const char* c = begin + (negative ? 1 : 0);
  uint64_t mantissa = 0;
  const auto read_digits = [&] {
    const char* const first = c;
    for (; c < end; ++c) {
      const unsigned digit = static_cast<unsigned char>(*c) - unsigned{'0'};
      if (digit > 9) break;
      mantissa = mantissa * 10 + digit;
    }
    return c - first;
  };
  std::ptrdiff_t digits = read_digits();
  std::ptrdiff_t behind_point = 0;
  if (c < end && *c == '.') {
    ++c;
    behind_point = read_digits();
    digits += behind_point;
  }
  if (c != end || digits == 0 || digits > 19 || mantissa > kExact) return false;
  const double number =
      static_cast<double>(mantissa) / kPowersOf10[behind_point];
  *value = negative ? -number : number;
  return true;
}

// Parses all of `text` by from_chars, which does not accept a plus sign.
template <typename T>
bool Parse(absl::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

absl::string_view WithoutPlus(absl::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  return text;
}

}  // namespace

bool ParseFinite(absl::string_view text, double* value) {
  text = WithoutPlus(text);
  if (ParseShortDecimal(text.data(), text.data() + text.size(), value)) {
    return true;
  }
  return Parse(text, value) && std::isfinite(*value);
}

bool ParseWhole(absl::string_view text, int64_t* value) {
  return Parse(WithoutPlus(text), value);
}

bool ParseWhole(absl::string_view text, uint64_t* value) {
  return Parse(WithoutPlus(text), value);
}

}  // namespace holdfast

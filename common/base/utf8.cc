// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include <cstdint>

namespace holdfast {

size_t Utf8CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto tail = [&](size_t i, uint8_t least, uint8_t most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return tail(1, 0x80, 0xbf) ? 2 : 0;
  if (first < 0xf0) {
    // Excludes overlong forms and surrogates.
    const uint8_t least = first == 0xe0 ? 0xa0 : 0x80;
    const uint8_t most = first == 0xed ? 0x9f : 0xbf;
    return tail(1, least, most) && tail(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first > 0xf4) return 0;
  const uint8_t least = first == 0xf0 ? 0x90 : 0x80;
  const uint8_t most = first == 0xf4 ? 0x8f : 0xbf;
  return tail(1, least, most) && tail(2, 0x80, 0xbf) && tail(3, 0x80, 0xbf) ? 4
                                                                            : 0;
}

uint32_t Utf8CodePoint(absl::string_view character) {
  // The first byte of a character of n > 1 bytes has n ones, and a zero.
  const uint8_t first = character[0];
  if (character.size() == 1) return first;
  uint32_t point = first & (0x7f >> character.size());
  for (const char tail : character.substr(1)) {
    point = point << 6 | (static_cast<uint8_t>(tail) & 0x3f);
  }
  return point;
}

}  // namespace holdfast

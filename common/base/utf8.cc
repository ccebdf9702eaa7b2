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

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/base/printable_text.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace holdfast {
namespace {

// Characters that are not printable, from the Unicode Character Database:
// controls (Cc), and those formats (Cf) and separators (Zl, Zp) that are
// invisible, break lines or change the direction of text. Not the joiners
// U+200C and U+200D, of which words and emoji consist.
constexpr struct {
  uint32_t first;
  uint32_t last;
} kUnprintable[] = {
    {0x0000, 0x001f}, {0x007f, 0x009f}, {0x061c, 0x061c}, {0x180e, 0x180e},
    {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff},
};

bool IsPrintable(uint32_t character) {
  for (const auto& range : kUnprintable) {
    if (character <= range.last) return character < range.first;
  }
  return true;
}

std::string Printable(absl::string_view text, bool keep_lines) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (text[0] == '\n' || text[0] == '\t') {
      printable += keep_lines ? text[0] : ' ';
    } else if (PrintableCharacterBytes(text) > 0) {
      printable.append(text.data(), bytes);
    } else {
      printable += '?';
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return printable;
}

}  // namespace

size_t PrintableCharacterBytes(absl::string_view text) {
  const size_t bytes = Utf8CharacterBytes(text);
  return bytes > 0 && IsPrintable(Utf8CodePoint(text.substr(0, bytes))) ? bytes
                                                                        : 0;
}

std::string PrintableText(absl::string_view text) {
  return Printable(text, /*keep_lines=*/false);
}

std::string PrintableLines(absl::string_view text) {
  return Printable(text, /*keep_lines=*/true);
}

std::string EscapedText(absl::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t printable = PrintableCharacterBytes(text);
    const size_t bytes = printable > 0 ? printable : 1;
    const absl::string_view character = text.substr(0, bytes);
    absl::StrAppend(&escaped, bytes > 1 ? std::string(character)
                                        : absl::CEscape(character));
    text.remove_prefix(bytes);
  }
  return escaped;
}

}  // namespace holdfast

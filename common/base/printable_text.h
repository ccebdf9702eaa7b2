// SPDX-License-Identifier: Apache-2.0

// Text from peers, files and users, in the form in which it may become part of
// a message, or be shown on a terminal, on a page or in a log. Its characters
// are all printable: UTF-8, and neither control characters (C0 and C1, which
// terminals obey) nor characters that are invisible or change the order in
// which others are shown.
#ifndef HOLDFAST_COMMON_BASE_PRINTABLE_TEXT_H_
#define HOLDFAST_COMMON_BASE_PRINTABLE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

// The number of bytes of the printable character that `text`, which is not
// empty, begins with; 0 if it does not begin with one.
size_t PrintableCharacterBytes(absl::string_view text);

// `text` as one line: line breaks and tabs become spaces, and each other
// character or byte that is not printable becomes '?'.
std::string PrintableText(absl::string_view text);

// The same, but line breaks and tabs are kept.
std::string PrintableLines(absl::string_view text);

// `text` with C's escapes, such as \n or \302\233, for quotes, backslashes and
// what is not printable, so that the original bytes can be read from it: for
// text that may be copied into a textproto.
std::string EscapedText(absl::string_view text);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_PRINTABLE_TEXT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_BASE_UTF8_H_
#define HOLDFAST_COMMON_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace holdfast {

// The number of bytes, 1 to 4, of the UTF-8 character (RFC 3629) that `text`,
// which is not empty, begins with; 0 if it does not begin with one.
size_t Utf8CharacterBytes(absl::string_view text);

// The code point of `character`, which is one UTF-8 character.
uint32_t Utf8CodePoint(absl::string_view character);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_UTF8_H_

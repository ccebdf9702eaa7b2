// SPDX-License-Identifier: Apache-2.0

// JSON as printed by our programs.
#ifndef HOLDFAST_COMMON_BASE_JSON_H_
#define HOLDFAST_COMMON_BASE_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace holdfast {

// Returns `message` as JSON on one line, without a line break at its end.
// Fields have their names in the .proto. Those with default values are
// included, so that a reader finds every field; optional fields and messages
// that are not set are left out. As in protobuf's JSON mapping, 64-bit integers
// are strings, and non-finite numbers are "NaN" and "Infinity".
std::string ToJson(const google::protobuf::Message& message);

// `text` as a JSON string, in quotes. Bytes that are not UTF-8 become U+FFFD,
// so that the output is valid whatever an error message contains.
std::string JsonString(absl::string_view text);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_JSON_H_

// JSON, as our programs print it.
#ifndef HOLDFAST_COMMON_BASE_JSON_H_
#define HOLDFAST_COMMON_BASE_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace holdfast {

// The message on one line, without a line break: fields by their names in the
// .proto, those at their default included, so that a reader finds each; an
// optional field, or a message, that is not set is left out. 64-bit integers
// are strings, and numbers that are not finite "NaN" and "Infinity", as
// protobuf's JSON has them.
std::string ToJson(const google::protobuf::Message& message);

// `text` as a JSON string, in quotes. Bytes that are not UTF-8 become U+FFFD,
// so that whatever stands in an error message, what is printed can be read.
std::string JsonString(absl::string_view text);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_JSON_H_

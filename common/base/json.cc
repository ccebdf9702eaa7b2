// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/base/printable_text.h"
#include "common/base/utf8.h"
#include "glog/logging.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

constexpr char kReplacement[] = "\\ufffd";

void AppendEscape(uint32_t code_unit, std::string* json) {
  absl::StrAppendFormat(json, "\\u%04x", code_unit);
}

// UTF-16 code units, of which a character beyond U+FFFF takes two.
void AppendEscaped(uint32_t character, std::string* json) {
  if (character < 0x10000) return AppendEscape(character, json);
  const uint32_t beyond = character - 0x10000;
  AppendEscape(0xd800 + (beyond >> 10), json);
  AppendEscape(0xdc00 + (beyond & 0x3ff), json);
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  CHECK(status.ok()) << message.GetTypeName() << ": " << status.ToString();
  return json;
}

std::string JsonString(absl::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t length = Utf8CharacterBytes(text);
    if (length == 0) {
      json += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    const char c = text[0];
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (c == '\t') {
      json += "\\t";
    } else if (PrintableCharacterBytes(text) == 0) {
      AppendEscaped(Utf8CodePoint(text.substr(0, length)), &json);
    } else {
      json.append(text.data(), length);
    }
    text.remove_prefix(length);
  }
  json += '"';
  return json;
}

}  // namespace holdfast

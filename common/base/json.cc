// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/base/utf8.h"
#include "glog/logging.h"
#include "google/protobuf/util/json_util.h"

namespace holdfast {
namespace {

constexpr char kReplacement[] = "\\ufffd";

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
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<unsigned>(c));
    } else {
      json.append(text.data(), length);
    }
    text.remove_prefix(length);
  }
  json += '"';
  return json;
}

}  // namespace holdfast

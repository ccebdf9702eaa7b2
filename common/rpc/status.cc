// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/printable_text.h"

namespace holdfast {
namespace {

constexpr char kCut[] = "...";

// `message` truncated to the limit, but not inside a UTF-8 character.
std::string Shorten(absl::string_view message) {
  if (message.size() <= kMaxStatusMessage) return std::string(message);
  size_t end = kMaxStatusMessage - (sizeof(kCut) - 1);
  const auto inside_character = [&](size_t i) {
    return (static_cast<unsigned char>(message[i]) & 0xc0) == 0x80;
  };
  while (end > 0 && inside_character(end)) --end;
  return absl::StrCat(message.substr(0, end), kCut);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      Shorten(PrintableLines(status.message())));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= grpc::StatusCode::UNAUTHENTICATED;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
      PrintableLines(status.error_message()));
}

}  // namespace holdfast

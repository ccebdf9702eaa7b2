// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_VERSION_H_
#define HOLDFAST_COMMON_PROCESS_VERSION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace holdfast {

// This program's release: 0, the version of the protocol (kProtocolVersion),
// and a number that increases with each release of that protocol.
// docs/operating/compatibility.md says what these numbers promise.
inline constexpr char kVersion[] = "0.8.0";

// The output of `program` for --version, and the first line of its log:
// "ps_server 0.8.0 (protocol 8)".
std::string VersionLine(absl::string_view program);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_VERSION_H_

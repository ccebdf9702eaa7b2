// SPDX-License-Identifier: Apache-2.0
#include "common/process/version.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/rpc_limits.h"

namespace holdfast {

std::string VersionLine(absl::string_view program) {
  return absl::StrCat(program, " ", kVersion, " (protocol ", kProtocolVersion,
                      ")");
}

}  // namespace holdfast

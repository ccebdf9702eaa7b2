// SPDX-License-Identifier: Apache-2.0
#include "common/process/process_name.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace holdfast {

std::string ProcessName() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

}  // namespace holdfast

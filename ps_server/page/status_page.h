// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_PAGE_STATUS_PAGE_H_
#define HOLDFAST_PS_SERVER_PAGE_STATUS_PAGE_H_

#include "absl/strings/string_view.h"

namespace holdfast {

// The status page, status.html: HTML with its style and its script, which
// fetches status.json, events.json and history.json from the same folder.
absl::string_view StatusPage();

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_PAGE_STATUS_PAGE_H_

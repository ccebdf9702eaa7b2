// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLI_INSPECT_IMAGES_H_
#define HOLDFAST_CLI_INSPECT_IMAGES_H_

#include <string>

#include "absl/status/status.h"

namespace holdfast {

// Prints, from their headers, what images there are in the subfolders of
// `folder`, each of which is a class, and a schema to start from. Errors: those
// of ListImageClasses; INVALID_ARGUMENT if there is no image.
absl::Status InspectImages(const std::string& folder);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_INSPECT_IMAGES_H_

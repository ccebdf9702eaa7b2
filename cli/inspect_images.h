#ifndef HOLDFAST_CLI_INSPECT_IMAGES_H_
#define HOLDFAST_CLI_INSPECT_IMAGES_H_

#include <string>

#include "absl/status/status.h"

namespace holdfast {

// Says to stdout what images there are in the folders within `folder`, of which
// each is a class, by their headers, and a schema to start from.
// Errors: those of ListImageClasses; INVALID_ARGUMENT where there is no image.
absl::Status InspectImages(const std::string& folder);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_INSPECT_IMAGES_H_

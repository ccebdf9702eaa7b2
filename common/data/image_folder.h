// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_IMAGE_FOLDER_H_
#define HOLDFAST_COMMON_DATA_IMAGE_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// A folder within the folder of a data set, and the names of its files, sorted
// by their bytes.
struct ImageClass {
  std::string name;
  std::vector<std::string> files;
};

// The folders within `folder`, each a class, with their files; in the order of
// `classes` or, if that is empty, of the bytes of their names. Names that begin
// with a dot are skipped, as are files next to the folders.
// Errors: those of the system; INVALID_ARGUMENT when there is no folder, or the
// folders are not those of `classes`.
absl::StatusOr<std::vector<ImageClass>> ListImageClasses(
    const std::string& folder, const std::vector<std::string>& classes);

// Like ListImageClasses, for a caller that does not need classes: if `folder`
// has no folders, its own files form one class without a name.
// Errors: those of the system.
absl::StatusOr<std::vector<ImageClass>> ListUnlabeledImages(
    const std::string& folder);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_FOLDER_H_

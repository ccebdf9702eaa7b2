#ifndef HOLDFAST_COMMON_DATA_IMAGE_FOLDER_H_
#define HOLDFAST_COMMON_DATA_IMAGE_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace holdfast {

// A folder within the folder of a data set, and the names of its files by their
// bytes.
struct ImageClass {
  std::string name;
  std::vector<std::string> files;
};

// The folders within `folder`, each a class, with all that is in them; in the
// order of `classes`, or, where that is empty, of their names' bytes. Names
// that begin with a dot are left out, and so are files beside the folders.
// Errors: as the system says; INVALID_ARGUMENT when there is no folder, or the
// folders are not those of `classes`.
absl::StatusOr<std::vector<ImageClass>> ListImageClasses(
    const std::string& folder, const std::vector<std::string>& classes);

// The same where nobody asks for classes: where there are no folders, the files
// in `folder` itself are all of one class without a name. Errors: as the system
// says.
absl::StatusOr<std::vector<ImageClass>> ListUnlabeledImages(
    const std::string& folder);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_IMAGE_FOLDER_H_

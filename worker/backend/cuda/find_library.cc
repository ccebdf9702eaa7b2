// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/find_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace holdfast {
namespace {

// Where the toolkit installs its libraries, which the dynamic linker may not
// search.
constexpr char kToolkitFolder[] = "/usr/local/cuda/lib64";

// The limit of links in a chain, the same as the kernel's.
constexpr int kMaxLinks = 40;

void AddMatches(const std::string& pattern, std::vector<std::string>* found) {
  glob_t matches;
  if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; ++i) {
      const std::string match = matches.gl_pathv[i];
      if (std::find(found->begin(), found->end(), match) == found->end()) {
        found->push_back(match);
      }
    }
  }
  globfree(&matches);
}

// Adds the folders of a Python that is installed below `prefix`. Debian's
// Python names the folder dist-packages, and pip installs to /usr/local there.
void AddFoldersBelow(const std::string& prefix,
                     std::vector<std::string>* found) {
  for (const char* packages : {"site-packages", "dist-packages"}) {
    for (const char* inner : {"", "/local"}) {
      for (const char* library : {"cudnn", "cublas", "cu[0-9]*"}) {
        AddMatches(absl::StrCat(prefix, inner, "/lib/python3*/", packages,
                                "/nvidia/", library, "/lib"),
                   found);
      }
    }
  }
}

std::string Parent(const std::string& path) {
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

// Returns an empty string if `path` is not a link.
std::string LinkedTo(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  if (size <= 0) return "";
  const std::string linked(target, size);
  return linked[0] == '/' ? linked : absl::StrCat(Parent(path), "/", linked);
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<std::string> PythonLibraryFolders(const std::string& path,
                                              const std::string& virtual_env) {
  std::vector<std::string> found;
  if (!virtual_env.empty()) AddFoldersBelow(virtual_env, &found);
  const std::vector<std::string> folders =
      absl::StrSplit(path, ':', absl::SkipEmpty());
  for (const std::string& folder : folders) {
    const std::string python =
        absl::StrCat(absl::StripSuffix(folder, "/"), "/python3");
    if (access(python.c_str(), X_OK) != 0) continue;
    // If python3 is a link, as in a virtual environment, the packages of the
    // Python that it links to come after its own.
    std::string at = python;
    for (int links = 0; links < kMaxLinks && !at.empty(); ++links) {
      AddFoldersBelow(Parent(Parent(at)), &found);
      if (Parent(Parent(at)) == "/usr") AddFoldersBelow("/usr/local", &found);
      at = LinkedTo(at);
    }
    break;
  }
  return found;
}

std::vector<std::string> CudaLibraryFolders() {
  std::vector<std::string> folders = {kToolkitFolder};
  for (std::string& folder :
       PythonLibraryFolders(Environment("PATH"), Environment("VIRTUAL_ENV"))) {
    folders.push_back(std::move(folder));
  }
  return folders;
}

absl::StatusOr<void*> LoadSharedLibrary(
    const std::string& file, const std::vector<std::string>& folders) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  std::string error = dlerror();
  for (const std::string& folder : folders) {
    const std::string path = absl::StrCat(folder, "/", file);
    if (access(path.c_str(), F_OK) != 0) continue;
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    // This error says more than that the linker cannot find the name.
    error = dlerror();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      file, " cannot be loaded: ", error,
      "; looked beside the program, in LD_LIBRARY_PATH, in the system's "
      "folders, in ",
      absl::StrJoin(folders, ", "),
      " and in the site-packages of python3 on the PATH and of VIRTUAL_ENV"));
}

}  // namespace holdfast

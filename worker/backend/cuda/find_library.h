// SPDX-License-Identifier: Apache-2.0

// Finds cuBLAS and cuDNN, the shared libraries that a program loads at run time
// because it must also start on machines without them.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_FIND_LIBRARY_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_FIND_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// Returns the folders of NVIDIA's libraries (nvidia/cudnn/lib,
// nvidia/cublas/lib, nvidia/cu13/lib) that exist below a site-packages folder:
// that of the virtual environment `virtual_env`, that of the first python3 in
// the folders of `path`, and those of each Python that this python3 links to.
// Both arguments may be empty. Nothing is executed, so a python3 that is a
// script which runs another Python is not followed.
std::vector<std::string> PythonLibraryFolders(const std::string& path,
                                              const std::string& virtual_env);

// Returns the folders in which a CUDA toolkit is usually installed, and
// PythonLibraryFolders for the environment variables PATH and VIRTUAL_ENV.
std::vector<std::string> CudaLibraryFolders();

// Loads `file`, a library's name such as "libcudnn.so.9": first by the dynamic
// linker's rules (the program's RPATH, LD_LIBRARY_PATH, the system's folders),
// then from the first of `folders` from which it loads. Returns its handle; the
// library stays loaded. It must find the libraries that it needs by itself, as
// NVIDIA's libraries do by looking in their own folder. Errors:
// FAILED_PRECONDITION, naming the places searched.
absl::StatusOr<void*> LoadSharedLibrary(
    const std::string& file, const std::vector<std::string>& folders);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_FIND_LIBRARY_H_

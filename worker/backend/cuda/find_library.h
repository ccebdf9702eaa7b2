// Where the shared libraries of CUDA are found that a program loads by itself,
// since it must start on machines without them: cuBLAS and cuDNN.
#ifndef HOLDFAST_WORKER_BACKEND_CUDA_FIND_LIBRARY_H_
#define HOLDFAST_WORKER_BACKEND_CUDA_FIND_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

// The folders of NVIDIA's libraries (nvidia/cudnn/lib, nvidia/cublas/lib,
// nvidia/cu13/lib) below the site-packages of these, as far as they are there:
// the virtual environment `virtual_env`, the first python3 in the folders of
// `path`, and each Python that this one links to. Both may be empty. Nothing is
// executed, so a python3 that is a script which runs another leads nowhere.
std::vector<std::string> PythonLibraryFolders(const std::string& path,
                                              const std::string& virtual_env);

// Where a toolkit is installed, and the folders above, by the environment
// variables PATH and VIRTUAL_ENV.
std::vector<std::string> CudaLibraryFolders();

// Loads `file`, a library's name such as "libcudnn.so.9": the dynamic linker's
// own way (the program's RPATH, LD_LIBRARY_PATH, the system's folders), then
// from the first of `folders` in which it loads. It stays loaded. Libraries
// that it needs, it must find by itself; NVIDIA's look beside themselves.
// Errors: FAILED_PRECONDITION, with where it was looked for.
absl::StatusOr<void*> LoadSharedLibrary(
    const std::string& file, const std::vector<std::string>& folders);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CUDA_FIND_LIBRARY_H_

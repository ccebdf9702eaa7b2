// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cuda/cublas.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/backend/cuda/find_library.h"

namespace holdfast {
namespace {

#define HOLDFAST_STRING_OF(x) #x
#define HOLDFAST_STRING(x) HOLDFAST_STRING_OF(x)
// The major version identifies the ABI.
constexpr char kLibrary[] = "libcublas.so." HOLDFAST_STRING(CUBLAS_VER_MAJOR);
#undef HOLDFAST_STRING
#undef HOLDFAST_STRING_OF

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<const Cublas*> Load() {
  HOLDFAST_ASSIGN_OR_RETURN(const auto loaded,
                            LoadSharedLibrary(kLibrary, CudaLibraryFolders()));
  void* const library = loaded;
  static Cublas cublas;
  const bool found =
      Find(library, "cublasCreate_v2", &cublas.create) &&
      Find(library, "cublasDestroy_v2", &cublas.destroy) &&
      Find(library, "cublasSetStream_v2", &cublas.set_stream) &&
      Find(library, "cublasSetWorkspace_v2", &cublas.set_workspace) &&
      Find(library, "cublasSetMathMode", &cublas.set_math_mode) &&
      Find(library, "cublasSetAtomicsMode", &cublas.set_atomics_mode) &&
      Find(library, "cublasSgemmStridedBatched",
           &cublas.sgemm_strided_batched) &&
      Find(library, "cublasSgemm_v2", &cublas.sgemm) &&
      Find(library, "cublasGemmStridedBatchedEx",
           &cublas.gemm_strided_batched_ex) &&
      Find(library, "cublasGemmEx", &cublas.gemm_ex) &&
      Find(library, "cublasGetStatusString", &cublas.get_status_string);
  if (!found) {
    return absl::FailedPreconditionError(absl::StrCat(
        kLibrary, " is not the version of cuBLAS that we know: ", dlerror()));
  }
  return &cublas;
}

}  // namespace

absl::StatusOr<const Cublas*> LoadCublas() {
  static const auto* const loaded = new absl::StatusOr<const Cublas*>(Load());
  return *loaded;
}

absl::Status CublasStatus(const Cublas& cublas, cublasStatus_t status,
                          absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": cuBLAS returned ",
                                          cublas.get_status_string(status)));
}

}  // namespace holdfast

// Which of its code OpenBLAS runs on this CPU.
//
// OpenBLAS chooses by the model number of the CPU when it is loaded, before
// main() begins. For a model that is newer than the library it takes its code
// of 2004 ("Prescott", SSE3), although the CPU has AVX2 or AVX-512: matrix
// products are then a quarter as fast. The environment variable
// OPENBLAS_CORETYPE overrides the choice.
#ifndef HOLDFAST_WORKER_BACKEND_CPU_BLAS_CORE_H_
#define HOLDFAST_WORKER_BACKEND_CPU_BLAS_CORE_H_

#include "absl/strings/string_view.h"
#include "common/base/simd.h"

namespace holdfast {

// The core that OpenBLAS should be told to take where it chose `chosen` by
// itself and the CPU has `simd`. Null: its choice is good.
const char* BetterBlasCore(absl::string_view chosen, Simd simd);

// Starts the program anew, with the same arguments, in the same process, and
// with OPENBLAS_CORETYPE set, if there is a BetterBlasCore for this CPU and the
// variable is not set already. Returns otherwise, or if the program cannot be
// started. To be called first in main(), before there are threads or open
// files.
void RestartWithBetterBlasCore(char** argv);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_BACKEND_CPU_BLAS_CORE_H_

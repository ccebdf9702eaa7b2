// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/blas_core.h"

#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace holdfast {
namespace {

constexpr char kVariable[] = "OPENBLAS_CORETYPE";

}  // namespace

const char* BetterBlasCore(absl::string_view chosen, Simd simd) {
  if (chosen != "Prescott") return nullptr;
  switch (simd) {
    case Simd::kAvx512:
      return "SKYLAKEX";
    case Simd::kAvx2:
      return "HASWELL";
    case Simd::kPlain:
      break;
  }
  return nullptr;
}

void RestartWithBetterBlasCore(char** argv) {
  const char* const core = BetterBlasCore(openblas_get_corename(), BestSimd());
  if (core == nullptr || std::getenv(kVariable) != nullptr) return;
  // Run by its path, so that tools show the program's name and not "exe".
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  setenv(kVariable, core, /*overwrite=*/1);
  execv(program.c_str(), argv);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/cpu/blas_core.h"

#include <cblas.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr char kVariable[] = "OPENBLAS_CORETYPE";

absl::Status NotRestarted(absl::string_view core, const std::string& program,
                          int error) {
  return absl::ErrnoToStatus(
      error,
      absl::StrCat("matrix products take several times as long as they could: "
                   "OpenBLAS does not know this CPU; set ",
                   kVariable, "=", core,
                   " in the environment, because this program could not "
                   "restart itself with it from ",
                   program));
}

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

absl::Status RestartWithBetterBlasCore(char** argv) {
  const char* const core = BetterBlasCore(openblas_get_corename(), BestSimd());
  if (core == nullptr || std::getenv(kVariable) != nullptr) {
    return absl::OkStatus();
  }
  // Run by its path, so that tools show the program's name and not "exe".
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return NotRestarted(core, "/proc/self/exe", error.value());
  return RestartWithBlasCore(core, program.string(), argv);
}

absl::Status RestartWithBlasCore(const char* core, const std::string& program,
                                 char** argv) {
  setenv(kVariable, core, /*overwrite=*/1);
  execv(program.c_str(), argv);
  const int error = errno;
  unsetenv(kVariable);
  return NotRestarted(core, program, error);
}

}  // namespace holdfast

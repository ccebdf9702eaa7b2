// SPDX-License-Identifier: Apache-2.0

// A worker that knows one more model: ps_worker with MatrixFactorization. It
// takes the same flags.

#include <cstdio>

#include "absl/status/status.h"
#include "examples/custom_table/matrix_factorization.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  holdfast::Registries registries;
  const absl::Status status = registries.models.Register(
      "matrix_factorization", holdfast_examples::MatrixFactorization::Create);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 2;
  }
  return holdfast::WorkerMain(argc, argv, registries);
}

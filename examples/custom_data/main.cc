// SPDX-License-Identifier: Apache-2.0

// A worker that knows one more source of examples: ps_worker with RingsDataset.
// It takes the same flags.

#include <cstdio>

#include "absl/status/status.h"
#include "examples/custom_data/rings_dataset.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  holdfast::Registries registries;
  const absl::Status status = registries.datasets.Register(
      "rings", holdfast_examples::RingsDataset::Create);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 2;
  }
  return holdfast::WorkerMain(argc, argv, registries);
}

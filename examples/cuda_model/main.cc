// A worker that knows one model more: ps_worker with GeluClassifier. It takes
// the same flags.

#include <cstdio>

#include "absl/status/status.h"
#include "examples/cuda_model/gelu_classifier.h"
#include "worker/model/registry.h"
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  holdfast::ModelRegistry registry;
  const absl::Status status = registry.Register(
      "gelu_classifier", holdfast_examples::GeluClassifier::Create);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 2;
  }
  return holdfast::WorkerMain(argc, argv, registry);
}

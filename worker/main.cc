// SPDX-License-Identifier: Apache-2.0

// ps_worker: the worker daemon for models that a job file describes.
#include "worker/worker_main.h"

int main(int argc, char** argv) {
  return holdfast::WorkerMain(argc, argv, holdfast::Registries());
}

// SPDX-License-Identifier: Apache-2.0

// The models of gpu_benchmark and enqueue_benchmark, and their training steps.
#ifndef HOLDFAST_TESTS_GPU_BENCHMARK_MODELS_H_
#define HOLDFAST_TESTS_GPU_BENCHMARK_MODELS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"

namespace holdfast {

struct BenchmarkModel {
  std::string name;
  proto::Model model;
  ExampleSpec examples;
  int64_t batch_size = 0;
  // Floating-point operations of a step for one example: two per
  // multiplication. Layers after the first do them three times: forward, and
  // backward for kernel and input.
  double flops = 0;
};

// Returns the models. Errors: those of LoadExample.
absl::StatusOr<std::vector<BenchmarkModel>> BenchmarkModels();

// Fills `values` with uniform random numbers in [0, 1).
void FillAtRandom(uint64_t seed, absl::Span<float> values);

// What a worker does with a model, on batches of random examples: parameters
// and examples are in memory of Backend::AllocateHost, gradients are dropped.
//
// Thread-compatible.
class BenchmarkSteps {
 public:
  // `backend` must outlive the result. Errors: those of CreateModel and
  // Backend::AllocateHost.
  static absl::StatusOr<std::unique_ptr<BenchmarkSteps>> Create(
      const BenchmarkModel& config, Backend* backend);

  // Uploads the parameters alone.
  absl::Status Upload();
  // Evaluates a batch with uploaded parameters.
  absl::Status Forward(int64_t step);
  // Computes the gradients; meanwhile the next batch is uploaded.
  absl::Status Step(int64_t step);

 private:
  explicit BenchmarkSteps(Backend* backend) : backend_(backend) {}

  // Two batches alternate.
  Batch BatchOf(int64_t step) const;

  Backend* const backend_;
  std::unique_ptr<Model> model_;
  std::vector<HostBuffer> memory_;
  std::vector<absl::Span<const float>> parameters_;
  std::vector<DeviceBuffer> staging_;
  absl::Span<const float> inputs_[2];
  std::vector<int32_t> labels_;
  std::vector<int64_t> positions_[2];
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_GPU_BENCHMARK_MODELS_H_

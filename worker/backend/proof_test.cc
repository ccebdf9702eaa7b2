// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/host_math.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/stream_backend.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

// Uses the fake device on the host.
class ProofTest : public ::testing::Test {
 protected:
  // The result of ProveBackend, after prepare(runtime).
  template <typename Prepare>
  absl::Status Prove(HostRuntime::Options options, Prepare prepare) {
    auto runtime = std::make_unique<HostRuntime>(options);
    HostRuntime* const host = runtime.get();
    auto math = std::make_unique<HostMath>(host, cpu_.get());
    StreamBackend backend(std::move(runtime), std::move(math),
                          {.name = "host:0", .description = {}});
    prepare(host);
    return ProveBackend(&backend);
  }

  std::unique_ptr<CpuBackend> cpu_ = *CpuBackend::Create({});
};

TEST_F(ProofTest, WhatComputesIsProven) {
  EXPECT_EQ(ProveBackend(cpu_.get()), absl::OkStatus());
  EXPECT_EQ(Prove({}, [](HostRuntime*) {}), absl::OkStatus());
}

TEST_F(ProofTest, WhatDoesNotSaysWhy) {
  EXPECT_EQ(Prove({},
                  [](HostRuntime* runtime) {
                    runtime->FailWith(absl::InternalError(
                        "no kernel image is available for execution"));
                  }),
            absl::InternalError("no kernel image is available for execution"));
  const absl::Status full = Prove({.total_bytes = 64}, [](HostRuntime*) {});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("no memory on host:0"));
}

TEST_F(ProofTest, RoundedFactorsAreNoError) {
  for (const Precision precision :
       {Precision::kBfloat16, Precision::kFloat16}) {
    const auto cpu = *CpuBackend::Create({.precision = precision});
    EXPECT_EQ(ProveBackend(cpu.get()), absl::OkStatus());
  }
}

// A device that does not wait for copies may compute before they have arrived.
TEST_F(ProofTest, WrongValuesAreAnError) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    HostRuntime::Options options;
    options.seed = seed;
    options.ignored_wait = {StreamId::kCompute, StreamId::kCopyIn};
    const absl::Status status = Prove(options, [](HostRuntime*) {});
    if (status.ok()) continue;
    EXPECT_EQ(status, absl::InternalError("it computes a wrong product of two "
                                          "2 x 2 matrices"));
    ++wrong;
  }
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

// Two fake devices of one machine.
class PeersProofTest : public ::testing::Test {
 protected:
  // `wrong`: whether the first copies zeros from the second.
  void Make(bool wrong, uint64_t seed) {
    auto machine = std::make_shared<HostRuntime::Machine>();
    for (const bool first : {true, false}) {
      HostRuntime::Options options;
      options.seed = seed;
      options.machine = machine;
      options.wrong_peer_copies = wrong && first;
      options.misuse = &misuse_;
      auto runtime = std::make_unique<HostRuntime>(options);
      runtimes_.push_back(runtime.get());
      auto math = std::make_unique<HostMath>(runtime.get(), cpu_.get());
      owned_.push_back(std::make_unique<StreamBackend>(
          std::move(runtime), std::move(math),
          StreamBackend::Options{first ? "host:0" : "host:1", {}}));
      backends_.push_back(owned_.back().get());
    }
  }

  // What the first backend fetches of a matrix with 1, 2, 3 of the second.
  std::vector<float> Fetch() {
    DeviceBuffer theirs, ours;
    SharedMatrix shared;
    const std::vector<float> values = {1, 2, 3};
    const auto matrix = backends_[1]->Upload(values, 1, 3, &theirs);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ(backends_[1]->Share(*matrix, &shared), absl::OkStatus());
    const auto fetched = backends_[0]->Fetch(shared, &ours);
    EXPECT_TRUE(fetched.ok()) << fetched.status();
    const auto download = backends_[0]->StartDownload(*fetched);
    EXPECT_TRUE(download.ok()) << download.status();
    EXPECT_EQ(backends_[0]->Await(*download), absl::OkStatus());
    return {download->values.begin(), download->values.end()};
  }

  absl::Status misuse_;
  std::unique_ptr<CpuBackend> cpu_ = *CpuBackend::Create({});
  std::vector<HostRuntime*> runtimes_;
  // Destroyed in this order: the reader first.
  std::list<std::unique_ptr<StreamBackend>> owned_;
  std::vector<Backend*> backends_;
  const std::vector<std::string> names_ = {"host:0", "host:1"};
};

TEST_F(PeersProofTest, WrongCopiesGoOverTheHost) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const bool wrong : {false, true}) {
      SCOPED_TRACE(absl::StrCat(seed, wrong ? ", wrong" : ""));
      owned_.clear();
      backends_.clear();
      runtimes_.clear();
      Make(wrong, seed);
      if (wrong) {
        EXPECT_THAT(Fetch(), ::testing::Each(0));
      }
      EXPECT_EQ(ProvePeers(backends_, names_), absl::OkStatus());
      EXPECT_THAT(Fetch(), ::testing::ElementsAre(1, 2, 3));
      EXPECT_EQ(runtimes_[0]->copies_over_host() > 0, wrong);
      EXPECT_EQ(misuse_, absl::OkStatus());
    }
  }
}

TEST_F(PeersProofTest, AnErrorIsReturned) {
  Make(/*wrong=*/false, /*seed=*/0);
  runtimes_[1]->FailWith(absl::InternalError("the device is lost"));
  EXPECT_EQ(ProvePeers(backends_, names_),
            absl::InternalError("the device is lost"));
}

TEST_F(PeersProofTest, OneBackendHasNoPeers) {
  EXPECT_EQ(ProvePeers({cpu_.get()}, {"cpu"}), absl::OkStatus());
  Backend* const both[] = {cpu_.get(), cpu_.get()};
  EXPECT_EQ(ProvePeers(both, {"cpu", "cpu"}), absl::OkStatus());
}

}  // namespace
}  // namespace holdfast

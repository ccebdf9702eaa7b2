// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/stream_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/norm.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/stream/testing/host_device.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

TEST(StreamBackendTest, UploadsOfSeveralPieces) {
  HostDevice device;
  DeviceBuffer staging;
  const std::vector<float> host = RandomValues((3 << 20) + 5, 1);
  const auto x = device.backend->Upload(host, 1, host.size(), &staging);
  ASSERT_TRUE(x.ok());
  const auto download = device.backend->StartDownload(*x);
  ASSERT_TRUE(download.ok());
  ASSERT_TRUE(device.backend->Await(*download).ok());
  EXPECT_TRUE(SameBits(download->values, host));
}

TEST(StreamBackendTest, PartsOfAMatrixAreDownloadedAsSuch) {
  HostDevice device;
  DeviceBuffer staging;
  const std::vector<float> host = RandomValues(20, 1);
  const auto x = device.backend->Upload(host, 4, 5, &staging);
  ASSERT_TRUE(x.ok());
  const auto row = [&](int64_t i) {
    return device.backend->StartDownload({x->data + i * 5, 1, 5});
  };
  const auto last = row(3), first = row(0);
  ASSERT_TRUE(last.ok() && first.ok());
  ASSERT_TRUE(device.backend->Await(*first).ok());
  EXPECT_TRUE(SameBits(first->values, absl::MakeConstSpan(host).first(5)));
  EXPECT_TRUE(SameBits(last->values, absl::MakeConstSpan(host).last(5)));
}

TEST(StreamBackendTest, EmptyMatrices) {
  HostDevice device;
  Backend* const backend = device.backend.get();
  DeviceBuffer staging, sums;
  const auto x = backend->Upload({}, 0, 5, &staging);
  ASSERT_TRUE(x.ok()) << x.status();
  ASSERT_TRUE(backend->Reserve(5, &sums).ok());
  backend->SumRows(*x, sums.View(1, 5));
  const auto none = backend->StartDownload(*x);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(*backend->HasArrived(*none));
  const auto download = backend->StartDownload(sums.View(1, 5));
  ASSERT_TRUE(download.ok());
  ASSERT_TRUE(backend->Await(*download).ok());
  EXPECT_THAT(download->values, ::testing::Each(0.0f));
}

TEST(StreamBackendTest, ASumOfSquaresIsThatOfTheCpu) {
  const std::vector<float> values = RandomValues(1000, 1);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    HostDevice device({.seed = seed});
    Backend* const backend = device.backend.get();
    DeviceBuffer staging, sums;
    const auto x = backend->Upload(values, 10, 100, &staging);
    ASSERT_TRUE(x.ok() && backend->Reserve(4, &sums).ok());
    backend->SumSquares(*x, {sums.View(1, 4).data + 2, 1, 2});
    // A matrix without values has the sum 0.
    backend->SumSquares({x->data, 0, 100}, sums.View(1, 2));
    const auto download = backend->StartDownload(sums.View(1, 4));
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
    std::array<double, 2> made;
    std::memcpy(made.data(), download->values.data(), sizeof(made));
    EXPECT_EQ(made[0], 0);
    EXPECT_EQ(made[1], SumOfSquares(values));
  }
}

// Values and weights are copied to the device like labels.
TEST(StreamBackendTest, LossesOfWeightedTargetsAreTheCpus) {
  HostDevice device({.lazy = true});
  const auto cpu = *CpuBackend::Create({});
  const std::vector<float> outputs = RandomValues(6, 1);
  const std::vector<float> targets = RandomValues(6, 2);
  const std::vector<float> weights = {0.5f, 0, 3};
  using Loss = std::function<absl::StatusOr<LossSums>(Backend*, ConstMatrix,
                                                      const Targets&, Matrix*)>;
  for (const Loss& loss :
       {Loss(std::mem_fn(&Backend::MeanSquaredError)),
        Loss(std::mem_fn(&Backend::MeanAbsoluteError)),
        Loss([](Backend*backend, ConstMatrix z, const Targets&targets,
                Matrix*dz) { return backend->Huber(z, targets, 0.5f, dz); }),
        Loss(std::mem_fn(&Backend::SigmoidCrossEntropy))}) {
    const auto on = [&](Backend* backend, std::vector<float>* gradient) {
      DeviceBuffer staging, result;
      const auto x = backend->Upload(outputs, 3, 2, &staging);
      EXPECT_TRUE(x.ok() && backend->Reserve(6, &result).ok());
      Matrix dz = result.View(3, 2);
      const auto sums = loss(backend, *x, {{}, targets, weights}, &dz);
      EXPECT_TRUE(sums.ok()) << sums.status();
      const auto download = backend->StartDownload(dz);
      EXPECT_TRUE(download.ok() && backend->Await(*download).ok());
      gradient->assign(download->values.begin(), download->values.end());
      return *sums;
    };
    std::vector<float> gradient, expected_gradient;
    const LossSums sums = on(device.backend.get(), &gradient);
    const LossSums expected = on(cpu.get(), &expected_gradient);
    EXPECT_EQ(sums.loss, expected.loss);
    EXPECT_EQ(sums.correct, std::nullopt);
    EXPECT_EQ(sums.absolute_error, expected.absolute_error);
    EXPECT_EQ(sums.squared_error, expected.squared_error);
    EXPECT_EQ(gradient, expected_gradient);
  }
}

TEST(StreamBackendTest, MemoryIsKeptForTheNext) {
  HostDevice device;
  DeviceBuffer buffer;
  ASSERT_TRUE(device.backend->Reserve(1000, &buffer).ok());
  const float* const data = buffer.View(1, 1).data;
  buffer = DeviceBuffer();
  ASSERT_TRUE(device.backend->Reserve(900, &buffer).ok());
  EXPECT_EQ(buffer.View(1, 1).data, data);
  DeviceBuffer other;
  // The block is not reused, because half of it would be wasted.
  buffer = DeviceBuffer();
  ASSERT_TRUE(device.backend->Reserve(100, &other).ok());
  EXPECT_NE(other.View(1, 1).data, data);
  EXPECT_EQ(device.runtime->allocations(), 2);
}

TEST(StreamBackendTest, OutOfMemorySaysWhatWasAskedAndWhatIsFree) {
  HostDevice device({.total_bytes = 8 << 20, .lazy = true});
  DeviceBuffer one, two;
  ASSERT_TRUE(device.backend->Reserve(1 << 20, &one).ok());
  // An operation is under way when the memory is given back.
  device.backend->Relu(one.View(1, 16), one.View(1, 16));
  absl::Status status = device.backend->Reserve(5 << 18, &two);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      status.message(),
      HasSubstr("no memory on host:0: the model asked for 5.0 MiB, 4.0 MiB of "
                "8.0 MiB are free, and the model holds 4.0 MiB"));
  status = device.backend->Reserve(int64_t{1} << 62, &two);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  // The backend still works, and unused blocks make room.
  one = DeviceBuffer();
  EXPECT_EQ(device.backend->Reserve(5 << 18, &two), absl::OkStatus());
  EXPECT_EQ(device.misuse, absl::OkStatus());
}

TEST(StreamBackendTest, AnErrorIsToldByTheNextCallThatCan) {
  HostDevice device;
  Backend* const backend = device.backend.get();
  DeviceBuffer buffer;
  ASSERT_TRUE(backend->Reserve(16, &buffer).ok());
  const Matrix x = buffer.View(4, 4);
  device.runtime->FailWith(absl::InternalError("an illegal address"));
  backend->Relu(x, x);
  device.runtime->FailWith(absl::OkStatus());
  // The device cannot be trusted from then on.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(backend->StartDownload(x).status(),
              absl::InternalError("an illegal address"));
  }
}

TEST(StreamBackendTest, RefusesMemoryOfOthers) {
  HostDevice device;
  Backend* const backend = device.backend.get();
  float value = 1;
  const Matrix x = {&value, 1, 1};
  EXPECT_EQ(backend->StartDownload(x).status().code(),
            absl::StatusCode::kInternal);
  backend->Relu(x, x);
  DeviceBuffer buffer;
  EXPECT_THAT(backend->Reserve(1, &buffer).message(),
              HasSubstr("a matrix that was given to host:0 is not in its "
                        "memory"));
}

}  // namespace
}  // namespace holdfast

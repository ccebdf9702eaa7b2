// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/stream/device_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/trace/testing/trace_testing.h"
#include "common/trace/trace.h"
#include "worker/backend/stream/host_runtime.h"
#include "worker/backend/stream/testing/host_device.h"
#include "worker/backend/testing/test_values.h"

namespace holdfast {
namespace {

constexpr int kSeeds = 200;

// The trace of an upload, two operations and a download: the spans of its file,
// and whether the result was right.
struct TracedRun {
  explicit TracedRun(const HostRuntime::Options& options) {
    HostDevice device(options);
    Backend* const backend = device.backend.get();
    backend->SetTracer(&tracer);
    DeviceBuffer staging, first, second;
    const std::vector<float> host = RandomValues(16, 1);
    const auto x = backend->Upload(host, 4, 4, &staging);
    EXPECT_TRUE(x.ok() && backend->Reserve(16, &first).ok() &&
                backend->Reserve(16, &second).ok());
    backend->Relu(*x, first.View(4, 4));
    backend->Add(first.View(4, 4), *x, second.View(4, 4));
    const auto download = backend->StartDownload(second.View(4, 4));
    EXPECT_TRUE(download.ok() && backend->Await(*download).ok());
    right = download->values[3] == std::max(host[3], 0.0f) + host[3];
  }

  // Whether the order of spans agrees with the dependencies.
  bool InOrder() const {
    const ReadTrace trace(tracer.ToJson());
    std::map<std::string, ReadTrace::Event> by_name;
    for (const ReadTrace::Event& event : trace.events) {
      by_name[event.name] = event;
    }
    EXPECT_EQ(by_name.size(), 4);
    return trace.Nests() && by_name["copy in"].end <= by_name["Relu"].begin &&
           by_name["Relu"].end <= by_name["Add"].begin &&
           by_name["Add"].end <= by_name["copy out"].begin;
  }

  Tracer tracer{{}};
  bool right = false;
};

TEST(DeviceTraceTest, ATraceShowsTheOrderOfTheDevice) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const TracedRun run({.seed = seed});
    EXPECT_TRUE(run.right);
    EXPECT_TRUE(run.InOrder()) << run.tracer.ToJson();
  }
}

// The trace itself does not cause the order above.
TEST(DeviceTraceTest, ATraceShowsThatAWaitIsMissing) {
  int out_of_order = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    HostRuntime::Options options;
    options.seed = seed;
    options.ignored_wait =
        std::make_pair(StreamId::kCompute, StreamId::kCopyIn);
    if (!TracedRun(options).InOrder()) ++out_of_order;
  }
  EXPECT_GT(out_of_order, 0);
}

// The host's clock, controlled by the test.
class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch() + absl::Seconds(100);
};

TEST(DeviceTraceTest, ATraceHasTheDevicesTimeOnTheHostsLine) {
  FakeClock clock;
  Tracer tracer({.clock = &clock});
  HostDevice device({.lazy = true});
  Backend* const backend = device.backend.get();
  backend->SetTracer(&tracer);
  DeviceBuffer staging, result;
  const std::vector<float> host = RandomValues(16, 1);
  const auto x = backend->Upload(host, 4, 4, &staging);
  ASSERT_TRUE(x.ok() && backend->Reserve(16, &result).ok());
  const auto relu = [&] {
    backend->Relu(*x, result.View(4, 4));
    const auto download = backend->StartDownload(result.View(4, 4));
    ASSERT_TRUE(download.ok() && backend->Await(*download).ok());
  };
  relu();
  // Collects the spans, and aligns the clocks again.
  clock.now += absl::Seconds(2);
  const std::vector<int32_t> labels(4);
  ASSERT_TRUE(backend->SoftmaxCrossEntropy(*x, {labels}, nullptr).ok());
  relu();
  staging = DeviceBuffer();
  result = DeviceBuffer();
  device.backend.reset();

  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> spans;
  for (const ReadTrace::Event& event : ReadTrace(tracer.ToJson()).events) {
    spans[event.name].emplace_back(std::llround(event.begin - 100e6),
                                   std::llround(event.end - 100e6));
  }
  // A copy is two items. Those of other streams wait for it, which is an item
  // too.
  EXPECT_EQ(spans["copy in"][0], std::make_pair(int64_t{0}, int64_t{2}));
  ASSERT_EQ(spans["Relu"].size(), 2);
  EXPECT_EQ(spans["Relu"][0], std::make_pair(int64_t{3}, int64_t{4}));
  EXPECT_EQ(spans["copy out"][0], std::make_pair(int64_t{5}, int64_t{7}));
  // The loss is timed by the first anchor.
  EXPECT_LT(spans["Loss"][0].second, 1000);
  EXPECT_GE(spans["Relu"][1].first, 2'000'000);
  EXPECT_LT(spans["Relu"][1].second, 2'001'000);
}

TEST(DeviceTraceTest, ATraceTellsBytesAndTracks) {
  Tracer tracer({});
  HostDevice device;
  device.backend->SetTracer(&tracer);
  DeviceBuffer staging;
  const std::vector<float> host = RandomValues((3 << 20) + 5, 1);
  const auto x = device.backend->Upload(host, 1, host.size(), &staging);
  ASSERT_TRUE(x.ok());
  ASSERT_TRUE(device.backend->StartDownload({x->data, 1, 7}).ok());
  staging = DeviceBuffer();
  device.backend.reset();
  const auto copies = ReadTrace(tracer.ToJson()).OfKind("copy");
  ASSERT_EQ(copies.size(), 2);
  EXPECT_EQ(copies[0].track, "host:0 copies in");
  EXPECT_EQ(copies[0].args.at("bytes"), host.size() * sizeof(float));
  EXPECT_EQ(copies[1].track, "host:0 copies out");
  EXPECT_EQ(copies[1].args.at("bytes"), 28);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// Whether results depend on the timing of a device's streams: the same program
// runs with pauses at random places in the streams (DelayedRuntime) and without
// them, and must give the same bits. If a kind of wait is left out, some
// program must give others.
//
// On the stand-in this tests the test: its scheduler is random anyway
// (worker/backend/stream:ordered_streams_test).

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tests/gpu/case_count.h"
#include "tests/gpu/device_under_test.h"
#include "tests/gpu/parity.h"
#include "worker/model/registry.h"

namespace holdfast {
namespace {

// Uploads, operations and downloads of a few matrices, in an order that follows
// from `seed` and not from when the device has done what.
class Program {
 public:
  // kAnyWork includes operations whose labels and positions are uploaded. If
  // these are wrong, operations may read from anywhere.
  enum Kind { kAnyWork, kHarmlessWork };

  Program(Backend* backend, uint64_t seed, Kind kind)
      : backend_(backend), random_(seed), kind_(kind) {
    for (Slot& slot : slots_) {
      for (HostBuffer& host : slot.pinned) {
        auto memory = backend_->AllocateHost(kSize);
        EXPECT_TRUE(memory.ok()) << memory.status();
        if (memory.ok()) host = *std::move(memory);
      }
      Upload(&slot);
    }
  }

  // Returns all values that were downloaded, and the losses.
  std::vector<float> Run(int steps) {
    for (int i = 0; i < steps; ++i) Step();
    for (Slot& slot : slots_) {
      if (!slot.download.has_value()) Download(&slot);
      Arrive(&slot);
    }
    return std::move(results_);
  }

 private:
  static constexpr int64_t kSide = 64;
  static constexpr int64_t kSize = kSide * kSide;

  struct Slot {
    Matrix matrix() { return buffer.View(kSide, kSide); }

    DeviceBuffer buffer;
    // Memory that uploads read directly, used in turn.
    std::array<HostBuffer, 4> pinned;
    size_t uploads = 0;
    std::optional<holdfast::Download> download;
  };

  Slot& Any() { return slots_[random_() % slots_.size()]; }

  void Upload(Slot* slot) {
    const std::vector<float> values =
        RandomValues(kSize, static_cast<uint32_t>(random_()));
    if (random_() % 2 == 0) {
      // The backend moves the values before the call returns.
      EXPECT_TRUE(backend_->Upload(values, kSide, kSide, &slot->buffer).ok());
      return;
    }
    const size_t turn = slot->uploads++ % slot->pinned.size();
    if (turn == 0) {
      EXPECT_TRUE(backend_->AwaitUploads().ok());
    }
    float* const host = slot->pinned[turn].get();
    std::copy(values.begin(), values.end(), host);
    EXPECT_TRUE(
        backend_->Upload({host, kSize}, kSide, kSide, &slot->buffer).ok());
  }

  void Download(Slot* slot) {
    const auto download = backend_->StartDownload(slot->matrix());
    ASSERT_TRUE(download.ok()) << download.status();
    slot->download = *download;
  }

  void Arrive(Slot* slot) {
    ASSERT_EQ(backend_->Await(*slot->download), absl::OkStatus());
    const auto values = slot->download->values;
    results_.insert(results_.end(), values.begin(), values.end());
    slot->download.reset();
  }

  void Step() {
    Slot& slot = Any();
    if (slot.download.has_value()) {
      // A matrix that is being downloaded must not change.
      if (random_() % 2 == 0) Arrive(&slot);
      return;
    }
    Slot& a = Any();
    Slot& b = Any();
    switch (random_() % (kind_ == kAnyWork ? 8 : 6)) {
      case 0:
      case 1:
        return Upload(&slot);
      case 2:
        return Download(&slot);
      case 3:
        // The memory may get another user.
        slot.buffer = DeviceBuffer();
        return Upload(&slot);
      case 4:
        if (&a == &slot || &b == &slot) return;
        backend_->MatMul(Form::kPlain, a.matrix(), Form::kTransposed,
                         b.matrix(), slot.matrix());
        return backend_->Scale(0.1f, slot.matrix(), slot.matrix());
      case 5:
        backend_->Add(a.matrix(), b.matrix(), slot.matrix());
        return backend_->Scale(0.5f, slot.matrix(), slot.matrix());
      case 6:
        positions_.emplace_back(kSide, random_());
        return backend_->Dropout(slot.matrix(), positions_.back(), 1, 0.5f,
                                 slot.matrix());
      default: {
        const std::vector<int32_t> labels(kSide, random_() % kSide);
        const auto loss =
            backend_->SoftmaxCrossEntropy(slot.matrix(), {labels}, nullptr);
        ASSERT_TRUE(loss.ok()) << loss.status();
        results_.push_back(static_cast<float>(loss->loss));
      }
    }
  }

  Backend* const backend_;
  std::mt19937_64 random_;
  const Kind kind_;
  std::array<Slot, 6> slots_;
  std::vector<std::vector<int64_t>> positions_;
  std::vector<float> results_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class DelaysTest : public DeviceComparison {
 protected:
  static constexpr int kSteps = 150;

  void SetUp() override {
    DeviceComparison::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const auto delayed = MakeDelayedDeviceUnderTest({});
    if (absl::IsUnimplemented(delayed.status())) {
      GTEST_SKIP() << delayed.status().message();
    }
    ASSERT_TRUE(delayed.ok()) << delayed.status();
  }

  // Whether a program gives the same bits on the device with these delays.
  bool Agrees(Program::Kind kind, const DelayOptions& delays) {
    const auto delayed = MakeDelayedDeviceUnderTest(delays);
    EXPECT_TRUE(delayed.ok()) << delayed.status();
    if (!delayed.ok()) return false;
    ++g_cases;
    return SameBits(Program(delayed->get(), delays.seed, kind).Run(kSteps),
                    Program(device_.get(), delays.seed, kind).Run(kSteps));
  }
};

TEST_F(DelaysTest, ProgramsGiveTheSameBits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_TRUE(Agrees(Program::kAnyWork, {.seed = seed}));
  }
}

TEST_F(DelaysTest, AMissingWaitShows) {
  constexpr StreamId kCompute = StreamId::kCompute;
  constexpr StreamId kIn = StreamId::kCopyIn;
  constexpr StreamId kOut = StreamId::kCopyOut;
  const std::pair<StreamId, StreamId> kWaits[] = {
      {kCompute, kIn}, {kIn, kCompute}, {kOut, kCompute}, {kOut, kIn}};
  for (const auto& wait : kWaits) {
    bool shows = false;
    for (uint64_t seed = 0; seed < 40 && !shows; ++seed) {
      shows =
          !Agrees(Program::kHarmlessWork, {.seed = seed, .ignored_wait = wait});
    }
    EXPECT_TRUE(shows) << "stream " << static_cast<int>(wait.first)
                       << " does not wait for "
                       << static_cast<int>(wait.second);
  }
}

// The gradients of a model, whose parameters and next batch are uploaded while
// it computes.
TEST_F(DelaysTest, ModelsGiveTheSameBits) {
  constexpr int64_t kExamples = 16;
  constexpr int64_t kInputs = 8 * 8 * 4;
  proto::Model config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(layers { conv2d { filters: 8 kernel_size: 3 use_bias: false } }
           layers { batch_norm {} }
           layers { relu {} }
           layers { conv2d { filters: 8 kernel_size: 3 groups: 8 } }
           layers { max_pool2d { size: 2 } }
           layers { flatten {} }
           layers { dropout { rate: 0.2 } }
           layers { dense { units: 10 } }
           loss { softmax_cross_entropy {} })pb",
      config.mutable_sequential()));
  const auto gradients_of = [&](Backend* backend) {
    std::vector<float> gradients;
    const auto model =
        CreateModel(config, {{8, 8, 4}, 10}, 1, backend, ModelRegistry());
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return gradients;
    std::vector<HostBuffer> memory;
    std::vector<absl::Span<const float>> parameters;
    const auto pinned = [&](int64_t size, uint32_t key) {
      memory.push_back(*backend->AllocateHost(size));
      const std::vector<float> values = RandomValues(size, key);
      std::copy(values.begin(), values.end(), memory.back().get());
      return absl::MakeConstSpan(memory.back().get(), size);
    };
    for (const proto::Variable& variable : (*model)->Variables()) {
      int64_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      parameters.push_back(
          pinned(size, 100 + static_cast<uint32_t>(parameters.size())));
    }
    const absl::Span<const float> inputs[] = {pinned(kExamples * kInputs, 1),
                                              pinned(kExamples * kInputs, 2)};
    std::vector<int32_t> labels(kExamples);
    std::vector<int64_t> positions(kExamples);
    for (int64_t i = 0; i < kExamples; ++i) {
      labels[i] = static_cast<int32_t>(i * 7 % 10);
      positions[i] = i;
    }
    for (int step = 0; step < 6; ++step) {
      Batch batch;
      batch.inputs = inputs[step % 2];
      batch.labels = labels;
      batch.positions = positions;
      batch.next_inputs = inputs[(step + 1) % 2];
      batch.next_positions = positions;
      std::vector<std::vector<float>> of_step(parameters.size());
      const auto result = (*model)->ComputeGradients(
          parameters, batch,
          [&](int variable, absl::Span<const float> gradient) {
            of_step[variable].assign(gradient.begin(), gradient.end());
          });
      EXPECT_TRUE(result.ok()) << result.status();
      for (const std::vector<float>& gradient : of_step) {
        gradients.insert(gradients.end(), gradient.begin(), gradient.end());
      }
    }
    return gradients;
  };
  const std::vector<float> expected = gradients_of(device_.get());
  EXPECT_FALSE(expected.empty());
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    const auto delayed = MakeDelayedDeviceUnderTest({.seed = seed});
    ASSERT_TRUE(delayed.ok()) << delayed.status();
    EXPECT_TRUE(SameBits(gradients_of(delayed->get()), expected));
    ++g_cases;
  }
}

}  // namespace
}  // namespace holdfast

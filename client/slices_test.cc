// SPDX-License-Identifier: Apache-2.0

// Variables in several slices, as the user sees them: whole.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/client_test_base.h"
#include "client/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

struct Placed {
  std::string variable;
  uint64_t begin;
  uint64_t size;
  uint32_t ps;

  // Whether all of [at, at + count) of `name` at `where` is in this slice.
  bool Holds(const std::string& name, uint64_t at, uint64_t count,
             uint32_t where) const {
    return name == variable && where == ps && at >= begin &&
           at + count <= begin + size;
  }
};

// "a" in two neighbours on one ps; "b" there and back.
const std::vector<Placed> kSlices = {{"b", 6, 2, 0}, {"a", 3, 3, 0},
                                     {"b", 0, 3, 0}, {"c", 0, 1, 1},
                                     {"a", 0, 3, 0}, {"b", 3, 3, 1}};

bool InOneSlice(const std::string& name, uint64_t begin, uint64_t size,
                uint32_t ps) {
  return std::any_of(kSlices.begin(), kSlices.end(), [&](const Placed& p) {
    return p.Holds(name, begin, size, ps);
  });
}

class SlicesTest : public ClientTest {
 protected:
  SlicesTest() {
    ps(0).place.Do([](int, const auto&, auto* response) {
      AnswerPlacement(response);
      response->clear_slices();
      for (const Placed& placed : kSlices) {
        proto::Slice* slice = response->add_slices();
        slice->set_variable(placed.variable);
        slice->set_begin(placed.begin);
        slice->set_size(placed.size);
        slice->set_ps(placed.ps);
      }
      return absl::OkStatus();
    });
  }

  std::unique_ptr<Cluster> ConnectWithParts(int64_t part_bytes) {
    Cluster::Options options = OptionsFor(kWorker);
    options.part_bytes = part_bytes;
    return ConnectReady(options);
  }
};

TEST_F(SlicesTest, APullPutsThemTogether) {
  for (const int64_t part_bytes : {4, 8, 16, 1 << 20}) {
    ++version;
    const std::unique_ptr<Cluster> cluster = ConnectWithParts(part_bytes);
    ASSERT_NE(cluster, nullptr);
    Parameters values;
    const absl::Status status =
        cluster->StartPull(GlobalStep(version.load()), &values)->Await(Late());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(values.All(), ::testing::ElementsAreArray(ValuesAt(version)));
  }
  for (uint32_t i = 0; i < 2; ++i) {
    for (const proto::PullRequest& request : ps(i).pull.requests()) {
      for (const proto::ReadRange& range : request.ranges()) {
        EXPECT_TRUE(
            InOneSlice(range.variable(), range.begin(), range.size(), i))
            << range.ShortDebugString();
      }
    }
  }
}

TEST_F(SlicesTest, APushTakesThemApart) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b = {10, 11, 12, 13, 14, 15, 16, 17};
  uint64_t step = 0;
  for (const int64_t part_bytes : {4, 8, 16, 1 << 20}) {
    const std::unique_ptr<Cluster> cluster = ConnectWithParts(part_bytes);
    ASSERT_NE(cluster, nullptr);
    const auto push = cluster->StartPush(GlobalStep(++step));
    ASSERT_TRUE(push->Add(1, b).ok());
    ASSERT_TRUE(push->Add(0, a).ok());
    ASSERT_EQ(push->AwaitHeld(Late()), absl::OkStatus());

    std::vector<float> got_a(a.size(), 0);
    std::vector<float> got_b(b.size(), 0);
    for (uint32_t i = 0; i < 2; ++i) {
      for (const proto::PushRequest& request : ps(i).push.requests()) {
        if (request.step() != step) continue;
        for (const proto::TensorPart& part : request.tensors()) {
          const uint64_t size = part.data().size() / sizeof(float);
          ASSERT_TRUE(InOneSlice(part.variable(), part.begin(), size, i))
              << part.ShortDebugString();
          std::vector<float>& got = part.variable() == "a" ? got_a : got_b;
          std::memcpy(got.data() + part.begin(), part.data().data(),
                      part.data().size());
        }
      }
    }
    EXPECT_EQ(got_a, a) << part_bytes;
    EXPECT_EQ(got_b, b) << part_bytes;
  }
}

}  // namespace
}  // namespace holdfast::client

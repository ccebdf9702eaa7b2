#include "common/placement.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using Shapes = std::vector<std::vector<int64_t>>;

std::vector<VariableShape> Variables(const Shapes& shapes) {
  std::vector<VariableShape> variables;
  for (const auto& shape : shapes) {
    variables.push_back({absl::StrCat("v", variables.size()), shape});
  }
  return variables;
}

// fashion_mnist_mlp: kernel and bias of 784-512-512-10.
const Shapes kMlp = {{784, 512}, {512}, {512, 512}, {512}, {512, 10}, {10}};

struct Case {
  std::string what;
  Shapes shapes;
  uint32_t num_ps;
  proto::PlacementStrategy strategy;
  std::vector<uint32_t> placement;
};

const Case kCases[] = {
    {"nothing", {}, 2, proto::ROUND_ROBIN, {}},
    {"nothing, greedy", {}, 2, proto::GREEDY_BY_BYTES, {}},
    {"one ps", kMlp, 1, proto::ROUND_ROBIN, {0, 0, 0, 0, 0, 0}},
    {"one ps, greedy", kMlp, 1, proto::GREEDY_BY_BYTES, {0, 0, 0, 0, 0, 0}},
    {"round robin", kMlp, 2, proto::ROUND_ROBIN, {0, 1, 0, 1, 0, 1}},
    {"round robin by three", kMlp, 3, proto::ROUND_ROBIN, {0, 1, 2, 0, 1, 2}},
    {"more ps than variables", {{1}, {1}}, 5, proto::ROUND_ROBIN, {0, 1}},
    // Elements: 401408 | 512, 262656, 263168, 268288, 268298.
    {"the greatest alone", kMlp, 2, proto::GREEDY_BY_BYTES, {0, 1, 1, 1, 1, 1}},
    // 401408 | 512, 1024, 6144, 6154 | 262144.
    {"three", kMlp, 3, proto::GREEDY_BY_BYTES, {0, 1, 2, 1, 1, 1}},
    {"ties go to the lowest",
     {{4}, {4}, {4}, {4}, {4}},
     3,
     proto::GREEDY_BY_BYTES,
     {0, 1, 2, 0, 1}},
    // 3 | 5; 3+2 | 5: equal, so the last goes to 0.
    {"a tie made by sums",
     {{3}, {5}, {2}, {1}},
     2,
     proto::GREEDY_BY_BYTES,
     {0, 1, 0, 0}},
    {"scalars and empty ones",
     {{}, {0}, {0, 7}, {}, {2}},
     2,
     proto::GREEDY_BY_BYTES,
     {0, 1, 1, 1, 0}},
    {"uneven shapes",
     {{1000003, 1}, {1, 999983}, {17, 19, 23}, {3}, {}},
     2,
     proto::GREEDY_BY_BYTES,
     {0, 1, 1, 0, 0}},
};

TEST(PlacementTest, Table) {
  for (const Case& test : kCases) {
    const auto placement =
        PlaceVariables(Variables(test.shapes), test.num_ps, test.strategy);
    ASSERT_TRUE(placement.ok()) << test.what << ": " << placement.status();
    EXPECT_EQ(*placement, test.placement) << test.what;
  }
}

TEST(PlacementTest, Refused) {
  const int64_t k2To60 = int64_t{1} << 60;
  const struct {
    Shapes shapes;
    uint32_t num_ps;
    proto::PlacementStrategy strategy;
    std::string error;
  } kRefused[] = {
      {{{1}}, 0, proto::ROUND_ROBIN, "need a ps"},
      {{{1}, {2, -1}},
       1,
       proto::ROUND_ROBIN,
       "variable \"v1\": shape [2,-1] has a negative dimension"},
      {{{k2To60, k2To60}}, 1, proto::GREEDY_BY_BYTES, "variable \"v0\""},
      // 2^61 elements are 2^63 bytes.
      {{{2 * k2To60}}, 1, proto::ROUND_ROBIN, "more bytes than 64 bits"},
      {{{k2To60}, {k2To60}}, 2, proto::GREEDY_BY_BYTES, "variable \"v1\""},
      {{{1}},
       1,
       static_cast<proto::PlacementStrategy>(99),
       "unknown placement strategy 99"},
  };
  for (const auto& test : kRefused) {
    const auto placement =
        PlaceVariables(Variables(test.shapes), test.num_ps, test.strategy);
    EXPECT_EQ(placement.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(placement.status().message()),
                HasSubstr(test.error));
  }
}

}  // namespace
}  // namespace holdfast

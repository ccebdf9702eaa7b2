// SPDX-License-Identifier: Apache-2.0
#include "ps_server/coordinator/placement.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;

struct Declared {
  std::vector<int64_t> shape;
  // A Partitioner as text, or nothing.
  std::string partitioner = "";
};

proto::Partitioner ParsePartitioner(const std::string& text) {
  proto::Partitioner partitioner;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &partitioner))
      << text;
  return partitioner;
}

// Variables "v0", "v1", ...
proto::Declaration Declare(
    const std::vector<Declared>& variables,
    proto::PlacementStrategy strategy = proto::ROUND_ROBIN,
    const std::string& partitioner = "") {
  proto::Declaration declaration;
  declaration.set_placement(strategy);
  if (!partitioner.empty()) {
    *declaration.mutable_partitioner() = ParsePartitioner(partitioner);
  }
  for (const Declared& declared : variables) {
    proto::Variable* variable = declaration.add_variables();
    variable->set_name(absl::StrCat("v", declaration.variables_size() - 1));
    variable->mutable_shape()->Assign(declared.shape.begin(),
                                      declared.shape.end());
    variable->set_dtype(proto::FLOAT32);
    if (!declared.partitioner.empty()) {
      *variable->mutable_partitioner() = ParsePartitioner(declared.partitioner);
    }
  }
  return declaration;
}

// The elements of a row along the first dimension; 1 for a scalar.
uint64_t RowElements(const proto::Variable& variable) {
  uint64_t elements = 1;
  for (int i = 1; i < variable.shape_size(); ++i) {
    elements *= variable.shape(i);
  }
  return elements;
}

// "4@0 3@1 | 7@0" means a first variable with four rows on ps 0 and three on ps
// 1, and a second one with seven on ps 0; a variable without elements is "0@"
// and its ps. Checks that the slices are adjacent, and consist of whole rows.
std::string Show(const proto::Declaration& declaration,
                 const std::vector<proto::Slice>& slices) {
  std::vector<std::string> variables;
  auto slice = slices.begin();
  for (const proto::Variable& variable : declaration.variables()) {
    std::vector<std::string> shown;
    uint64_t begin = 0;
    const uint64_t row = RowElements(variable);
    for (; slice != slices.end() && slice->variable() == variable.name();
         ++slice) {
      EXPECT_EQ(slice->begin(), begin) << slice->DebugString();
      begin += slice->size();
      const uint64_t rows = row == 0 ? 0 : slice->size() / row;
      EXPECT_EQ(slice->size(), rows * row) << slice->DebugString();
      shown.push_back(absl::StrCat(rows, "@", slice->ps()));
    }
    variables.push_back(absl::StrJoin(shown, " "));
  }
  EXPECT_EQ(slice, slices.end()) << "slices of what is not declared next";
  return absl::StrJoin(variables, " | ");
}

std::string Place(const proto::Declaration& declaration, uint32_t num_ps) {
  const auto slices = PlaceVariables(declaration, num_ps);
  if (!slices.ok()) return slices.status().ToString();
  return Show(declaration, *slices);
}

struct Case {
  std::vector<Declared> variables;
  uint32_t num_ps;
  std::string placement;
};

// The placement by TensorFlow 2.21.0: variables made with
// tf.compat.v1.get_variable under tf.compat.v1.train.replica_device_setter,
// with the partitioners of tf.distribute.experimental.partitioners
// (fixed_shards is FixedShardsPartitioner, min_size MinSizePartitioner,
// max_size MaxSizePartitioner). The default max_shards of min_size was given as
// the number of ps.
const Case kAsTensorFlow[] = {
    {{{{10, 3}, "fixed_shards { shards: 3 }"}}, 2, "4@0 3@1 3@0"},
    {{{{10}, "fixed_shards { shards: 4 }"}}, 3, "3@0 3@1 2@2 2@0"},
    {{{{3, 1000}, "fixed_shards { shards: 8 }"}}, 2, "1@0 1@1 1@0"},
    {{{{7, 5}, "fixed_shards { shards: 1 }"}}, 2, "7@0"},
    {{{{1000003, 1}, "fixed_shards { shards: 7 }"}},
     4,
     "142858@0 142858@1 142858@2 142858@3 142857@0 142857@1 142857@2"},
    {{{{1, 999983}, "fixed_shards { shards: 4 }"}}, 2, "1@0"},

    {{{{1024, 1024}, "min_size {}"}}, 3, "342@0 341@1 341@2"},
    {{{{1024, 1024}, "min_size { max_shards: 100 }"}},
     3,
     "64@0 64@1 64@2 64@0 64@1 64@2 64@0 64@1 64@2 64@0 64@1 64@2 64@0 64@1 "
     "64@2 64@0"},
    {{{{65535}, "min_size {}"}}, 8, "65535@0"},
    {{{{65536}, "min_size {}"}}, 8, "65536@0"},
    {{{{65537}, "min_size {}"}}, 8, "32769@0 32768@1"},
    {{{{17, 19, 23}, "min_size { min_slice_bytes: 5000 max_shards: 10 }"}},
     4,
     "3@0 3@1 3@2 3@3 3@0 2@1"},
    {{{{3, 1000}, "min_size { min_slice_bytes: 4 max_shards: 10 }"}},
     4,
     "1@0 1@1 1@2"},

    {{{{6, 1}, "max_size { max_slice_bytes: 4 }"}},
     4,
     "1@0 1@1 1@2 1@3 1@0 1@1"},
    {{{{6, 1}, "max_size { max_slice_bytes: 4 max_shards: 4 }"}},
     3,
     "2@0 2@1 1@2 1@0"},
    {{{{6, 1}, "max_size { max_slice_bytes: 1024 }"}}, 3, "6@0"},
    {{{{10, 3}, "max_size { max_slice_bytes: 50 }"}}, 3, "4@0 3@1 3@2"},
    {{{{17, 19, 23}, "max_size { max_slice_bytes: 10000 }"}},
     2,
     "5@0 4@1 4@0 4@1"},
    {{{{5, 100}, "max_size { max_slice_bytes: 399 }"}},
     2,
     "1@0 1@1 1@0 1@1 1@0"},
    {{{{5, 100}, "max_size { max_slice_bytes: 799 }"}},
     2,
     "1@0 1@1 1@0 1@1 1@0"},
    {{{{5, 100}, "max_size { max_slice_bytes: 800 }"}}, 2, "2@0 2@1 1@0"},
    {{{{1000003, 16}, "max_size { max_slice_bytes: 16777215 }"}},
     3,
     "250001@0 250001@1 250001@2 250000@0"},

    // Round robin goes on from variable to variable.
    {{{{784, 512}, "fixed_shards { shards: 2 }"},
      {{512}, "fixed_shards { shards: 2 }"},
      {{}},
      {{512, 10}, "fixed_shards { shards: 3 }"},
      {{10}, "fixed_shards { shards: 3 }"}},
     3,
     "392@0 392@1 | 256@2 256@0 | 1@1 | 171@2 171@0 170@1 | 4@2 3@0 3@1"},
};

TEST(PlacementTest, CutsAsTensorFlowDoes) {
  for (const Case& test : kAsTensorFlow) {
    const proto::Declaration declaration = Declare(test.variables);
    EXPECT_EQ(Place(declaration, test.num_ps), test.placement)
        << declaration.ShortDebugString();
  }
}

// Kernels and biases of 784-512-512-10.
const std::vector<Declared> kMlp = {{{784, 512}}, {{512}},     {{512, 512}},
                                    {{512}},      {{512, 10}}, {{10}}};

TEST(PlacementTest, ThePartitionerOfTheDeclaration) {
  // TensorFlow 2.21.0, as above, with the partitioner at each variable.
  EXPECT_EQ(Place(Declare(kMlp, proto::ROUND_ROBIN,
                          "max_size { max_slice_bytes: 500000 }"),
                  2),
            "196@0 196@1 196@0 196@1 | 512@0 | 171@1 171@0 170@1 | 512@0 | "
            "512@1 | 10@0");
  // A variable's own partitioner has precedence, even one that does not cut.
  EXPECT_EQ(Place(Declare({{{6, 2}},
                           {{6, 2}, "fixed_shards { shards: 1 }"},
                           {{6, 2}, "fixed_shards { shards: 3 }"}},
                          proto::ROUND_ROBIN, "fixed_shards { shards: 2 }"),
                  2),
            "3@0 3@1 | 6@0 | 2@1 2@0 2@1");
}

TEST(PlacementTest, ScalarsAndWhatIsEmptyAreOneSlice) {
  const std::vector<Declared> variables = {
      {{}}, {{0}}, {{0, 7}}, {{5, 0}}, {{2}}};
  for (const char* partitioner :
       {"fixed_shards { shards: 9 }",
        "min_size { min_slice_bytes: 1 max_shards: 9 }",
        "max_size { max_slice_bytes: 1 }"}) {
    EXPECT_EQ(Place(Declare(variables, proto::ROUND_ROBIN, partitioner), 2),
              "1@0 | 0@1 | 0@0 | 0@1 | 1@0 1@1")
        << partitioner;
  }
}

TEST(PlacementTest, WithoutAPartitioner) {
  const std::vector<std::tuple<std::vector<Declared>, uint32_t,
                               proto::PlacementStrategy, std::string>>
      cases = {
          {{}, 2, proto::ROUND_ROBIN, ""},
          {{}, 2, proto::GREEDY_BY_BYTES, ""},
          {kMlp, 1, proto::ROUND_ROBIN,
           "784@0 | 512@0 | 512@0 | 512@0 | 512@0 | 10@0"},
          {kMlp, 1, proto::GREEDY_BY_BYTES,
           "784@0 | 512@0 | 512@0 | 512@0 | 512@0 | 10@0"},
          {kMlp, 2, proto::ROUND_ROBIN,
           "784@0 | 512@1 | 512@0 | 512@1 | 512@0 | 10@1"},
          {kMlp, 3, proto::ROUND_ROBIN,
           "784@0 | 512@1 | 512@2 | 512@0 | 512@1 | 10@2"},
          {{{{1}}, {{1}}}, 5, proto::ROUND_ROBIN, "1@0 | 1@1"},
          // Elements: 401408 | 512, 262656, 263168, 268288, 268298.
          {kMlp, 2, proto::GREEDY_BY_BYTES,
           "784@0 | 512@1 | 512@1 | 512@1 | 512@1 | 10@1"},
          // 401408 | 512, 1024, 6144, 6154 | 262144.
          {kMlp, 3, proto::GREEDY_BY_BYTES,
           "784@0 | 512@1 | 512@2 | 512@1 | 512@1 | 10@1"},
      };
  for (const auto& [variables, num_ps, strategy, placement] : cases) {
    EXPECT_EQ(Place(Declare(variables, strategy), num_ps), placement)
        << num_ps << " ps, " << proto::PlacementStrategy_Name(strategy);
  }
}

TEST(PlacementTest, GreedyByBytes) {
  const auto greedy = [](const std::vector<Declared>& variables,
                         uint32_t num_ps) {
    return Place(Declare(variables, proto::GREEDY_BY_BYTES), num_ps);
  };
  // Ties go to the lowest index.
  EXPECT_EQ(greedy({{{4}}, {{4}}, {{4}}, {{4}}, {{4}}}, 3),
            "4@0 | 4@1 | 4@2 | 4@0 | 4@1");
  // 3 | 5; 3+2 | 5: equal, so the last goes to 0.
  EXPECT_EQ(greedy({{{3}}, {{5}}, {{2}}, {{1}}}, 2), "3@0 | 5@1 | 2@0 | 1@0");
  EXPECT_EQ(greedy({{{}}, {{0}}, {{0, 7}}, {{}}, {{2}}}, 2),
            "1@0 | 0@1 | 0@1 | 1@1 | 2@0");
  EXPECT_EQ(
      greedy({{{1000003, 1}}, {{1, 999983}}, {{17, 19, 23}}, {{3}}, {{}}}, 2),
      "1000003@0 | 1@1 | 17@1 | 3@0 | 1@0");
  // Slices one by one, two neighbours on one ps. Elements: 12 | 9; 12 | 9+6;
  // 12+6 | 15; 18 | 15+6.
  EXPECT_EQ(greedy({{{7, 3}, "fixed_shards { shards: 2 }"},
                    {{6, 3}, "fixed_shards { shards: 3 }"}},
                   2),
            "4@0 3@1 | 2@1 2@0 2@1");
  // 10 | 1; 10 | 1+4; 10 | 5+4; 10 | 9+3.
  EXPECT_EQ(
      greedy({{{10}}, {{1}}, {{11}, "max_size { max_slice_bytes: 16 }"}}, 2),
      "10@0 | 1@1 | 4@1 4@1 3@1");
}

TEST(PlacementTest, NumbersAtTheEndOf64Bits) {
  const int64_t k2To60 = int64_t{1} << 60;
  // 2^62 bytes in rows of 4 or 2^61 bytes.
  EXPECT_EQ(Place(Declare({{{k2To60}, "fixed_shards { shards: 3 }"}}), 2),
            "384307168202282326@0 384307168202282325@1 384307168202282325@0");
  EXPECT_EQ(
      Place(Declare({{{2, k2To60 / 2}, "max_size { max_slice_bytes: 1 }"}}), 2),
      "1@0 1@1");
  EXPECT_EQ(Place(Declare({{{k2To60},
                            "min_size { min_slice_bytes: 1000000000000000000 "
                            "max_shards: 65536 }"}}),
                  2),
            // ceil(4.61) = 5.
            "230584300921369396@0 230584300921369395@1 230584300921369395@0 "
            "230584300921369395@1 230584300921369395@0");
}

// The service refuses them; the arithmetic must hold nevertheless.
TEST(PlacementTest, PartitionersThatBreakTheRules) {
  const char* const kBroken[] = {
      "fixed_shards { shards: 0 }", "min_size { min_slice_bytes: 0 }",
      "min_size { max_shards: 0 }", "max_size { max_slice_bytes: 0 }",
      "max_size { max_slice_bytes: 1 max_shards: 0 }"};
  const char* const kPlacements[] = {"2@0", "1@0 1@1", "2@0", "1@0 1@1", "2@0"};
  for (size_t i = 0; i < std::size(kBroken); ++i) {
    EXPECT_EQ(Place(Declare({{{2}, kBroken[i]}}), 2), kPlacements[i])
        << kBroken[i];
  }
}

TEST(PlacementTest, Refused) {
  const int64_t k2To60 = int64_t{1} << 60;
  const struct {
    std::vector<Declared> variables;
    uint32_t num_ps;
    proto::PlacementStrategy strategy;
    std::vector<std::string> error;
  } kRefused[] = {
      {{{{1}}}, 0, proto::ROUND_ROBIN, {"need a ps"}},
      {{{{1}}, {{2, -1}}},
       1,
       proto::ROUND_ROBIN,
       {"variable \"v1\": shape [2,-1] has a negative dimension"}},
      {{{{k2To60, k2To60}}},
       1,
       proto::GREEDY_BY_BYTES,
       {"variable \"v0\"", "more elements"}},
      // 2^61 elements are 2^63 bytes.
      {{{{2 * k2To60}}},
       1,
       proto::ROUND_ROBIN,
       {"variable \"v0\"", "more bytes than 64 bits"}},
      {{{{k2To60}}, {{k2To60}}},
       2,
       proto::GREEDY_BY_BYTES,
       {"variable \"v1\"", "more bytes than 64 bits"}},
      // A slice for each of 2^60 rows.
      {{{{1}}, {{k2To60}, "max_size { max_slice_bytes: 1 }"}},
       2,
       proto::ROUND_ROBIN,
       {"variable \"v1\"", "1152921504606846976", "fewer"}},
      {{{{1}}},
       1,
       static_cast<proto::PlacementStrategy>(99),
       {"unknown placement strategy 99"}},
  };
  for (const auto& test : kRefused) {
    const auto slices =
        PlaceVariables(Declare(test.variables, test.strategy), test.num_ps);
    EXPECT_EQ(slices.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : test.error) {
      EXPECT_THAT(std::string(slices.status().message()), HasSubstr(part));
    }
  }
}

// The maximum number of slices fits in one message.
TEST(PlacementTest, ManySlicesFitInAMessage) {
  constexpr uint64_t kMessage = 16 << 20;
  // A little more than 10000 bytes to a slice.
  const auto declare = [](int64_t rows) {
    proto::Declaration declaration =
        Declare({{{rows}, "max_size { max_slice_bytes: 4 }"}});
    declaration.mutable_variables(0)->set_name(std::string(10000, 'v'));
    return declaration;
  };
  int64_t fits = 1;
  int64_t too_many = 2000;
  ASSERT_FALSE(PlaceVariables(declare(too_many), 1000).ok());
  while (too_many - fits > 1) {
    const int64_t rows = (fits + too_many) / 2;
    (PlaceVariables(declare(rows), 1000).ok() ? fits : too_many) = rows;
  }
  EXPECT_GT(fits, 1500);
  const proto::Declaration declaration = declare(fits);
  const auto slices = PlaceVariables(declaration, 1000);
  ASSERT_TRUE(slices.ok()) << slices.status();
  uint64_t bytes = declaration.ByteSizeLong();
  // Key of one byte, length of two.
  for (const proto::Slice& slice : *slices) bytes += 3 + slice.ByteSizeLong();
  EXPECT_LT(bytes, kMessage - (kMessage >> 4));
  EXPECT_GT(bytes, kMessage - (kMessage >> 3));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/job/given_values.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// printf '\x00\x00\x80\x3f\x00\x00\x00\xc0' | sha256sum
constexpr char kOneMinusTwo[] =
    "ee4ac73c2bd27756ab82780f27c73a7bc4d3f0bb6acb37e008bc27eccd7e588b";

TEST(GivenValuesTest, DigestIsThatOfLittleEndianBytes) {
  const std::vector<float> values = {1, -2};
  EXPECT_EQ(GivenDigest(values), kOneMinusTwo);
  Buffer in_two = Buffer::FromMemory(values.data(), 3, nullptr);
  in_two.Append(Buffer::FromMemory(
      reinterpret_cast<const char*>(values.data()) + 3, 5, nullptr));
  EXPECT_EQ(GivenDigest(in_two), kOneMinusTwo);
}

TEST(GivenValuesTest, EachRangeHasItsOwn) {
  std::vector<float> values(kGivenRange + 2);
  values[kGivenRange] = 1;
  values[kGivenRange + 1] = -2;
  // head -c 1048576 /dev/zero | sha256sum
  EXPECT_THAT(
      GivenDigests(values).sha256(),
      ElementsAre(
          "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58",
          kOneMinusTwo));
  EXPECT_THAT(GivenDigests({}).sha256(), IsEmpty());
  values.resize(kGivenRange);
  EXPECT_EQ(GivenDigests(values).sha256_size(), 1);
}

TEST(GivenValuesTest, EachRangeNeedsADigest) {
  const std::vector<float> values(kGivenRange + 1);
  proto::Initializer::Given given = GivenDigests(values);
  EXPECT_TRUE(CheckGiven(given, kGivenRange + 1).ok());
  EXPECT_TRUE(CheckGiven({}, 0).ok());
  EXPECT_EQ(CheckGiven(given, kGivenRange).message(),
            "given: 2 digests, must be 1: one for each 262144 of 262144 "
            "elements");
  for (const std::string& bad : {std::string(), std::string(63, 'a'),
                                 std::string(64, 'A'), std::string(64, 'g')}) {
    given.set_sha256(1, bad);
    EXPECT_EQ(CheckGiven(given, kGivenRange + 1).message(),
              "given.sha256[1]: not 64 lower-case hexadecimal digits")
        << bad;
  }
}

}  // namespace
}  // namespace holdfast

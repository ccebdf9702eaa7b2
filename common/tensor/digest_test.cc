// SPDX-License-Identifier: Apache-2.0
#include "common/tensor/digest.h"

#include "common/base/sha256.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

proto::Variable MakeVariable(const std::string& name,
                             const std::vector<int64_t>& shape) {
  proto::Variable variable;
  variable.set_name(name);
  variable.mutable_shape()->Assign(shape.begin(), shape.end());
  return variable;
}

// The bytes written out by hand: 1.0f is 3f800000, -2.0f is c0000000.
TEST(DigestOfVariablesTest, IsThatOfTheGrammar) {
  const std::string bytes(
      "a/bias\0[2]\0\x00\x00\x80\x3f\x00\x00\x00\xc0"
      "a/kernel\0[2,1]\0\x00\x00\x00\xc0\x00\x00\x80\x3f"
      "z\0[]\0\x00\x00\x80\x3f",
      11 + 8 + 15 + 8 + 5 + 4);
  EXPECT_EQ(DigestOfVariables(
                {MakeVariable("z", {}), MakeVariable("a/kernel", {2, 1}),
                 MakeVariable("a/bias", {2})},
                {{1.0f}, {-2.0f, 1.0f}, {1.0f, -2.0f}}),
            Sha256::Hex(bytes));
}

TEST(DigestOfVariablesTest, TellsApart) {
  const std::string digest =
      DigestOfVariables({MakeVariable("w", {2})}, {{0.0f, 1.0f}});
  EXPECT_NE(digest,
            DigestOfVariables({MakeVariable("v", {2})}, {{0.0f, 1.0f}}));
  EXPECT_NE(digest,
            DigestOfVariables({MakeVariable("w", {2, 1})}, {{0.0f, 1.0f}}));
  EXPECT_NE(digest,
            DigestOfVariables({MakeVariable("w", {2})}, {{-0.0f, 1.0f}}));
}

TEST(DigestOfVariablesTest, OfNothingIsThatOfNoBytes) {
  // FIPS 180-4's digest of the empty message.
  EXPECT_EQ(DigestOfVariables({}, {}),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "client/first_values.h"

#include <vector>

#include "common/job/given_values.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using google::protobuf::TextFormat;
using testing::ElementsAre;
using testing::HasSubstr;

proto::Declaration Parse(const char* text) {
  proto::Declaration declaration;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &declaration));
  return declaration;
}

TEST(FirstValuesTest, DigestsOfGivenVariablesAloneAreFilledIn) {
  proto::Declaration declaration = Parse(R"(
    variables { name: "a" shape: 2 initializer { zeros {} } }
    variables { name: "b" shape: [2, 1] initializer { given { sha256: "?" } } }
    variables { name: "none" shape: 0 initializer { given {} } }
  )");
  const std::vector<float> b = {1, -2};
  std::vector<size_t> asked;
  const absl::Status status = DigestFirstValues(
      [&](size_t variable) -> absl::StatusOr<absl::Span<const float>> {
        asked.push_back(variable);
        if (variable == 2) return absl::Span<const float>();
        return b;
      },
      &declaration);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(asked, ElementsAre(1, 2));
  EXPECT_TRUE(declaration.variables(0).initializer().has_zeros());
  EXPECT_THAT(declaration.variables(1).initializer().given().sha256(),
              ElementsAre(GivenDigest(b)));
  EXPECT_EQ(declaration.variables(2).initializer().given().sha256_size(), 0);
}

TEST(FirstValuesTest, ErrorsNameTheVariable) {
  proto::Declaration declaration = Parse(R"(
    variables { name: "w" shape: [2, 3] initializer { given {} } }
  )");
  const std::vector<float> five(5);
  absl::Status status = DigestFirstValues(
      [&](size_t) { return absl::MakeConstSpan(five); }, &declaration);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(),
              HasSubstr("first values of variable \"w\": 5 "
                        "elements, but the declared shape is [2,3]"));
  status = DigestFirstValues(
      [](size_t) { return absl::NotFoundError("no such tensor"); },
      &declaration);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(),
              HasSubstr("first values of variable \"w\": no such tensor"));
}

}  // namespace
}  // namespace holdfast

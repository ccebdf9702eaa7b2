// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_lists.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BenchListsTest, Numbers) {
  EXPECT_THAT(*ParseNumbers("shards", "4,1,64", 64), ElementsAre(4, 1, 64));
  for (const char* text : {"0", "65", "1,x", "1,", "", "1.5", "2,2", "-1"}) {
    const auto numbers = ParseNumbers("shards", text, 64);
    ASSERT_FALSE(numbers.ok()) << text;
    EXPECT_THAT(numbers.status().message(),
                HasSubstr(std::string("--shards=") + text + ": \""));
  }
  EXPECT_THAT(ParseNumbers("ps", "1,65", 64).status().message(),
              HasSubstr("\"65\" is not a whole number from 1 to 64"));
  EXPECT_THAT(ParseNumbers("ps", "2,1,2", 64).status().message(),
              HasSubstr("\"2\" is given twice"));
}

TEST(BenchListsTest, Sizes) {
  EXPECT_THAT(*ParseSizes("sizes", "16,31kB,1MiB,4GB"),
              ElementsAre(16, 31000, 1048576, 4000000000));
  for (const char* text : {"15", "0", "", "16,,4", "4.1GB", "1M"}) {
    const auto sizes = ParseSizes("sizes", text);
    ASSERT_FALSE(sizes.ok()) << text;
    EXPECT_THAT(sizes.status().message(),
                HasSubstr(std::string("--sizes=") + text));
  }
}

TEST(BenchListsTest, Words) {
  EXPECT_THAT(*ParseWords("ops", "pull,push", {"push", "pull"}),
              ElementsAre("pull", "push"));
  EXPECT_THAT(
      ParseWords("ops", "pull,pusch", {"push", "pull"}).status().message(),
      AllOf(HasSubstr("--ops=pull,pusch"),
            HasSubstr("\"pusch\" is not one of push, pull")));
  EXPECT_FALSE(ParseWords("ops", "", {"push"}).ok());
}

TEST(BenchListsTest, Word) {
  EXPECT_TRUE(CheckWord("optimizer", "adam", {"sgd", "adam"}).ok());
  for (const char* text : {"adams", "", "sgd,adam"}) {
    EXPECT_EQ(CheckWord("optimizer", text, {"sgd", "adam"}).message(),
              std::string("--optimizer=") + text + ": is not one of sgd, adam");
  }
}

TEST(BenchListsTest, Seconds) {
  EXPECT_TRUE(CheckSeconds(0.05).ok());
  for (const double seconds : {0.0, -1.0, 3601.0, 0.0 / 0.0}) {
    EXPECT_THAT(CheckSeconds(seconds).message(), HasSubstr("--seconds="));
  }
}

}  // namespace
}  // namespace holdfast

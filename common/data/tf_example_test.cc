// SPDX-License-Identifier: Apache-2.0
#include "common/data/tf_example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;

// A field of bytes, as encoded on the wire.
std::string Field(int number, const std::string& content) {
  return absl::StrCat(std::string(1, static_cast<char>(number << 3 | 2)),
                      std::string(1, static_cast<char>(content.size())),
                      content);
}

std::string Entry(const std::string& name, const std::string& feature) {
  return Field(1, Field(1, name) + Field(2, feature));
}

// "name=values" of each feature; empty if the bytes are not an Example.
std::vector<std::string> Parse(const std::string& record) {
  TfExample example;
  if (!example.Parse(record)) return {"none"};
  std::vector<std::string> said;
  for (const TfFeature& feature : example.features()) {
    std::vector<std::string> values;
    if (feature.kind == TfFeature::kFloats) {
      std::vector<float> floats(feature.num_floats());
      feature.ReadFloats(floats.data());
      for (const float value : floats) values.push_back(absl::StrCat(value));
    } else if (feature.kind == TfFeature::kIntegers) {
      EXPECT_TRUE(feature.ForEachInteger(
          [&](int64_t value) { values.push_back(absl::StrCat(value, "i")); }));
    } else {
      feature.ForEachBytes([&](absl::string_view value) {
        values.push_back(absl::StrCat("'", value, "'"));
      });
    }
    said.push_back(absl::StrCat(feature.name, "=", absl::StrJoin(values, ",")));
  }
  return said;
}

TEST(TfExampleTest, ReadsWhatGeneratedCodeWrites) {
  proto::tensorflow::Example example;
  const auto add = [&example](const std::string& name) {
    auto* const entry = example.mutable_features()->add_feature();
    entry->set_key(name);
    return entry->mutable_value();
  };
  EXPECT_THAT(Parse(example.SerializeAsString()), ElementsAre());
  auto* const floats = add("floats")->mutable_float_list();
  floats->add_value(1.5f);
  floats->add_value(-2);
  auto* const integers = add("integers")->mutable_int64_list();
  integers->add_value(-1);
  integers->add_value(300);
  auto* const bytes = add("bytes")->mutable_bytes_list();
  bytes->add_value("ab");
  bytes->add_value("");
  bytes->add_value(std::string(200, 'x'));
  add("empty")->mutable_float_list();
  add("nothing");
  EXPECT_THAT(Parse(example.SerializeAsString()),
              ElementsAre("floats=1.5,-2", "integers=-1i,300i",
                          "bytes='ab','','" + std::string(200, 'x') + "'",
                          "empty=", "nothing="));
}

// Allowed by the format, though no writer does this.
TEST(TfExampleTest, ReadsUnusualForms) {
  const std::string one_float("\0\0\x80\x3f", 4);
  // Not packed, then packed.
  EXPECT_THAT(Parse(Field(1, Entry("x", Field(2, "\x0d" + one_float +
                                                     Field(1, one_float))))),
              ElementsAre("x=1,1"));
  EXPECT_THAT(Parse(Field(1, Entry("i", Field(3, "\x08\x05\x08\x06")))),
              ElementsAre("i=5i,6i"));
  // The features in two messages, an unknown field, value before key.
  EXPECT_THAT(
      Parse(Field(1, Entry("a", Field(3, Field(1, "\1")))) + Field(9, "?") +
            Field(1, Field(1, Field(2, Field(3, Field(1, "\2"))) +
                                  Field(1, "b")))),
      ElementsAre("a=1i", "b=2i"));
  // A list in two pieces is one list; of two kinds the last counts.
  EXPECT_THAT(Parse(Field(1, Entry("a", Field(3, Field(1, "\1")) +
                                            Field(3, Field(1, "\2"))))),
              ElementsAre("a=1i,2i"));
  EXPECT_THAT(Parse(Field(1, Entry("a", Field(3, Field(1, "\1")) +
                                            Field(1, Field(1, "z"))))),
              ElementsAre("a='z'"));
}

TEST(TfExampleTest, RefusesWhatIsNone) {
  EXPECT_THAT(Parse("text"), ElementsAre("none"));
  // Truncated within the feature, although the lengths around it fit.
  EXPECT_THAT(Parse(Field(1, Field(1, "\x0a\x05x"))), ElementsAre("none"));
  // A float of three bytes.
  EXPECT_THAT(Parse(Field(1, Entry("x", Field(2, Field(1, "abc"))))),
              ElementsAre("none"));
}

TEST(TfExampleTest, TellsOfDamagedIntegers) {
  const std::string record =
      Field(1, Entry("i", Field(3, Field(1, "\x01\xff"))));
  TfExample example;
  ASSERT_TRUE(example.Parse(record));
  EXPECT_FALSE(example.features()[0].ForEachInteger([](int64_t) {}));
}

}  // namespace
}  // namespace holdfast

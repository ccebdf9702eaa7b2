// SPDX-License-Identifier: Apache-2.0
#include "worker/input/dataset_registry.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class Zeros final : public Dataset {
 public:
  Zeros(int64_t examples, std::vector<int64_t> shape)
      : examples_(examples), spec_{std::move(shape)} {}

  int64_t num_examples() const override { return examples_; }
  const ExampleSpec& spec() const override { return spec_; }
  absl::Status Read(int64_t, const ExampleMemory&) const override {
    return absl::OkStatus();
  }
  const std::string& digest() const override { return digest_; }

 private:
  const int64_t examples_;
  const ExampleSpec spec_;
  const std::string digest_ = "zeros";
};

DatasetRegistry::Factory Make(int64_t examples, std::vector<int64_t> shape) {
  return
      [=](const DatasetContext&) -> absl::StatusOr<std::unique_ptr<Dataset>> {
        return std::make_unique<Zeros>(examples, shape);
      };
}

proto::Dataset Named(const std::string& name) {
  proto::Dataset config;
  config.mutable_registered()->set_name(name);
  return config;
}

TEST(OpenDatasetTest, MakesARegisteredSourceFromItsOptions) {
  DatasetRegistry registry;
  DatasetContext given;
  ASSERT_TRUE(registry
                  .Register("zeros",
                            [&](const DatasetContext& context) {
                              given = context;
                              return Make(3, {2})(context);
                            })
                  .ok());
  proto::Dataset config = Named("zeros");
  (*config.mutable_registered()->mutable_options())["b"] = "2";
  (*config.mutable_registered()->mutable_options())["a"] = "1";
  const auto dataset = OpenDataset(config, {}, registry);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_examples(), 3);
  EXPECT_THAT(given.options, ElementsAre(Pair("a", "1"), Pair("b", "2")));
}

TEST(OpenDatasetTest, NamesWhatThereIsWhenAskedForAnother) {
  DatasetRegistry registry;
  ASSERT_TRUE(registry.Register("zeros", Make(1, {1})).ok());
  ASSERT_TRUE(registry.Register("ones", Make(1, {1})).ok());
  EXPECT_EQ(registry.Register("ones", Make(1, {1})).code(),
            absl::StatusCode::kAlreadyExists);
  const absl::Status status = OpenDataset(Named("twos"), {}, registry).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(),
              HasSubstr("no data source is registered as \"twos\" in this "
                        "binary; it has \"ones\", \"zeros\"; run a worker that "
                        "is linked with it, as examples/custom_data is"));
}

TEST(OpenDatasetTest, RefusesWhatNobodyCanTrainOn) {
  DatasetRegistry registry;
  ASSERT_TRUE(registry.Register("none", Make(0, {1})).ok());
  ASSERT_TRUE(registry.Register("flat", Make(3, {2, 0})).ok());
  EXPECT_THAT(OpenDataset(Named("none"), {}, registry).status().message(),
              HasSubstr("data source \"none\" has 0 examples"));
  EXPECT_THAT(OpenDataset(Named("flat"), {}, registry).status().message(),
              HasSubstr("of the shape [2,0]"));
}

TEST(OpenDatasetTest, OpensFilesWithoutARegistry) {
  proto::Dataset config;
  config.mutable_npy()->set_inputs("absent.npy");
  EXPECT_THAT(OpenDataset(config, {}, {}).status().message(),
              HasSubstr("absent.npy"));
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "worker/model/registry.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "worker/backend/cpu/cpu_backend.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class NoModel final : public Model {
 public:
  std::vector<proto::Variable> Variables() const override { return {}; }
  absl::StatusOr<BatchResult> ComputeGradients(
      absl::Span<const absl::Span<const float>>, const Batch&,
      GradientSink) override {
    return BatchResult{};
  }
  absl::StatusOr<BatchResult> Evaluate(
      absl::Span<const absl::Span<const float>>, const Batch&) override {
    return BatchResult{};
  }
};

proto::Model Parse(const std::string& text) {
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

class RegistryTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Model>> Create(const std::string& text) {
    return CreateModel(Parse(text), {{28, 28}, 10}, /*seed=*/5, backend_.get(),
                       registry_);
  }

  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({});
  ModelRegistry registry_;
};

TEST_F(RegistryTest, MakesARegisteredModelFromItsContext) {
  ModelContext given;
  ASSERT_TRUE(registry_
                  .Register("mine",
                            [&](const ModelContext& context)
                                -> absl::StatusOr<std::unique_ptr<Model>> {
                              given = context;
                              return std::make_unique<NoModel>();
                            })
                  .ok());
  const auto model = Create(R"pb(
    registered {
      name: "mine"
      options { key: "width" value: "12" }
      options { key: "depth" value: "3" }
    }
  )pb");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(given.example_shape, ElementsAre(28, 28));
  EXPECT_EQ(given.num_classes, 10);
  EXPECT_EQ(given.seed, 5u);
  EXPECT_EQ(given.backend, backend_.get());
  EXPECT_THAT(given.options,
              ElementsAre(Pair("depth", "3"), Pair("width", "12")));
}

TEST_F(RegistryTest, NamesWhatItHasWhenAskedForAnother) {
  const std::string text = "registered { name: 'theirs' }";
  absl::Status status = Create(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("it has none"));

  const auto factory =
      [](const ModelContext&) -> absl::StatusOr<std::unique_ptr<Model>> {
    return std::make_unique<NoModel>();
  };
  ASSERT_TRUE(registry_.Register("b", factory).ok());
  ASSERT_TRUE(registry_.Register("a", factory).ok());
  EXPECT_EQ(registry_.Register("a", factory).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Create(text).status().message(),
              HasSubstr("registered as \"theirs\" in this binary; it has "
                        "\"a\", \"b\""));
}

TEST_F(RegistryTest, ErrorsOfTheFactoryNameTheModel) {
  ASSERT_TRUE(registry_
                  .Register("mine",
                            [](const ModelContext&)
                                -> absl::StatusOr<std::unique_ptr<Model>> {
                              return absl::InvalidArgumentError("no width");
                            })
                  .ok());
  const absl::Status status = Create("registered { name: 'mine' }").status();
  EXPECT_EQ(status, absl::InvalidArgumentError("model \"mine\": no width"));
}

TEST_F(RegistryTest, MakesASequential) {
  const auto model = Create(R"pb(
    sequential {
      layers { flatten {} }
      layers { dense { units: 10 } }
      loss { softmax_cross_entropy {} }
    }
  )pb");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Variables().size(), 2u);
  EXPECT_THAT(Create(R"pb(
                sequential {
                  layers { flatten {} }
                  layers { dense { units: 9 } }
                  loss { softmax_cross_entropy {} }
                }
              )pb")
                  .status()
                  .message(),
              HasSubstr("9 classes apart; the data have 10 classes"));
}

TEST_F(RegistryTest, RefusesAModelOfNoKind) {
  EXPECT_EQ(Create("").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0

// The models of a job file: the names of their layers, and rules of click
// models.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::google::protobuf::TextFormat;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayerNamesTest, KindAndCount) {
  proto::Sequential model;
  ASSERT_TRUE(TextFormat::ParseFromString(
      R"(layers { dense { units: 1 } } layers { relu {} }
         layers { name: "x" dense { units: 1 } } layers { dense { units: 1 } }
         layers { relu {} } layers {})",
      &model));
  EXPECT_THAT(LayerNames(model.layers()),
              ElementsAre("dense", "relu", "x", "dense_2", "relu_1", ""));
}

// A job with a click model.
std::string ClickJob(const std::string& model, const std::string& optimizer) {
  return absl::StrCat("name: 'clicks' model { ", model,
                      " } data { train { criteo { files: 'a.tsv' } } } "
                      "batch_size: 10 steps: 5 optimizer { learning_rate: 0.1 ",
                      optimizer, " {} }");
}

TEST(ClickModelRulesTest, HoldForTablesAndLayers) {
  const auto error = [](const std::string& model,
                        const std::string& optimizer) {
    return std::string(
        ParseJobFile(ClickJob(model, optimizer), "job").status().message());
  };
  EXPECT_EQ(error("logistic_regression {}", "ftrl"), "");
  EXPECT_EQ(error("dlrm { embedding { row_length: 8 table { optimizer { "
                  "learning_rate: 0.1 adagrad {} } row_wise: true } } bottom { "
                  "dense { units: 8 } } top { relu {} } }",
                  "adamw"),
            "");
  EXPECT_THAT(
      error("logistic_regression {}", "adamw"),
      AllOf(HasSubstr("model.logistic_regression.linear.optimizer"),
            HasSubstr("sgd, momentum, adagrad, adam or ftrl, which can update "
                      "single rows; without its own optimizer")));
  EXPECT_THAT(error("factorization_machine {}", "sgd"),
              HasSubstr("model.factorization_machine.embedding: "));
  EXPECT_THAT(error("factorization_machine { embedding {} }", "sgd"),
              HasSubstr("embedding.row_length"));
  EXPECT_THAT(
      error("deep_fm { embedding { row_length: 4 table { row_wise: true "
            "initializer { he {} } } } layers { relu {} } }",
            "sgd"),
      AllOf(HasSubstr("table.row_wise: is only for adagrad"),
            HasSubstr("depends on the number of rows")));
  EXPECT_THAT(
      error("wide_and_deep { embedding { row_length: 4 } layers { name: "
            "'a' relu {} } layers { name: 'a' relu {} } }",
            "sgd"),
      HasSubstr("model.wide_and_deep.layers[1]"));
  EXPECT_THAT(
      error("dlrm { embedding { row_length: 4 } bottom { dense { units: "
            "4 } } }",
            "sgd"),
      HasSubstr("model.dlrm.top"));
}

}  // namespace
}  // namespace holdfast

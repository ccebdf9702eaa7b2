// SPDX-License-Identifier: Apache-2.0
#include "examples/custom_table/matrix_factorization.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/input/id_bags.h"
#include "worker/model/gradient_check.h"

namespace holdfast_examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<holdfast::IdField> kFields = {{"user", 1}, {"item", 1}};

holdfast::ModelContext Ratings() {
  holdfast::ModelContext context;
  context.example_shape = {0};
  context.num_targets = 1;
  context.id_fields = kFields;
  context.options = {{"factors", "2"}};
  return context;
}

std::string ErrorOf(const holdfast::ModelContext& context) {
  return std::string(MatrixFactorization::Create(context).status().message());
}

TEST(MatrixFactorizationTest, ATableForEachField) {
  const auto model = MatrixFactorization::Create(Ratings());
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->Variables().size(), 1);
  const auto tables = (*model)->Tables();
  ASSERT_EQ(tables.size(), 2);
  EXPECT_EQ(tables[0].declared.name(), "user");
  EXPECT_EQ(tables[1].declared.name(), "item");
  EXPECT_EQ(tables[1].declared.row_length(), 3);
  EXPECT_THAT(tables[0].fields, ElementsAre(0));
  EXPECT_THAT(tables[1].fields, ElementsAre(1));
}

TEST(MatrixFactorizationTest, RefusesOtherOptionsAndExamples) {
  auto context = Ratings();
  context.options = {};
  EXPECT_THAT(ErrorOf(context), HasSubstr("\"factors\" must be given"));
  context.options = {{"factors", "2"}, {"rank", "2"}};
  EXPECT_THAT(ErrorOf(context), HasSubstr("unknown option \"rank\""));
  context = Ratings();
  context.id_fields.pop_back();
  EXPECT_THAT(ErrorOf(context), HasSubstr("the examples have 1 fields"));
  context = Ratings();
  context.id_fields[1].max_ids = 2;
  EXPECT_THAT(ErrorOf(context), HasSubstr("each with one id"));
  context = Ratings();
  context.example_shape = {3};
  EXPECT_THAT(ErrorOf(context), HasSubstr("no inputs besides ids"));
  context = Ratings();
  context.num_targets = 0;
  EXPECT_THAT(ErrorOf(context), HasSubstr("one target"));
}

// Three ratings of the users 7, 9, 7 and the items 4, 4, 2.
class RatedBatchTest : public ::testing::Test {
 protected:
  RatedBatchTest() : bags_(kFields, kFieldsOfTables) {
    bags_.Assign(3, {ids_.data(), counts_.data(), /*values=*/nullptr});
    batch_.targets = targets_;
    batch_.num_targets = 1;
    batch_.bags = &bags_;
    batch_.rows = rows_;
    auto model = MatrixFactorization::Create(Ratings());
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  const std::vector<std::vector<int>> kFieldsOfTables = {{0}, {1}};
  const std::vector<uint64_t> ids_ = {7, 4, 9, 4, 7, 2};
  const std::vector<uint32_t> counts_ = {1, 1, 1, 1, 1, 1};
  const std::vector<float> targets_ = {3, 1, 4};
  // The rows of users 7 and 9, and of items 2 and 4.
  const std::vector<float> users_ = {0.5f, 1, 2, -0.5f, 0.25f, 1};
  const std::vector<float> items_ = {1, -1, 0.5f, 0.25f, 2, 1};
  const std::vector<absl::Span<const float>> rows_ = {users_, items_};
  const std::vector<float> mean_ = {2};
  holdfast::TableBags bags_;
  holdfast::Batch batch_;
  std::unique_ptr<holdfast::Model> model_;
};

TEST_F(RatedBatchTest, PredictsRatings) {
  batch_.wants_outputs = true;
  const std::vector<absl::Span<const float>> parameters = {mean_};
  const auto result = model_->Evaluate(parameters, batch_);
  ASSERT_TRUE(result.ok()) << result.status();
  // 2 + 0.5 + 0.25 + (1 * 2 + 2 * 1), 2 - 0.5 + 0.25 + (0.25 * 2 + 1 * 1),
  // 2 + 0.5 + 1 + (1 * -1 + 2 * 0.5).
  EXPECT_THAT(result->outputs, ElementsAre(6.75f, 3.25f, 3.5f));
  // 3.75^2 + 2.25^2 + 0.5^2.
  EXPECT_EQ(result->loss_sum, 19.375);
  EXPECT_EQ(result->absolute_error_sum, 6.5);
}

TEST_F(RatedBatchTest, GradientsAgreeWithFiniteDifferences) {
  EXPECT_EQ(holdfast::CheckGradients(model_.get(), {mean_}, batch_),
            absl::OkStatus());
}

TEST_F(RatedBatchTest, ABatchWithoutRowsIsRefused) {
  batch_.rows = {};
  const std::vector<absl::Span<const float>> parameters = {mean_};
  EXPECT_TRUE(
      absl::IsInvalidArgument(model_->Evaluate(parameters, batch_).status()));
}

}  // namespace
}  // namespace holdfast_examples

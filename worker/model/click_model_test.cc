// SPDX-License-Identifier: Apache-2.0
#include "worker/model/click_model.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/input/id_bags.h"
#include "worker/model/gradient_check.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Fields = std::vector<std::vector<int>>;

proto::Model Parse(const std::string& text) {
  proto::Model config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config))
      << text;
  return config;
}

// Values that differ, from -0.6 to 0.6.
std::vector<float> Varied(size_t size, int first) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>((i * 7 + first * 5) % 13) * 0.1f -
                     0.6f);
  }
  return values;
}

// Three examples of two numbers and of the fields a, of up to two ids, and b.
class ClickModelTest : public ::testing::Test {
 protected:
  ClickModelTest() {
    examples_.shape = {2};
    examples_.id_fields = {{"a", 2}, {"b", 1}};
    backend_ = *CpuBackend::Create({});
  }

  // The model, and a batch with values of its rows.
  void Make(const std::string& text, bool id_values = false) {
    auto model =
        CreateClickModel(Parse(text), examples_, /*seed=*/7, backend_.get());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    Fields fields;
    for (const ModelTable& table : model_->Tables()) {
      fields.push_back(table.fields);
    }
    bags_ = TableBags(examples_.id_fields, fields);
    bags_.Assign(3, {ids_.data(), counts_.data(),
                     id_values ? id_values_.data() : nullptr});
    batch_.inputs =
        absl::MakeConstSpan(inputs_).first(3 * examples_.input_size());
    batch_.labels = labels_;
    batch_.bags = &bags_;
    rows_.clear();
    int first = 3;
    for (size_t t = 0; t < fields.size(); ++t) {
      rows_.push_back(Varied(bags_.Of(t).unique().size() *
                                 model_->Tables()[t].declared.row_length(),
                             first++));
    }
    row_spans_.assign(rows_.begin(), rows_.end());
    batch_.rows = row_spans_;
    batch_.wants_outputs = true;
    parameters_.clear();
    for (const proto::Variable& variable : model_->Variables()) {
      size_t size = 1;
      for (const int64_t dimension : variable.shape()) size *= dimension;
      parameters_.push_back(Varied(size, first++));
    }
  }

  std::vector<float> Logits() {
    const std::vector<absl::Span<const float>> values(parameters_.begin(),
                                                      parameters_.end());
    const auto result = model_->Evaluate(values, batch_);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    return {result->outputs.begin(), result->outputs.end()};
  }

  // The rows of `table` that example `i` uses, and their factors.
  struct Use {
    double value;
    absl::Span<const float> row;
    int field;
  };
  std::vector<Use> UsesOf(int example, int table) const {
    const IdBags& bags = bags_.Of(table);
    const size_t length = model_->Tables()[table].declared.row_length();
    std::vector<Use> uses;
    for (size_t k = 0; k < bags.rows().size(); ++k) {
      if (static_cast<int>(bags.bags()[k]) / 2 != example) continue;
      uses.push_back({bags.values().empty() ? 1.0 : bags.values()[k],
                      absl::MakeConstSpan(rows_[table])
                          .subspan(bags.rows()[k] * length, length),
                      static_cast<int>(bags.bags()[k]) % 2});
    }
    return uses;
  }
  double Linear(int example, int table) const {
    double sum = parameters_[1][0];
    for (int j = 0; j < 2; ++j) {
      sum += double{inputs_[example * 2 + j]} * parameters_[0][j];
    }
    for (const Use& use : UsesOf(example, table)) sum += use.value * use.row[0];
    return sum;
  }
  double Pairwise(int example, int table) const {
    const std::vector<Use> uses = UsesOf(example, table);
    double sum = 0;
    for (size_t a = 0; a < uses.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        for (size_t e = 0; e < uses[a].row.size(); ++e) {
          sum +=
              uses[a].value * uses[a].row[e] * uses[b].value * uses[b].row[e];
        }
      }
    }
    return sum;
  }

  void ExpectLogits(const std::function<double(int example)>& expected) {
    const std::vector<float> logits = Logits();
    ASSERT_EQ(logits.size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(logits[i], expected(i), 1e-5) << "example " << i;
    }
  }
  void ExpectGradients() {
    batch_.wants_outputs = false;
    const absl::Status status =
        CheckGradients(model_.get(), parameters_, batch_);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::string ErrorOf(const std::string& text) {
    return std::string(
        CreateClickModel(Parse(text), examples_, 0, backend_.get())
            .status()
            .message());
  }

  ExampleSpec examples_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<NetworkModel> model_;
  // The second example has none of b, and the third none of a.
  const std::vector<uint64_t> ids_ = {7, 5, 5, 3, 5, 0, 0, 0, 7};
  const std::vector<uint32_t> counts_ = {2, 1, 2, 0, 0, 1};
  const std::vector<float> id_values_ = {1, 2, 0.5f, 3, 1, 0, 0, 0, 0.25f};
  const std::vector<float> inputs_ = {1, -1, 0.5f, 0.25f, -2, 1};
  const std::vector<int32_t> labels_ = {1, 0, 1};
  TableBags bags_;
  std::vector<std::vector<float>> rows_;
  std::vector<absl::Span<const float>> row_spans_;
  std::vector<std::vector<float>> parameters_;
  Batch batch_;
};

TEST_F(ClickModelTest, LogisticRegressionSumsWeights) {
  Make("logistic_regression {}");
  EXPECT_THAT(model_->Tables(), testing::SizeIs(1));
  EXPECT_EQ(model_->Variables()[0].name(), "linear/kernel");
  EXPECT_EQ(model_->Variables()[1].name(), "linear/bias");
  EXPECT_TRUE(model_->Tables()[0].declared.initializer().has_zeros());
  ExpectLogits([&](int i) { return Linear(i, 0); });
  ExpectGradients();
}

TEST_F(ClickModelTest, NeedsNoNumbers) {
  examples_.shape = {0};
  Make("logistic_regression {}", /*id_values=*/true);
  ASSERT_THAT(model_->Variables(), testing::SizeIs(1));
  ExpectLogits([&](int i) {
    double sum = parameters_[0][0];
    for (const Use& use : UsesOf(i, 0)) sum += use.value * use.row[0];
    return sum;
  });
  ExpectGradients();
}

TEST_F(ClickModelTest, AFactorizationMachineMultipliesPairs) {
  Make("factorization_machine { embedding { row_length: 3 } }");
  ExpectLogits([&](int i) { return Linear(i, 0) + Pairwise(i, 1); });
  ExpectGradients();
}

TEST_F(ClickModelTest, ValuesMultiplyRows) {
  Make("factorization_machine { embedding { row_length: 3 } }",
       /*id_values=*/true);
  ExpectLogits([&](int i) { return Linear(i, 0) + Pairwise(i, 1); });
  ExpectGradients();
}

// A dense layer with W [inputs, 1] and b.
double Dense(const std::vector<double>& x, const std::vector<float>& w,
             const std::vector<float>& b) {
  double sum = b[0];
  for (size_t j = 0; j < x.size(); ++j) sum += x[j] * w[j];
  return sum;
}

// With an identity layer the network is one dense layer.
TEST_F(ClickModelTest, WideAndDeepJoinsNumbersAndBags) {
  for (const bool has_values : {false, true}) {
    for (const std::string combiner : {"SUM", "MEAN", "SQRTN"}) {
      SCOPED_TRACE(absl::StrCat(combiner, has_values ? " with values" : ""));
      Make(absl::StrCat("wide_and_deep { embedding { row_length: 3 combiner: ",
                        combiner, " } layers { flatten {} } }"),
           has_values);
      EXPECT_EQ(model_->Variables()[2].name(), "deep/logit/kernel");
      ExpectLogits([&](int i) {
        std::vector<double> x = {inputs_[i * 2], inputs_[i * 2 + 1]};
        x.resize(2 + 2 * 3);
        for (int field = 0; field < 2; ++field) {
          double divisor = 0;
          for (const Use& use : UsesOf(i, 1)) {
            if (use.field != field) continue;
            divisor += combiner == "SQRTN" ? use.value * use.value : use.value;
            for (int e = 0; e < 3; ++e) {
              x[2 + field * 3 + e] += use.value * use.row[e];
            }
          }
          if (combiner == "SUM" || divisor == 0) continue;
          if (combiner == "SQRTN") divisor = std::sqrt(divisor);
          for (int e = 0; e < 3; ++e) x[2 + field * 3 + e] /= divisor;
        }
        return Linear(i, 0) + Dense(x, parameters_[2], parameters_[3]);
      });
      ExpectGradients();
    }
  }
}

TEST_F(ClickModelTest, DeepFmHasOneTableForBothParts) {
  Make(
      "deep_fm { embedding { row_length: 3 combiner: MEAN } layers { dense { "
      "units: 4 } } layers { tanh {} } }");
  EXPECT_THAT(model_->Tables(), testing::SizeIs(2));
  ExpectGradients();
}

TEST_F(ClickModelTest, DlrmMultipliesPairsOfVectors) {
  Make(
      "dlrm { embedding { row_length: 2 } bottom { dense { units: 2 } } top { "
      "flatten {} } }");
  ASSERT_THAT(model_->Tables(), testing::SizeIs(1));
  EXPECT_EQ(model_->Variables()[0].name(), "bottom/dense/kernel");
  EXPECT_EQ(model_->Variables()[2].name(), "top/logit/kernel");
  ExpectLogits([&](int i) {
    std::vector<std::vector<double>> vectors(3, std::vector<double>(2));
    for (int e = 0; e < 2; ++e) {
      vectors[0][e] = parameters_[1][e];
      for (int j = 0; j < 2; ++j) {
        vectors[0][e] += double{inputs_[i * 2 + j]} * parameters_[0][j * 2 + e];
      }
    }
    for (const Use& use : UsesOf(i, 0)) {
      for (int e = 0; e < 2; ++e) vectors[1 + use.field][e] += use.row[e];
    }
    std::vector<double> x = vectors[0];
    for (int p = 1; p < 3; ++p) {
      for (int q = 0; q < p; ++q) {
        x.push_back(vectors[p][0] * vectors[q][0] +
                    vectors[p][1] * vectors[q][1]);
      }
    }
    return Dense(x, parameters_[2], parameters_[3]);
  });
  ExpectGradients();
}

TEST_F(ClickModelTest, LayersMayBeDeep) {
  Make(
      "dlrm { embedding { row_length: 2 combiner: SQRTN } bottom { dense { "
      "units: 3 } } bottom { tanh {} } bottom { dense { units: 2 } } top { "
      "dense { units: 4 } } top { tanh {} } }",
      /*id_values=*/true);
  ExpectGradients();
}

TEST_F(ClickModelTest, TablesAreAsTheJobFileSays) {
  Make(
      "wide_and_deep { linear { optimizer { ftrl {} } min_count: 3 } embedding "
      "{ row_length: 3 table { initializer { normal { stddev: 0.1 } } "
      "row_wise: "
      "true expire_after_steps: 9 max_rows: 20000 max_rows_per_push: 40 push: "
      "INT8 pull: FLOAT16 } } layers { flatten {} } }");
  const std::vector<ModelTable> tables = model_->Tables();
  EXPECT_TRUE(tables[0].optimizer->has_ftrl());
  EXPECT_EQ(tables[0].declared.min_count(), 3);
  EXPECT_EQ(tables[0].declared.row_length(), 1);
  EXPECT_THAT(tables[1].fields, ElementsAre(0, 1));
  EXPECT_FALSE(tables[1].optimizer.has_value());
  const proto::EmbeddingTable& embedding = tables[1].declared;
  EXPECT_EQ(embedding.name(), "embedding");
  EXPECT_TRUE(embedding.row_wise());
  EXPECT_TRUE(embedding.initializer().has_normal());
  EXPECT_EQ(embedding.expire_after_steps(), 9);
  EXPECT_EQ(embedding.max_rows(), 20000);
  EXPECT_EQ(embedding.max_rows_per_push(), 40);
  EXPECT_EQ(embedding.push(), proto::INT8);
  EXPECT_EQ(embedding.pull(), proto::FLOAT16);
}

TEST_F(ClickModelTest, SaysWhatDoesNotFit) {
  EXPECT_THAT(
      ErrorOf("dlrm { embedding { row_length: 2 } bottom { dense { "
              "units: 3 } } top { relu {} } }"),
      HasSubstr("layer \"bottom/dense\", the last of dlrm.bottom, gives "
                "the shape [3]; it must be [2]"));
  examples_.num_classes = 3;
  EXPECT_THAT(ErrorOf("logistic_regression {}"), HasSubstr("2 classes"));
  examples_.num_classes.reset();
  examples_.shape = {0};
  EXPECT_THAT(ErrorOf("dlrm { embedding { row_length: 2 } bottom { dense { "
                      "units: 2 } } top { relu {} } }"),
              HasSubstr("takes numbers, of which the examples have none"));
  examples_.id_fields.clear();
  EXPECT_THAT(ErrorOf("logistic_regression {}"), HasSubstr("have no ids"));
}

TEST_F(ClickModelTest, RefusesABatchWithoutRows) {
  Make("logistic_regression {}");
  batch_.rows = {};
  const std::vector<absl::Span<const float>> values(parameters_.begin(),
                                                    parameters_.end());
  EXPECT_THAT(model_->Evaluate(values, batch_).status().message(),
              HasSubstr("no rows"));
}

}  // namespace
}  // namespace holdfast

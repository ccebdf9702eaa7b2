// SPDX-License-Identifier: Apache-2.0
#include "worker/model/sequential.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/model/gradient_check.h"
#include "worker/model/testing/sequential_testing.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SequentialTest : public SequentialTestBase {};

// The same model, written directly from the formulas in float64, one example at
// a time: dense layers with relu between them.
struct Reference {
  double loss_sum = 0;
  int64_t correct = 0;
  // The gradients of the mean loss.
  std::vector<std::vector<double>> gradients;

  Reference(const std::vector<int>& units, int64_t inputs,
            const Tensors& parameters, const Batch& batch) {
    for (const auto& values : parameters) {
      gradients.emplace_back(values.size(), 0.0);
    }
    std::vector<int64_t> widths = {inputs};
    widths.insert(widths.end(), units.begin(), units.end());
    const int layers = units.size();
    for (int64_t e = 0; e < batch.size(); ++e) {
      const auto x = batch.inputs.subspan(e * inputs, inputs);
      // in[l] goes into layer l.
      std::vector<std::vector<double>> in = {{x.begin(), x.end()}};
      for (int l = 0; l < layers; ++l) {
        std::vector<double> y(widths[l + 1]);
        for (int64_t j = 0; j < widths[l + 1]; ++j) {
          y[j] = parameters[2 * l + 1][j];
          for (int64_t i = 0; i < widths[l]; ++i) {
            y[j] += in[l][i] * parameters[2 * l][i * widths[l + 1] + j];
          }
          if (l + 1 < layers) y[j] = std::max(y[j], 0.0);
        }
        in.push_back(std::move(y));
      }
      std::vector<double> d = in[layers];
      const int32_t label = batch.labels[e];
      double sum = 0;
      for (double z : d) sum += std::exp(z);
      loss_sum += std::log(sum) - d[label];
      correct += std::max_element(d.begin(), d.end()) - d.begin() == label;
      for (double& z : d) z = std::exp(z) / sum / batch.size();
      d[label] -= 1.0 / batch.size();
      for (int l = layers - 1; l >= 0; --l) {
        std::vector<double> dx(widths[l]);
        for (int64_t j = 0; j < widths[l + 1]; ++j) {
          gradients[2 * l + 1][j] += d[j];
          for (int64_t i = 0; i < widths[l]; ++i) {
            gradients[2 * l][i * widths[l + 1] + j] += in[l][i] * d[j];
            dx[i] += parameters[2 * l][i * widths[l + 1] + j] * d[j];
          }
        }
        for (int64_t i = 0; l > 0 && i < widths[l]; ++i) {
          if (in[l][i] <= 0) dx[i] = 0;
        }
        d = std::move(dx);
      }
    }
  }
};

TEST_F(SequentialTest, DeclaresVariablesInForwardOrder) {
  const auto model = Create(Parse(R"pb(
                              layers { flatten {} }
                              layers { dense { units: 5 } }
                              layers { relu {} }
                              layers {
                                name: "hidden"
                                dense {
                                  units: 4
                                  use_bias: false
                                  kernel_initializer { zeros {} }
                                }
                              }
                              layers {
                                dense {
                                  units: 3
                                  bias_initializer { constant { value: 0.5 } }
                                }
                              }
                              loss { softmax_cross_entropy {} }
                            )pb"),
                            {2, 3});
  ASSERT_TRUE(model.ok()) << model.status();
  std::string declared;
  for (const proto::Variable& variable : (*model)->Variables()) {
    std::string text;
    google::protobuf::TextFormat::Printer printer;
    printer.SetSingleLineMode(true);
    ASSERT_TRUE(printer.PrintToString(variable, &text));
    declared += text + "\n";
  }
  EXPECT_EQ(declared,
            "name: \"dense/kernel\" shape: 6 shape: 5 dtype: FLOAT32 "
            "initializer { glorot { } } trainable: true \n"
            "name: \"dense/bias\" shape: 5 dtype: FLOAT32 "
            "initializer { zeros { } } trainable: true \n"
            "name: \"hidden/kernel\" shape: 5 shape: 4 dtype: FLOAT32 "
            "initializer { zeros { } } trainable: true \n"
            "name: \"dense_2/kernel\" shape: 4 shape: 3 dtype: FLOAT32 "
            "initializer { glorot { } } trainable: true \n"
            "name: \"dense_2/bias\" shape: 3 dtype: FLOAT32 "
            "initializer { constant { value: 0.5 } } trainable: true \n");
}

TEST_F(SequentialTest, ErrorsAtCreationNameTheLayer) {
  const std::string loss = " loss { softmax_cross_entropy {} }";
  EXPECT_THAT(
      CreateError("layers { name: 'a' dense { units: 2 } }"
                  "layers { relu {} }"
                  "layers { name: 'a' dense { units: 2 } }" +
                      loss,
                  {4}),
      HasSubstr("layers 0 and 2 (counted from 0) are both named \"a\""));
  // A given name that equals another layer's default.
  EXPECT_THAT(CreateError("layers { name: 'dense_1' dense { units: 2 } }"
                          "layers { dense { units: 2 } }" +
                              loss,
                          {4}),
              HasSubstr("both named \"dense_1\""));
  EXPECT_THAT(
      CreateError("layers { name: 'top' dense { units: 2 } }" + loss, {28, 28}),
      HasSubstr("layer \"top\": a dense layer takes vectors, but its input has "
                "the shape [28,28]; put a flatten layer before it"));
  EXPECT_THAT(CreateError("layers { dense {} }" + loss, {4}),
              HasSubstr("layer \"dense\": units is 0"));
  EXPECT_THAT(CreateError("layers { dense { units: 3000000000 } }" + loss, {4}),
              HasSubstr("layer \"dense\": units is 3000000000"));
  EXPECT_THAT(CreateError("layers { flatten {} } " + loss, {1 << 20, 1 << 20}),
              HasSubstr("layer \"flatten\": its input has the shape "
                        "[1048576,1048576]"));
  EXPECT_THAT(CreateError("layers { flatten {} } " + loss, {0}),
              HasSubstr("layer \"flatten\": its input has the shape [0]"));
  EXPECT_THAT(CreateError("layers { name: 'x' }" + loss, {4}),
              HasSubstr("layer \"x\" has no kind"));
  EXPECT_THAT(
      CreateError("layers { dense { units: 9 } }" + loss, {4}, 10),
      HasSubstr("layer \"dense\", the last, gives the shape [9], by which "
                "the loss tells 9 classes apart; the data have 10 "
                "classes"));
  EXPECT_THAT(CreateError("layers { relu {} }" + loss, {2, 2}),
              HasSubstr("nothing to train"));
  EXPECT_THAT(CreateError("layers { dense { units: 3 } }"
                          "layers { dropout { rate: 1 } }" +
                              loss,
                          {4}),
              HasSubstr("layer \"dropout\": rate is 1, but must be at "
                        "least 0 and below 1"));
  EXPECT_THAT(CreateError("layers { dropout { rate: -0.5 } }" + loss, {4}),
              HasSubstr("rate is -0.5"));
  EXPECT_THAT(CreateError("layers { dropout { rate: nan } }" + loss, {4}),
              HasSubstr("rate is nan"));
  EXPECT_THAT(CreateError("layers { dense { units: 1 } }"
                          "loss { sigmoid_cross_entropy {} }",
                          {4}, 3),
              HasSubstr("layer \"dense\", the last, gives the shape [1], by "
                        "which the loss tells 2 classes apart; the data have 3 "
                        "classes"));
  for (const char* name : {"sigmoid_cross_entropy", "mean_squared_error"}) {
    EXPECT_THAT(
        CreateError(absl::StrCat("layers { dense { units: 9 } } loss { ", name,
                                 " {} }"),
                    {4}, 10),
        HasSubstr("tells 9 classes apart; the data have 10 classes"));
  }
  EXPECT_THAT(CreateError(loss, {4}), HasSubstr("no layers"));
  EXPECT_THAT(CreateError("layers { dense { units: 2 } }", {4}),
              HasSubstr("no loss"));
}

// x = (1, 2), W = [1 0; 0 1], b = (0, ln 3 - 1): logits (1, ln 3 + 1), so
// p = (1/4, 3/4); label 0: loss ln 4, dz = (-3/4, 3/4), db = dz, dW = x^T dz.
TEST_F(SequentialTest, ByHand) {
  auto model = MakeMlp({2}, 2);
  const Tensors parameters = {{1, 0, 0, 1}, {0, std::log(3.0f) - 1}};
  const std::vector<float> inputs = {1, 2};
  const std::vector<int32_t> labels = {0};
  const auto result = model->Evaluate(Spans(parameters), {inputs, labels});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->examples, 1);
  EXPECT_NEAR(result->loss_sum, std::log(4.0), 1e-6);
  EXPECT_EQ(result->correct, 0);
  EXPECT_TRUE(result->finite);
  const Tensors gradients =
      Gradients(model.get(), parameters, {inputs, labels});
  const Tensors expected = {{-0.75f, 0.75f, -1.5f, 1.5f}, {-0.75f, 0.75f}};
  for (int v = 0; v < 2; ++v) {
    for (size_t i = 0; i < expected[v].size(); ++i) {
      EXPECT_NEAR(gradients[v][i], expected[v][i], 1e-6);
    }
  }
}

TEST_F(SequentialTest, AgreesWithFloat64) {
  struct Case {
    std::vector<int> units;
    int64_t inputs;
    int64_t batch_size;
  };
  for (const Case& c : std::vector<Case>{{{1}, 1, 1},
                                         {{10}, 1, 1},
                                         {{1}, 7, 5},
                                         {{3, 2}, 5, 1},
                                         {{1, 3}, 4, 6},
                                         {{17, 33, 10}, 65, 31},
                                         {{64, 64, 10}, 128, 100}}) {
    auto model = MakeMlp(c.units, c.inputs);
    const Tensors parameters = RandomParameters(*model, 0.3f);
    const Examples examples(c.batch_size, c.inputs, c.units.back());
    const Reference reference(c.units, c.inputs, parameters, examples.batch());
    const Tensors gradients =
        Gradients(model.get(), parameters, examples.batch());
    const auto result = model->Evaluate(Spans(parameters), examples.batch());
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->examples, c.batch_size);
    EXPECT_NEAR(result->loss_sum, reference.loss_sum,
                1e-6 * c.batch_size + 1e-6 * reference.loss_sum);
    EXPECT_EQ(result->correct, reference.correct);
    for (size_t v = 0; v < gradients.size(); ++v) {
      ASSERT_EQ(gradients[v].size(), reference.gradients[v].size());
      double error = 0, norm = 0;
      for (size_t i = 0; i < gradients[v].size(); ++i) {
        const double expected = reference.gradients[v][i];
        error += (gradients[v][i] - expected) * (gradients[v][i] - expected);
        norm += expected * expected;
      }
      EXPECT_LE(std::sqrt(error), 1e-6 * std::sqrt(norm) + 1e-9)
          << model->Variables()[v].name() << ", batch " << c.batch_size;
    }
  }
}

TEST_F(SequentialTest, AgreesWithFiniteDifferences) {
  const auto model = Create(Parse(R"pb(
                              layers { flatten {} }
                              layers { dense { units: 6 } }
                              layers { relu {} }
                              layers { dense { units: 7 use_bias: false } }
                              layers { relu {} }
                              layers { dense { units: 4 } }
                              loss { softmax_cross_entropy {} }
                            )pb"),
                            {2, 3});
  ASSERT_TRUE(model.ok()) << model.status();
  const Examples examples(3, 6, 4);
  // With values and a step for which no difference crosses a kink of a relu.
  EXPECT_EQ(CheckGradients(model->get(), RandomParameters(**model),
                           examples.batch(), /*step=*/2e-3f),
            absl::OkStatus());
}

// Every layer and every loss, with one output and with several, in batches of
// one example and of more.
TEST_F(SequentialTest, EveryKindAgreesWithFiniteDifferences) {
  for (const std::string loss :
       {"softmax_cross_entropy", "sigmoid_cross_entropy", "mean_squared_error",
        "mean_absolute_error", "huber"}) {
    for (const int units : {1, 3}) {
      for (const int64_t examples : {1, 5}) {
        const auto model =
            Make(absl::StrCat("layers { dense { units: 6 } }"
                              "layers { tanh {} }"
                              "layers { dense { units: 5 use_bias: false } }"
                              "layers { sigmoid {} }"
                              "layers { dense { units: ",
                              units, " } } loss { ", loss, " {} }"),
                 4);
        const int classes =
            units == 1 && loss != "softmax_cross_entropy" ? 2 : units;
        EXPECT_EQ(CheckGradients(model.get(), RandomParameters(*model),
                                 Examples(examples, 4, classes).batch()),
                  absl::OkStatus())
            << loss << " of " << units << ", " << examples << " examples";
      }
    }
  }
}

// Layers without variables at both ends: the backward pass starts in one and
// stops before the other.
TEST_F(SequentialTest, LayersWithoutVariablesAtTheEnds) {
  const auto model = Create(Parse(R"pb(
                              layers { relu {} }
                              layers { flatten {} }
                              layers { dense { units: 3 } }
                              layers { relu {} }
                              loss { softmax_cross_entropy {} }
                            )pb"),
                            {2, 2});
  ASSERT_TRUE(model.ok()) << model.status();
  const Examples examples(4, 4, 3);
  EXPECT_EQ(
      CheckGradients(model->get(), RandomParameters(**model), examples.batch()),
      absl::OkStatus());
}

TEST_F(SequentialTest, ReshapesExamples) {
  const std::string loss = "loss { softmax_cross_entropy {} }";
  // A vector of 18 becomes an image of 3 x 3 places and two channels.
  const auto model =
      Create(Parse("layers { reshape { shape: [3, 3, 2] } }"
                   "layers { conv2d { filters: 2 kernel_size: 2 } }"
                   "layers { reshape { shape: 8 } }"
                   "layers { dense { units: 3 } }" +
                   loss),
             {18});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CheckGradients(model->get(), RandomParameters(**model),
                           Examples(3, 18, 3).batch()),
            absl::OkStatus());
  // It is the image as it is stored.
  const auto image =
      Create(Parse("layers { conv2d { filters: 2 kernel_size: 2 } }"
                   "layers { flatten {} } layers { dense { units: 3 } }" +
                   loss),
             {3, 3, 2});
  ASSERT_TRUE(image.ok()) << image.status();
  const Tensors parameters = RandomParameters(**model);
  const Examples examples(3, 18, 3);
  EXPECT_EQ((*model)->Evaluate(Spans(parameters), examples.batch())->loss_sum,
            (*image)->Evaluate(Spans(parameters), examples.batch())->loss_sum);
  EXPECT_THAT(
      CreateError("layers { reshape { shape: [3, 5] } }" + loss, {4, 4}),
      HasSubstr("layer \"reshape\": its shape [3,5] must have the 16 values of "
                "its input, whose shape is [4,4]"));
}

TEST_F(SequentialTest, TellsItsOutputsWhereTheyAreWanted) {
  const Tensors parameters = {{2}, {-1}};
  const std::vector<float> inputs = {0, 1, 2};
  const std::vector<int32_t> labels = {0, 1, 1};
  const auto model =
      Make("layers { dense { units: 1 } } loss { huber { delta: 2 } }", 1);
  Batch batch = {inputs, labels};
  auto result = model->Evaluate(Spans(parameters), batch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->outputs, IsEmpty());
  batch.wants_outputs = true;
  result = model->Evaluate(Spans(parameters), batch);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->outputs, ElementsAre(-1, 1, 3));
  // With delta 2: 1 / 2, 0 and 4 / 2.
  EXPECT_EQ(result->loss_sum, 2.5);
}

TEST_F(SequentialTest, SaysWhetherItsOutputsPredictAClass) {
  const auto outputs = [&](const std::string& loss, int units,
                           const ExampleSpec& examples) {
    const auto model =
        CreateSequential(Parse(absl::StrCat("layers { dense { units: ", units,
                                            " } } loss { ", loss, " {} }")),
                         examples, 0, backend_.get());
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->Outputs();
  };
  const ExampleSpec classes = {{2}, 2};
  for (const char* loss : {"mean_squared_error", "mean_absolute_error", "huber",
                           "sigmoid_cross_entropy"}) {
    EXPECT_EQ(outputs(loss, 3, classes).count, 3);
    EXPECT_TRUE(outputs(loss, 3, classes).predict_class);
    EXPECT_EQ(outputs(loss, 1, classes).predict_class,
              absl::string_view(loss) == "sigmoid_cross_entropy");
    EXPECT_FALSE(outputs(loss, 3, {{2}, std::nullopt, 3}).predict_class);
  }
  EXPECT_TRUE(outputs("softmax_cross_entropy", 2, classes).predict_class);
}

TEST_F(SequentialTest, SameBitsEveryTime) {
  auto model = MakeMlp({50, 30, 10}, 100);
  auto other = MakeMlp({50, 30, 10}, 100);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(37, 100, 10), others(90, 100, 10);
  const Tensors first = Gradients(model.get(), parameters, examples.batch());
  for (int repeat = 0; repeat < 3; ++repeat) {
    Gradients(model.get(), parameters, others.batch());
    EXPECT_EQ(Gradients(model.get(), parameters, examples.batch()), first);
    EXPECT_EQ(Gradients(other.get(), parameters, examples.batch()), first);
  }
}

TEST_F(SequentialTest, RefusesWhatDoesNotFit) {
  auto model = MakeMlp({5, 3}, 4);
  Tensors parameters = RandomParameters(*model);
  const Examples examples(8, 4, 3), wide(8, 5, 3), other(8, 4, 4);
  const auto error = [&](const Batch& batch) {
    const auto ignore = [](int, absl::Span<const float>) { FAIL(); };
    const absl::Status status =
        model->ComputeGradients(Spans(parameters), batch, ignore).status();
    EXPECT_EQ(status, model->Evaluate(Spans(parameters), batch).status());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error({}), HasSubstr("no examples"));
  EXPECT_THAT(error(wide.batch()), HasSubstr("40 input values for 8 examples"));
  // Labels are 0, 7 mod 4 = 3, ...
  EXPECT_THAT(error(other.batch()),
              HasSubstr("example 1 of the batch has the label 3; the model "
                        "knows the classes 0 to 2"));
  parameters[2].pop_back();
  EXPECT_THAT(error(examples.batch()),
              HasSubstr("variable \"dense_1/kernel\": the model was given 14 "
                        "values, its shape is [5,3]"));
}

}  // namespace
}  // namespace holdfast

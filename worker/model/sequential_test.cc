// SPDX-License-Identifier: Apache-2.0
#include "worker/model/sequential.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/gradient_check.h"

// Counts the allocations of the whole program, so that a test can check that
// there are none.
static std::atomic<int64_t> g_allocations{0};

static void* CountedAllocation(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

void* operator new(size_t size) { return CountedAllocation(size); }
void* operator new[](size_t size) { return CountedAllocation(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void* operator new(size_t size, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t align = static_cast<size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

namespace holdfast {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tensors = std::vector<std::vector<float>>;

proto::Sequential Parse(const std::string& text) {
  proto::Sequential config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// dense(units) relu ... dense(units), on vectors.
proto::Sequential Mlp(const std::vector<int>& units) {
  proto::Sequential config;
  for (size_t i = 0; i < units.size(); ++i) {
    if (i > 0) config.add_layers()->mutable_relu();
    config.add_layers()->mutable_dense()->set_units(units[i]);
  }
  config.mutable_loss()->mutable_softmax_cross_entropy();
  return config;
}

// Values in [-scale, scale), the same in every run.
std::vector<float> RandomValues(int64_t size, float scale, uint32_t key) {
  std::vector<float> values(size);
  for (int64_t i = 0; i < size; ++i) {
    const uint32_t bits = Philox4x32({static_cast<uint32_t>(i)}, {key})[0];
    values[i] = scale * (static_cast<float>(bits >> 8) / (1 << 23) - 1);
  }
  return values;
}

Tensors RandomParameters(const Model& model, float scale = 0.5f) {
  Tensors parameters;
  for (const proto::Variable& variable : model.Variables()) {
    int64_t size = 1;
    for (int64_t dimension : variable.shape()) size *= dimension;
    parameters.push_back(RandomValues(size, scale, 100 + parameters.size()));
  }
  return parameters;
}

std::vector<absl::Span<const float>> Spans(const Tensors& tensors) {
  return {tensors.begin(), tensors.end()};
}

// A batch with its memory.
struct Examples {
  Examples(int64_t size, int64_t example_size, int num_classes)
      : inputs(RandomValues(size * example_size, 1.0f, 7)) {
    for (int64_t i = 0; i < size; ++i) {
      labels.push_back(i * 7 % num_classes);
      positions.push_back(1000 + i);
    }
  }
  Batch batch() const { return {inputs, labels}; }
  Batch training_batch() const { return {inputs, labels, positions}; }

  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<int64_t> positions;
};

class SequentialTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<NetworkModel>> Create(
      const proto::Sequential& config, std::vector<int64_t> shape,
      std::optional<int64_t> num_classes = std::nullopt, uint64_t seed = 0) {
    return CreateSequential(config, {std::move(shape), num_classes}, seed,
                            backend_.get());
  }

  std::unique_ptr<NetworkModel> MakeMlp(const std::vector<int>& units,
                                        int64_t inputs) {
    auto model = Create(Mlp(units), {inputs});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  std::string CreateError(const std::string& text, std::vector<int64_t> shape,
                          std::optional<int64_t> num_classes = std::nullopt) {
    const absl::Status status =
        Create(Parse(text), std::move(shape), num_classes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  // For vectors of `inputs` inputs.
  std::unique_ptr<NetworkModel> Make(const std::string& text, int64_t inputs,
                                     uint64_t seed = 0) {
    auto model = Create(Parse(text), {inputs}, std::nullopt, seed);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // The output of the layers, in training, for 64 ones in the example at
  // `position`. Computed from the gradient of a dense layer's kernel, which is
  // 0: the output is 0, its target 1, so that dz = -2 and dW = -2 y.
  std::vector<float> InTraining(const std::string& layers, uint64_t seed,
                                int64_t position) {
    const auto model = Make(layers +
                                "layers { dense { units: 1 use_bias: false } }"
                                "loss { mean_squared_error {} }",
                            64, seed);
    const std::vector<float> ones(64, 1);
    std::vector<float> y =
        Gradients(model.get(), {std::vector<float>(64, 0)},
                  {ones, {1}, absl::MakeConstSpan(&position, 1)})[0];
    for (float& value : y) value /= -2;
    return y;
  }

  // The gradients, indexed by variable.
  Tensors Gradients(Model* model, const Tensors& parameters,
                    const Batch& batch) {
    Tensors gradients(parameters.size());
    const auto result = model->ComputeGradients(
        Spans(parameters), batch,
        [&](int variable, absl::Span<const float> gradient) {
          gradients[variable].assign(gradient.begin(), gradient.end());
        });
    EXPECT_TRUE(result.ok()) << result.status();
    return gradients;
  }

  // Checks `layers` on images of 8 x 8, after their largest batch.
  void CheckThatNoMemoryIsTaken(const std::string& layers) {
    SCOPED_TRACE(layers);
    const auto model =
        Create(Parse(layers + "loss { sigmoid_cross_entropy {} }"), {8, 8});
    ASSERT_TRUE(model.ok()) << model.status();
    const Tensors parameters = RandomParameters(**model);
    const std::vector<absl::Span<const float>> spans = Spans(parameters);
    const Examples large(50, 64, 10), small(20, 64, 10);
    double sum = 0;
    const auto add = [&](int, absl::Span<const float> gradient) {
      sum += gradient[0];
    };
    const auto train = [&](const Examples& examples) {
      return (*model)->ComputeGradients(spans, examples.training_batch(), add);
    };
    ASSERT_TRUE(train(large).ok());
    const int64_t before = g_allocations;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(train(small).ok());
      ASSERT_TRUE((*model)->Evaluate(spans, large.batch()).ok());
      ASSERT_TRUE(train(large).ok());
    }
    EXPECT_EQ(g_allocations - before, 0);
  }

  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({});
};

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

TEST_F(SequentialTest, LearnsTargets) {
  const ExampleSpec examples = {{2}, std::nullopt, 2};
  const auto create = [&](const std::string& text) {
    return CreateSequential(Parse(text), examples, 0, backend_.get());
  };
  EXPECT_THAT(create("layers { dense { units: 2 } }"
                     "loss { softmax_cross_entropy {} }")
                  .status()
                  .message(),
              HasSubstr("softmax_cross_entropy, which takes classes; the data "
                        "have targets"));
  EXPECT_THAT(create("layers { dense { units: 3 } }"
                     "loss { mean_squared_error {} }")
                  .status()
                  .message(),
              HasSubstr("gives the shape [3]; the data have 2 targets"));
  const auto model = create(
      "layers { dense { units: 2 use_bias: false } }"
      "loss { mean_squared_error {} }");
  ASSERT_TRUE(model.ok()) << model.status();

  // y = x W with W = 0: errors are -t, and dW = x^T dz with dz = -2 w t / 4.
  const std::vector<float> inputs = {1, 2, 3, 4};
  const std::vector<float> targets = {1, 0, 0, -2};
  const std::vector<float> weights = {2, 1};
  Batch batch;
  batch.inputs = inputs;
  batch.targets = targets;
  batch.num_targets = 2;
  batch.weights = weights;
  const std::vector<float> zeros(4);
  const absl::Span<const float> parameters[] = {zeros};
  std::vector<float> gradient;
  const auto result = (*model)->ComputeGradients(
      parameters, batch, [&](int, absl::Span<const float> values) {
        gradient.assign(values.begin(), values.end());
      });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->examples, 2);
  EXPECT_DOUBLE_EQ(result->loss_sum, 2 * 0.5 + 2);
  EXPECT_FALSE(result->correct.has_value());
  EXPECT_THAT(gradient, ElementsAre(-1, 3, -2, 4));

  const std::vector<int32_t> labels = {0, 1};
  EXPECT_THAT(
      (*model)->Evaluate(parameters, {inputs, labels}).status().message(),
      HasSubstr("the batch has 0 targets for each example; the model "
                "takes 2"));
  batch.weights = absl::MakeConstSpan(weights).first(1);
  EXPECT_THAT((*model)->Evaluate(parameters, batch).status().message(),
              HasSubstr("the batch has 1 weights for 2 examples"));
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

// An activation at the end, and dropout at both ends and between: the mask is
// the same in every pass.
TEST_F(SequentialTest, DropoutAgreesWithFiniteDifferences) {
  const auto model = Make(R"pb(
                            layers { dropout { rate: 0.25 } }
                            layers { dense { units: 8 } }
                            layers { tanh {} }
                            layers { dropout { rate: 0.5 } }
                            layers { dropout { rate: 0 } }
                            layers { dense { units: 3 } }
                            layers { sigmoid {} }
                            layers { dropout { rate: 0.25 } }
                            loss { mean_squared_error {} }
                          )pb",
                          6);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(5, 6, 3);
  EXPECT_EQ(CheckGradients(model.get(), parameters, examples.training_batch()),
            absl::OkStatus());
  // Checks that something was dropped.
  const auto in_training =
      model->ComputeGradients(Spans(parameters), examples.training_batch(),
                              [](int, absl::Span<const float>) {});
  const auto in_evaluation =
      model->Evaluate(Spans(parameters), examples.batch());
  ASSERT_TRUE(in_training.ok() && in_evaluation.ok());
  EXPECT_NE(in_training->loss_sum, in_evaluation->loss_sum);
}

TEST_F(SequentialTest, DropoutFollowsSeedLayerAndPosition) {
  const std::string dropout = "layers { dropout { rate: 0.5 } }";
  const std::vector<float> y = InTraining(dropout, 7, 3);
  EXPECT_THAT(y, Contains(0));
  EXPECT_THAT(y, Contains(2));
  EXPECT_THAT(y, Each(AnyOf(0, 2)));
  EXPECT_EQ(InTraining(dropout, 7, 3), y);
  EXPECT_NE(InTraining(dropout, 8, 3), y);
  EXPECT_NE(InTraining(dropout, 7 + (uint64_t{1} << 32), 3), y);
  EXPECT_NE(InTraining(dropout, 7, 4), y);
  // In the second layer; relu leaves ones as they are.
  EXPECT_NE(InTraining("layers { relu {} }" + dropout, 7, 3), y);
  // The place counts, not the name.
  EXPECT_EQ(InTraining("layers { name: 'other' dropout { rate: 0.5 } }", 7, 3),
            y);
  // The masks of two layers are independent: elements that neither drops are
  // multiplied by 4.
  const std::vector<float> twice = InTraining(dropout + dropout, 7, 3);
  EXPECT_THAT(twice, Contains(4));
  for (int i = 0; i < 64; ++i) {
    EXPECT_TRUE(twice[i] == 0 || (twice[i] == 4 && y[i] == 2)) << i;
  }
  EXPECT_NE(twice, y);
}

// A known answer, so that a job's masks stay what they are: Philox4x32 of
// ({position, 0, element / 4, 0}, key) in words below 2^31, with the key that
// is the first two words of ({layer, 0, 0, 0x6c617965}, seed).
TEST_F(SequentialTest, DropoutIsAsDocumented) {
  const auto words = Philox4x32({1, 0, 0, 0x6c617965}, {7, 9});
  std::vector<float> expected;
  for (uint32_t block = 0; block < 16; ++block) {
    for (const uint32_t word :
         Philox4x32({3, 5, block, 0}, {words[0], words[1]})) {
      expected.push_back(word < 0x80000000 ? 0 : 2);
    }
  }
  EXPECT_EQ(InTraining("layers { relu {} } layers { dropout { rate: 0.5 } }",
                       uint64_t{9} << 32 | 7, int64_t{5} << 32 | 3),
            expected);
}

// The gradient of the mean over a batch is the mean over its examples, whose
// values, small integers, are exact; the masks do not depend on the rest of the
// batch.
TEST_F(SequentialTest, DropoutIsTheSameHoweverTheBatchIsCut) {
  const std::string dropout = "layers { dropout { rate: 0.5 } }";
  const auto model = Make(dropout +
                              "layers { dense { units: 1 use_bias: false } }"
                              "loss { mean_squared_error {} }",
                          64, 7);
  const std::vector<int64_t> positions = {3, 100, 4, 99};
  const std::vector<float> ones(4 * 64, 1);
  const std::vector<int32_t> labels(4, 1);
  std::vector<float> sum(64);
  for (const int64_t position : positions) {
    const std::vector<float> y = InTraining(dropout, 7, position);
    for (int i = 0; i < 64; ++i) sum[i] += y[i];
  }
  for (float& value : sum) value *= -2.0f / 4;
  EXPECT_EQ(Gradients(model.get(), {std::vector<float>(64, 0)},
                      {ones, labels, positions})[0],
            sum);
}

TEST_F(SequentialTest, DropoutNeedsPositionsInTrainingAlone) {
  const auto model = Make(R"pb(
                            layers {
                              name: "thin"
                              dropout { rate: 0.5 }
                            }
                            layers { dense { units: 3 } }
                            loss { softmax_cross_entropy {} }
                          )pb",
                          4);
  const auto plain = MakeMlp({3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(5, 4, 3);
  const auto ignore = [](int, absl::Span<const float>) { FAIL(); };
  const absl::Status status =
      model->ComputeGradients(Spans(parameters), examples.batch(), ignore)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("layer \"thin\""));
  EXPECT_THAT(status.message(), HasSubstr("the batch has no positions"));
  const auto expected = plain->Evaluate(Spans(parameters), examples.batch());
  ASSERT_TRUE(expected.ok());
  for (const Batch& batch : {examples.batch(), examples.training_batch()}) {
    const auto result = model->Evaluate(Spans(parameters), batch);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss_sum, expected->loss_sum);
  }
}

TEST_F(SequentialTest, DropoutOfNothingIsTheIdentity) {
  const auto model = Make(R"pb(
                            layers { dense { units: 5 } }
                            layers { dropout {} }
                            layers { relu {} }
                            layers { dense { units: 3 } }
                            loss { softmax_cross_entropy {} }
                          )pb",
                          4);
  const auto plain = MakeMlp({5, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(6, 4, 3);
  const Tensors expected = Gradients(plain.get(), parameters, examples.batch());
  EXPECT_EQ(Gradients(model.get(), parameters, examples.batch()), expected);
  EXPECT_EQ(Gradients(model.get(), parameters, examples.training_batch()),
            expected);
}

// One dense unit with one input, w = 2 and b = -1, at x = 0, 1 and 2: outputs
// -1, 1 and 3.
TEST_F(SequentialTest, LossesOfOneOutputByHand) {
  const Tensors parameters = {{2}, {-1}};
  const std::vector<float> inputs = {0, 1, 2};
  const std::vector<int32_t> labels = {0, 1, 1};
  const auto evaluate = [&](const std::string& loss) {
    return *Make("layers { dense { units: 1 } } loss { " + loss + " {} }", 1)
                ->Evaluate(Spans(parameters), {inputs, labels});
  };
  const BatchResult sigmoid = evaluate("sigmoid_cross_entropy");
  EXPECT_EQ(sigmoid.examples, 3);
  // log(1 + exp(z)) where the label is 0, log(1 + exp(-z)) where it is 1.
  EXPECT_NEAR(sigmoid.loss_sum,
              std::log1p(std::exp(-1.0)) + std::log1p(std::exp(-1.0)) +
                  std::log1p(std::exp(-3.0)),
              1e-6);
  EXPECT_EQ(sigmoid.correct, 3);
  EXPECT_EQ(sigmoid.absolute_error_sum, std::nullopt);
  // Errors -1, 0 and 2.
  const BatchResult squared = evaluate("mean_squared_error");
  EXPECT_EQ(squared.loss_sum, 5);
  EXPECT_EQ(squared.correct, std::nullopt);
  EXPECT_EQ(squared.absolute_error_sum, 3);
  EXPECT_EQ(squared.squared_error_sum, 5);
  EXPECT_EQ(evaluate("mean_absolute_error").loss_sum, 3);
  // With delta 1, the default: 1 / 2, 0 and 2 - 1 / 2.
  const BatchResult huber = evaluate("huber");
  EXPECT_EQ(huber.loss_sum, 2);
  EXPECT_EQ(huber.correct, std::nullopt);
  EXPECT_EQ(huber.absolute_error_sum, 3);
  EXPECT_EQ(huber.squared_error_sum, 5);
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

// Two dense units with one input, w = (1, 0) and b = (0, 1), at x = 2: outputs
// (2, 1), label 1: errors (2, 0).
TEST_F(SequentialTest, LossesOfSeveralOutputsByHand) {
  const Tensors parameters = {{1, 0}, {0, 1}};
  const std::vector<float> inputs = {2};
  const auto evaluate = [&](const std::string& loss, int32_t label) {
    return *Make("layers { dense { units: 2 } } loss { " + loss + " {} }", 1)
                ->Evaluate(Spans(parameters), {inputs, {label}});
  };
  const BatchResult sigmoid = evaluate("sigmoid_cross_entropy", 1);
  EXPECT_NEAR(sigmoid.loss_sum,
              (std::log1p(std::exp(2.0)) + std::log1p(std::exp(-1.0))) / 2,
              1e-6);
  EXPECT_EQ(sigmoid.correct, 0);
  EXPECT_EQ(sigmoid.absolute_error_sum, std::nullopt);
  const BatchResult squared = evaluate("mean_squared_error", 1);
  EXPECT_EQ(squared.loss_sum, 2);
  EXPECT_EQ(squared.correct, 0);
  EXPECT_EQ(squared.absolute_error_sum, 1);
  EXPECT_EQ(squared.squared_error_sum, 2);
  EXPECT_EQ(evaluate("mean_squared_error", 0).correct, 1);
  EXPECT_EQ(evaluate("softmax_cross_entropy", 0).absolute_error_sum,
            std::nullopt);
}

TEST_F(SequentialTest, OneOutputLimitsTheLabelsAsTheLossSays) {
  const Tensors parameters = {{2}, {-1}};
  const std::vector<float> inputs = {0, 1, 2};
  const auto evaluate = [&](const std::string& loss,
                            std::vector<int32_t> labels) {
    return Make("layers { dense { units: 1 } } loss { " + loss + " {} }", 1)
        ->Evaluate(Spans(parameters), {inputs, labels})
        .status();
  };
  const absl::Status status = evaluate("sigmoid_cross_entropy", {0, 1, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("example 2 of the batch has the label 2; the model "
                        "knows the classes 0 to 1"));
  EXPECT_TRUE(evaluate("mean_squared_error", {0, 200, 2147483647}).ok());
  EXPECT_THAT(evaluate("mean_squared_error", {0, -1, 0}).message(),
              HasSubstr("example 1 of the batch has the label -1"));
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

TEST_F(SequentialTest, LastLayerComesFirst) {
  auto model = MakeMlp({8, 8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(2, 4, 3);
  std::vector<int> order;
  ASSERT_TRUE(model
                  ->ComputeGradients(Spans(parameters), examples.batch(),
                                     [&](int v, absl::Span<const float>) {
                                       order.push_back(v);
                                     })
                  .ok());
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST_F(SequentialTest, GradientsLeaveDuringTheBackwardPass) {
  // When the last layer's gradient arrives, the gradient of the first layer's
  // kernel has not been computed yet: its memory still holds an earlier pass's
  // values.
  auto model = MakeMlp({8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(2, 4, 3), others(3, 4, 3);
  absl::Span<const float> first_kernel;
  const auto remember = [&](int v, absl::Span<const float> gradient) {
    if (v == 0) first_kernel = gradient;
  };
  ASSERT_TRUE(
      model->ComputeGradients(Spans(parameters), examples.batch(), remember)
          .ok());
  const std::vector<float> before(first_kernel.begin(), first_kernel.end());
  bool seen = false;
  const auto compare = [&](int v, absl::Span<const float> gradient) {
    if (v != 2) return;
    seen = true;
    EXPECT_EQ(first_kernel, absl::MakeConstSpan(before));
  };
  ASSERT_TRUE(
      model->ComputeGradients(Spans(parameters), others.batch(), compare).ok());
  EXPECT_TRUE(seen);
  EXPECT_NE(first_kernel, absl::MakeConstSpan(before));
}

TEST_F(SequentialTest, GradientsAreMadeInTheSinksMemory) {
  auto model = MakeMlp({8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(6, 4, 3);
  const Tensors expected = Gradients(model.get(), parameters, examples.batch());
  // There is no memory for the second layer's kernel.
  Tensors memory;
  for (const std::vector<float>& gradient : expected) {
    memory.emplace_back(gradient.size(), -1);
  }
  memory[2].clear();
  const auto take = [&](int v, absl::Span<const float> gradient) {
    EXPECT_EQ(gradient, absl::MakeConstSpan(expected[v]));
    if (v == 2) return;
    EXPECT_EQ(gradient.data(), memory[v].data());
  };
  const auto memory_of = [&](int v) { return absl::MakeSpan(memory[v]); };
  ASSERT_TRUE(model
                  ->ComputeGradients(Spans(parameters), examples.batch(),
                                     GradientSink(take, memory_of))
                  .ok());
  EXPECT_EQ(memory[0], expected[0]);
}

TEST_F(SequentialTest, GradientsStayUntilTheNext) {
  auto model = MakeMlp({8, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(6, 4, 3), larger(50, 4, 3);
  std::vector<absl::Span<const float>> spans(4);
  ASSERT_TRUE(model
                  ->ComputeGradients(
                      Spans(parameters), examples.batch(),
                      [&](int v, absl::Span<const float> g) { spans[v] = g; })
                  .ok());
  const Tensors kept = {{spans[0].begin(), spans[0].end()},
                        {spans[1].begin(), spans[1].end()},
                        {spans[2].begin(), spans[2].end()},
                        {spans[3].begin(), spans[3].end()}};
  ASSERT_TRUE(model->Evaluate(Spans(parameters), larger.batch()).ok());
  for (int v = 0; v < 4; ++v) {
    EXPECT_EQ(spans[v], absl::MakeConstSpan(kept[v]));
  }
  EXPECT_EQ(Gradients(model.get(), parameters, examples.batch()), kept);
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

// The mean over a batch is the mean of the means over its halves.
TEST_F(SequentialTest, GradientIsOfTheMeanLoss) {
  auto model = MakeMlp({5, 3}, 4);
  const Tensors parameters = RandomParameters(*model);
  const Examples all(8, 4, 3);
  const Batch batch = all.batch();
  const Tensors whole = Gradients(model.get(), parameters, batch);
  const Tensors a =
      Gradients(model.get(), parameters,
                {batch.inputs.subspan(0, 16), batch.labels.subspan(0, 4)});
  const Tensors b =
      Gradients(model.get(), parameters,
                {batch.inputs.subspan(16), batch.labels.subspan(4)});
  for (size_t v = 0; v < whole.size(); ++v) {
    for (size_t i = 0; i < whole[v].size(); ++i) {
      EXPECT_NEAR(whole[v][i], (a[v][i] + b[v][i]) / 2, 1e-6);
    }
  }
}

// Except for float16's losses, a scale that is a power of two changes no bits;
// batch norm's statistics are not gradients.
TEST_F(SequentialTest, TheLossScaleGoesInAndOutAgain) {
  const auto model = Make(
      "layers { dense { units: 6 } } layers { batch_norm {} }"
      "layers { relu {} } layers { dense { units: 3 } }"
      "loss { softmax_cross_entropy {} }",
      5);
  const Tensors parameters = RandomParameters(*model);
  const Examples examples(8, 5, 3);
  Batch batch = examples.training_batch();
  const Tensors expected = Gradients(model.get(), parameters, batch);
  batch.loss_scale = 1024;
  EXPECT_EQ(Gradients(model.get(), parameters, batch), expected);
}

// With x = 1, w and v: z = w v, dz = 2 (z - label), dw = v dz, where dz is a
// factor and is rounded.
TEST_F(SequentialTest, TheLossScaleKeepsSmallGradientsInFloat16) {
  backend_ = *CpuBackend::Create({.precision = Precision::kFloat16});
  const auto model = Make(
      "layers { dense { units: 1 use_bias: false } }"
      "layers { dense { units: 1 use_bias: false } }"
      "loss { mean_squared_error {} }",
      1);
  const Tensors parameters = {{1}, {0x1p-24f}};
  const std::vector<float> input = {1};
  const std::vector<int32_t> labels = {1};
  Batch batch = {input, labels};
  // dz = 2 (2^-24 - 1), which float32 holds; by the first kernel 2^-24 dz.
  EXPECT_EQ(Gradients(model.get(), parameters, batch)[0][0], -0x1p-23f);
  const Tensors smaller = {{0x1p-13f}, {0x1p-13f}};
  const std::vector<int32_t> zero = {0};
  batch.labels = zero;
  // dz = 2^-25, and 0 as a factor.
  EXPECT_EQ(Gradients(model.get(), smaller, batch)[0][0], 0);
  batch.loss_scale = 65536;
  EXPECT_EQ(Gradients(model.get(), smaller, batch)[0][0], 0x1p-38f);
  // A scale that is too large gives infinity or NaN.
  batch.labels = labels;
  batch.loss_scale = 1 << 24;
  EXPECT_FALSE(std::isfinite(Gradients(model.get(), parameters, batch)[0][0]));
}

TEST_F(SequentialTest, SaysWhenTheLossIsNotFinite) {
  auto model = MakeMlp({5, 3}, 4);
  const Tensors good = RandomParameters(*model);
  const Examples examples(8, 4, 3);
  int calls = 0;
  const auto count = [&](int, absl::Span<const float>) { ++calls; };
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    Tensors parameters = good;
    parameters[1][2] = bad;
    const auto result =
        model->ComputeGradients(Spans(parameters), examples.batch(), count);
    ASSERT_TRUE(result.ok());
    EXPECT_FALSE(result->finite);
    EXPECT_EQ(result->examples, 8);
    const auto forward = model->Evaluate(Spans(parameters), examples.batch());
    ASSERT_TRUE(forward.ok());
    EXPECT_FALSE(forward->finite);
  }
  EXPECT_EQ(calls, 0);
  // And continues after the error.
  const auto result =
      model->ComputeGradients(Spans(good), examples.batch(), count);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->finite);
  EXPECT_EQ(calls, 4);
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

TEST_F(SequentialTest, TakesNoMemoryInTheSteadyState) {
  for (const char* layers : {
           R"pb(
             layers { dropout { rate: 0.5 } }
             layers { flatten {} }
             layers { dense { units: 32 } }
             layers { relu {} }
             layers { dropout { rate: 0.5 } }
             layers { dense { units: 32 } }
             layers { sigmoid {} }
             layers { dense { units: 10 } }
             layers { tanh {} })pb",
           R"pb(
             layers { conv2d { filters: 4 kernel_size: 3 } }
             layers { batch_norm {} }
             layers {
               residual {
                 layers { conv2d { filters: 6 kernel_size: 3 stride: 2 } }
                 layers { layer_norm {} }
                 shortcut { average_pool2d { size: 3 stride: 2 } }
                 shortcut { conv2d { filters: 6 kernel_size: 1 } }
               }
             }
             layers { max_pool2d { size: 2 } }
             layers { global_average_pool2d {} }
             layers { dense { units: 10 } })pb"}) {
    CheckThatNoMemoryIsTaken(layers);
  }
}

}  // namespace
}  // namespace holdfast

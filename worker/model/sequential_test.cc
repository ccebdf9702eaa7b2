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

#include "common/random.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/model/gradient_check.h"

// Allocations of the whole program, so that a test can show that there are
// none.
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

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// On [-scale, scale), the same in every run.
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
    for (int64_t i = 0; i < size; ++i) labels.push_back(i * 7 % num_classes);
  }
  Batch batch() const { return {inputs, labels}; }

  std::vector<float> inputs;
  std::vector<int32_t> labels;
};

class SequentialTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Sequential>> Create(
      const proto::Sequential& config, std::vector<int64_t> shape,
      std::optional<int64_t> num_classes = std::nullopt) {
    return Sequential::Create(config, shape, num_classes, backend_.get());
  }

  std::unique_ptr<Sequential> MakeMlp(const std::vector<int>& units,
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

  // The gradients, by variable.
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

  std::unique_ptr<CpuBackend> backend_ = *CpuBackend::Create({});
};

// The same model, written straight from the formulas in float64, an example at
// a time: dense layers with relu between them.
struct Reference {
  double loss_sum = 0;
  int64_t correct = 0;
  // Of the mean loss.
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
  // A given name that is another's default.
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
  EXPECT_THAT(CreateError("layers { dense { units: 9 } }" + loss, {4}, 10),
              HasSubstr("layer \"dense\", the last, gives 9 logits; the data "
                        "have 10 classes"));
  EXPECT_THAT(CreateError("layers { relu {} }" + loss, {2, 2}),
              HasSubstr("nothing to train"));
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
  // Of values and step for which no difference crosses a kink of the relus.
  EXPECT_EQ(CheckGradients(model->get(), RandomParameters(**model),
                           examples.batch(), /*step=*/2e-3f),
            absl::OkStatus());
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
  // The gradient of the first layer's kernel is not made yet when that of the
  // last arrives: it still holds what an earlier pass left.
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
  // And goes on after it.
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
  auto model = MakeMlp({32, 10}, 64);
  const Tensors parameters = RandomParameters(*model);
  const std::vector<absl::Span<const float>> spans = Spans(parameters);
  const Examples large(50, 64, 10), small(20, 64, 10);
  double sum = 0;
  const auto add = [&](int, absl::Span<const float> gradient) {
    sum += gradient[0];
  };
  ASSERT_TRUE(model->ComputeGradients(spans, large.batch(), add).ok());
  const int64_t before = g_allocations;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(model->ComputeGradients(spans, small.batch(), add).ok());
    ASSERT_TRUE(model->Evaluate(spans, large.batch()).ok());
    ASSERT_TRUE(model->ComputeGradients(spans, large.batch(), add).ok());
  }
  EXPECT_EQ(g_allocations - before, 0);
}

}  // namespace
}  // namespace holdfast

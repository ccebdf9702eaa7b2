// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/benchmark_models.h"

#include <google/protobuf/text_format.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/gpu/example_job.h"
#include "worker/model/registry.h"

namespace holdfast {
namespace {

constexpr char kMlp[] = R"pb(
  layers { flatten {} }
  layers { dense { units: 4096 } }
  layers { relu {} }
  layers { dense { units: 4096 } }
  layers { relu {} }
  layers { dense { units: 10 } }
  loss { softmax_cross_entropy {} })pb";

std::string Convolution(int filters, int size, int stride, int groups = 1) {
  return absl::StrFormat(
      "conv2d { filters: %d kernel_size: %d stride: %d padding: SAME groups: "
      "%d use_bias: false }",
      filters, size, stride, groups);
}

std::string ResNet50() {
  std::string text =
      absl::StrCat("layers { ", Convolution(64, 7, 2),
                   " } layers { batch_norm {} } layers { relu {} } "
                   "layers { max_pool2d { size: 3 stride: 2 padding: SAME } }");
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int filters = 64 << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      const int stride = stage > 0 && block == 0 ? 2 : 1;
      absl::StrAppend(
          &text, "layers { residual { layers { ", Convolution(filters, 1, 1),
          " } layers { batch_norm {} } layers { relu {} } layers { ",
          Convolution(filters, 3, stride),
          " } layers { batch_norm {} } layers { relu {} } layers { ",
          Convolution(4 * filters, 1, 1), " } layers { batch_norm {} } ");
      if (block == 0) {
        absl::StrAppend(&text, "shortcut { ",
                        Convolution(4 * filters, 1, stride),
                        " } shortcut { batch_norm {} } ");
      }
      absl::StrAppend(&text, "} } layers { relu {} } ");
    }
  }
  absl::StrAppend(&text,
                  "layers { global_average_pool2d {} } layers { dense { units: "
                  "1000 } } loss { softmax_cross_entropy {} }");
  return text;
}

// MobileNet (Howard et al. 2017, table 1), but its first convolution has a
// stride of 1. `first` and `others` are the multiplications of that convolution
// and of the other layers, for one example.
struct MobileNet {
  MobileNet() {
    constexpr int kFirst = 32;
    constexpr char kNorm[] =
        " } layers { batch_norm {} } layers { relu {} } layers { ";
    text = absl::StrCat("layers { ", Convolution(kFirst, 3, 1), kNorm);
    struct Block {
      int filters, stride;
    };
    int side = 112;
    int channels = kFirst;
    first = side * side * 9.0 * 3 * kFirst;
    for (const Block block :
         {Block{64, 1}, Block{128, 2}, Block{128, 1}, Block{256, 2},
          Block{256, 1}, Block{512, 2}, Block{512, 1}, Block{512, 1},
          Block{512, 1}, Block{512, 1}, Block{512, 1}, Block{1024, 2},
          Block{1024, 1}}) {
      side /= block.stride;
      absl::StrAppend(&text, Convolution(channels, 3, block.stride, channels),
                      kNorm, Convolution(block.filters, 1, 1), kNorm);
      others += side * side * (9.0 * channels + channels * block.filters);
      channels = block.filters;
    }
    others += channels * 1000.0;
    absl::StrAppend(&text,
                    "global_average_pool2d {} } layers { dense { units: 1000 } "
                    "} loss { softmax_cross_entropy {} }");
  }

  std::string text;
  double first = 0;
  double others = 0;
};

}  // namespace

void FillAtRandom(uint64_t seed, absl::Span<float> values) {
  uint64_t state = seed * 0x9E3779B97F4A7C15 + 1;
  for (float& value : values) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<float>(state >> 40) * 0x1p-24f;
  }
}

absl::StatusOr<std::vector<BenchmarkModel>> BenchmarkModels() {
  const auto resnet = LoadExample("fashion_mnist_resnet.textproto");
  if (!resnet.ok()) return resnet.status();
  // Arguments: multiplications of the first layer and of the others, for one
  // example.
  const auto flops = [](double first, double others) {
    return 2 * (2 * first + 3 * others);
  };
  std::vector<BenchmarkModel> models;
  models.push_back({"mlp",
                    {},
                    {{28, 28}, 10},
                    1024,
                    flops(784.0 * 4096, 4096.0 * 4096 + 4096.0 * 10)});
  // Convolutions: positions x window x input channels x output channels. The
  // blocks have 28 x 28, 14 x 14 and 7 x 7 positions; the last two have a 1 x 1
  // shortcut.
  models.push_back(
      {"resnet",
       resnet->model(),
       {{28, 28}, 10},
       512,
       flops(784.0 * 9 * 1 * 16,
             2 * 784.0 * 9 * 16 * 16 +                            //
                 196.0 * (9 * 16 * 32 + 9 * 32 * 32 + 16 * 32) +  //
                 49.0 * (9 * 32 * 64 + 9 * 64 * 64 + 32 * 64) + 64.0 * 10)});
  models.push_back({"resnet50",
                    {},
                    {{224, 224, 3}, 1000},
                    256,
                    flops(118e6, 4.09e9 - 118e6)});
  const MobileNet mobilenet;
  models.push_back({"mobilenet",
                    {},
                    {{112, 112, 3}, 1000},
                    128,
                    flops(mobilenet.first, mobilenet.others)});
  const std::string texts[] = {kMlp, "", ResNet50(), mobilenet.text};
  for (size_t i = 0; i < models.size(); ++i) {
    if (texts[i].empty()) continue;
    if (!google::protobuf::TextFormat::ParseFromString(
            texts[i], models[i].model.mutable_sequential())) {
      return absl::InternalError(
          absl::StrCat("the model ", models[i].name, " does not parse"));
    }
  }
  return models;
}

absl::StatusOr<std::unique_ptr<BenchmarkSteps>> BenchmarkSteps::Create(
    const BenchmarkModel& config, Backend* backend) {
  auto model =
      CreateModel(config.model, config.examples, 1, backend, ModelRegistry());
  if (!model.ok()) return model.status();
  const auto values = FirstValues((*model)->Variables(), 1);
  if (!values.ok()) return values.status();
  std::unique_ptr<BenchmarkSteps> steps(new BenchmarkSteps(backend));
  steps->model_ = *std::move(model);
  for (const std::vector<float>& value : *values) {
    auto pinned = backend->AllocateHost(value.size());
    if (!pinned.ok()) return pinned.status();
    absl::c_copy(value, pinned->get());
    steps->parameters_.emplace_back(pinned->get(), value.size());
    steps->memory_.push_back(*std::move(pinned));
  }
  steps->staging_.resize(steps->parameters_.size());
  int64_t example_size = 1;
  for (const int64_t dimension : config.examples.shape) {
    example_size *= dimension;
  }
  const size_t size = config.batch_size * example_size;
  for (int which = 0; which < 2; ++which) {
    auto pinned = backend->AllocateHost(size);
    if (!pinned.ok()) return pinned.status();
    FillAtRandom(which + 1, {pinned->get(), size});
    steps->inputs_[which] = {pinned->get(), size};
    steps->memory_.push_back(*std::move(pinned));
    for (int64_t i = 0; i < config.batch_size; ++i) {
      steps->positions_[which].push_back(which * config.batch_size + i);
    }
  }
  for (int64_t i = 0; i < config.batch_size; ++i) {
    steps->labels_.push_back(
        static_cast<int32_t>(i % *config.examples.num_classes));
  }
  return steps;
}

Batch BenchmarkSteps::BatchOf(int64_t step) const {
  Batch batch;
  batch.inputs = inputs_[step % 2];
  batch.labels = labels_;
  batch.positions = positions_[step % 2];
  return batch;
}

absl::Status BenchmarkSteps::Upload() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto uploaded = backend_->Upload(parameters_[i], 1,
                                           parameters_[i].size(), &staging_[i]);
    if (!uploaded.ok()) return uploaded.status();
  }
  return backend_->AwaitUploads();
}

absl::Status BenchmarkSteps::Forward(int64_t step) {
  return model_->Evaluate(parameters_, BatchOf(step)).status();
}

absl::Status BenchmarkSteps::Step(int64_t step) {
  Batch batch = BatchOf(step);
  batch.next_inputs = inputs_[(step + 1) % 2];
  batch.next_positions = positions_[(step + 1) % 2];
  return model_
      ->ComputeGradients(parameters_, batch,
                         [](int, absl::Span<const float>) {})
      .status();
}

}  // namespace holdfast

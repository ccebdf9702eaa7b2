// SPDX-License-Identifier: Apache-2.0

// Measures how fast TFRecord files are opened, which reads and validates all of
// their records, and how fast examples are then read from them: images as raw
// bytes, tables with one number per feature, vectors of floats, and photographs
// as JPEG files.
//
//   bazel run //common/data:tfrecord_benchmark
//
// Missing files are written into TFRECORD_BENCHMARK_FOLDER, by default TMPDIR,
// and kept there: common/data/tfrecord_benchmark.py makes TensorFlow read the
// same files.

#include <benchmark/benchmark.h>
#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/data/dataset.h"
#include "common/data/testing/image_testing.h"
#include "common/data/tfrecord_frame.h"
#include "proto/tf_example.pb.h"

namespace holdfast {
namespace {

constexpr uint32_t kRows = 60000;
constexpr uint32_t kColumns = 20;
constexpr uint32_t kPixels = 784;
constexpr uint32_t kSide = 128;

enum Kind { kImages, kTables, kVectors, kPhotographs };
constexpr const char* kNames[] = {"images", "tables", "vectors", "photographs"};

uint32_t RowsOf(Kind kind) { return kind == kPhotographs ? 2000 : kRows; }

std::string File(Kind kind) {
  const char* folder = std::getenv("TFRECORD_BENCHMARK_FOLDER");
  if (folder == nullptr) folder = std::getenv("TMPDIR");
  return absl::StrCat(folder != nullptr ? folder : "/tmp", "/benchmark_",
                      kNames[kind], ".tfrecord");
}

proto::tensorflow::Feature* Add(const std::string& name,
                                proto::tensorflow::Example* example) {
  auto* const entry = example->mutable_features()->add_feature();
  entry->set_key(name);
  return entry->mutable_value();
}

float NumberAt(uint32_t row, uint32_t place) {
  return static_cast<float>(Philox4x32({row, place}, {1})[0] / 0x1p31 - 1);
}

// Smooth colours with some noise.
std::string Photograph(uint32_t row) {
  std::string pixels = RandomPixels(kSide * kSide * 3, row);
  for (uint32_t i = 0; i < pixels.size(); ++i) {
    const uint32_t x = i / 3 % kSide, y = i / 3 / kSide;
    pixels[i] = static_cast<char>((static_cast<uint8_t>(pixels[i]) >> 4) +
                                  (x * (i % 3 + 1) + y + row) % 256 * 7 / 8);
  }
  return EncodeJpeg(kSide, kSide, 3, pixels);
}

std::string Record(Kind kind, uint32_t row) {
  proto::tensorflow::Example example;
  Add("label", &example)->mutable_int64_list()->add_value(row % 10);
  if (kind == kPhotographs) {
    Add("image", &example)->mutable_bytes_list()->add_value(Photograph(row));
  } else if (kind == kImages) {
    std::string pixels(kPixels, '\0');
    for (uint32_t i = 0; i < kPixels; ++i)
      pixels[i] = static_cast<char>(row * i);
    Add("image", &example)->mutable_bytes_list()->add_value(pixels);
  } else if (kind == kTables) {
    for (uint32_t i = 0; i < kColumns; ++i) {
      Add(absl::StrCat("x", i), &example)
          ->mutable_float_list()
          ->add_value(NumberAt(row, i));
    }
  } else {
    auto* const list = Add("x", &example)->mutable_float_list();
    for (uint32_t i = 0; i < kPixels; ++i) list->add_value(NumberAt(row, i));
  }
  return example.SerializeAsString();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenFile(Kind kind) {
  const std::string path = File(kind);
  if (!std::filesystem::exists(path)) {
    std::string file;
    for (uint32_t row = 0; row < RowsOf(kind); ++row) {
      AppendTfRecord(Record(kind, row), &file);
    }
    std::ofstream(path, std::ios::binary) << file;
  }
  std::string features;
  if (kind == kPhotographs) {
    features = absl::StrCat("features { name: 'image' image { height: ", kSide,
                            " width: ", kSide, " } }");
  } else if (kind == kImages) {
    features = "shape: 28 shape: 28 features { name: 'image' raw {} }";
  } else if (kind == kTables) {
    for (uint32_t i = 0; i < kColumns; ++i) {
      absl::StrAppend(&features, "features { name: 'x", i, "' numbers {} } ");
    }
  } else {
    features =
        absl::StrCat("features { name: 'x' numbers { size: ", kPixels, " } }");
  }
  proto::Dataset config;
  google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("tfrecord { files: '", path,
                   "' features { name: 'label' label {} } ", features, " }"),
      &config);
  return Dataset::Open(config, {});
}

void BM_OpenTfRecord(benchmark::State& state) {
  const Kind kind = static_cast<Kind>(state.range(0));
  // Writes the file.
  benchmark::DoNotOptimize(OpenFile(kind));
  for (auto _ : state) {
    const auto dataset = OpenFile(kind);
    if (!dataset.ok()) {
      return state.SkipWithError(dataset.status().ToString().c_str());
    }
  }
  state.SetLabel(kNames[kind]);
  state.SetItemsProcessed(state.iterations() * RowsOf(kind));
  state.SetBytesProcessed(state.iterations() *
                          std::filesystem::file_size(File(kind)));
}
BENCHMARK(BM_OpenTfRecord)->DenseRange(0, 3)->Unit(benchmark::kMillisecond);

// In a random order, as in training.
void BM_ReadTfRecord(benchmark::State& state) {
  const Kind kind = static_cast<Kind>(state.range(0));
  const auto dataset = OpenFile(kind);
  if (!dataset.ok()) {
    return state.SkipWithError(dataset.status().ToString().c_str());
  }
  std::vector<float> input((*dataset)->spec().input_size());
  int32_t label = 0;
  const ExampleMemory memory = {absl::MakeSpan(input), &label};
  uint64_t place = 1;
  for (auto _ : state) {
    place = place * 6364136223846793005 + 1442695040888963407;
    benchmark::DoNotOptimize(
        (*dataset)->Read((place >> 33) % RowsOf(kind), memory));
  }
  state.SetLabel(kNames[kind]);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ReadTfRecord)->DenseRange(0, 3);

}  // namespace
}  // namespace holdfast

BENCHMARK_MAIN();

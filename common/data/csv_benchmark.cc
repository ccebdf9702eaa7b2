// SPDX-License-Identifier: Apache-2.0

// Measures the rows per second of a CSV file of 200,000 rows with ten numbers,
// two categories and a label: parsed as when a worker starts, by one thread and
// by several, and read as examples. tests/benchmark/csv_pandas.py compares it
// with pandas. The file is $CSV_BENCHMARK_FILE, by default
// $TMPDIR/csv_benchmark.csv, and is kept, so that other programs can be
// measured on it.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "common/data/dataset.h"

namespace holdfast {
namespace {

constexpr uint32_t kRows = 200000;
constexpr uint32_t kNumbers = 10;
constexpr const char* kCities[] = {"rome", "paris", "london", "madrid"};

std::string File() {
  if (const char* const given = std::getenv("CSV_BENCHMARK_FILE")) return given;
  const char* const folder = std::getenv("TMPDIR");
  return absl::StrCat(folder != nullptr ? folder : "/tmp",
                      "/csv_benchmark.csv");
}

void WriteTable(const std::string& path) {
  if (std::filesystem::exists(path)) return;
  std::string text;
  for (uint32_t i = 0; i < kNumbers; ++i) absl::StrAppend(&text, "x", i, ",");
  text += "city,day,label\n";
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t i = 0; i < kNumbers; ++i) {
      const uint32_t bits = Philox4x32({row, i}, {1})[0];
      absl::StrAppendFormat(&text, "%.6f,", bits / 0x1p29 - 4);
    }
    const auto bits = Philox4x32({row, 99}, {1});
    absl::StrAppend(&text, kCities[bits[0] % 4], ",", bits[1] % 7, ",",
                    bits[2] % 2, "\n");
  }
  std::ofstream(path, std::ios::binary) << text;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenTable(int threads) {
  const std::string path = File();
  WriteTable(path);
  proto::Dataset config;
  proto::Csv* const csv = config.mutable_csv();
  csv->add_files(path);
  proto::CsvColumn* column = csv->add_columns();
  column->add_name("x*");
  column->mutable_number()->set_stddev(2);
  column = csv->add_columns();
  column->add_name("city");
  for (const char* const city : kCities) {
    column->mutable_category()->add_values(city);
  }
  column = csv->add_columns();
  column->add_name("day");
  column->mutable_category()->set_count(7);
  column = csv->add_columns();
  column->add_name("label");
  column->mutable_label();
  Dataset::Options options;
  options.reading.threads = threads;
  return Dataset::Open(config, options);
}

void BM_OpenCsv(benchmark::State& state) {
  WriteTable(File());
  for (auto _ : state) {
    const auto dataset = OpenTable(static_cast<int>(state.range(0)));
    if (!dataset.ok()) {
      return state.SkipWithError(dataset.status().ToString().c_str());
    }
  }
  state.SetItemsProcessed(state.iterations() * kRows);
  state.SetBytesProcessed(state.iterations() *
                          std::filesystem::file_size(File()));
}
BENCHMARK(BM_OpenCsv)
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// In a random order, as in training.
void BM_ReadExamples(benchmark::State& state) {
  const auto dataset = OpenTable(/*threads=*/1);
  if (!dataset.ok()) {
    return state.SkipWithError(dataset.status().ToString().c_str());
  }
  std::vector<float> input((*dataset)->spec().input_size());
  int32_t label = 0;
  const ExampleMemory memory = {absl::MakeSpan(input), &label};
  uint64_t place = 1;
  for (auto _ : state) {
    place = place * 6364136223846793005 + 1442695040888963407;
    benchmark::DoNotOptimize((*dataset)->Read((place >> 33) % kRows, memory));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_ReadExamples);

}  // namespace
}  // namespace holdfast

BENCHMARK_MAIN();

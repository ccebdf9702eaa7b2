// SPDX-License-Identifier: Apache-2.0

// Measures seconds and rate of saving and loading 256 MiB as one data file,
// compared with writing the same bytes by write and fsync, and reading them by
// pread, in the same folder.
//
//   bazel run //common/checkpoint:data_file_benchmark -- [FOLDER; default /tmp]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/checkpoint/data_file.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

constexpr uint64_t kElements = uint64_t{64} << 20;
constexpr size_t kChunk = size_t{1} << 18;
constexpr int kRounds = 5;

proto::Manifest MakeManifest() {
  proto::Manifest manifest;
  manifest.mutable_name()->set_generation(1);
  manifest.mutable_name()->set_step(1);
  proto::Variable& variable = *manifest.mutable_declaration()->add_variables();
  variable.set_name("v");
  variable.add_shape(kElements);
  variable.set_dtype(proto::FLOAT32);
  manifest.mutable_declaration()->add_optimizers();
  return manifest;
}

void Save(const CheckpointDirectory& directory, const std::vector<float>& data,
          proto::Manifest* manifest) {
  auto writer = DataFileWriter::Create(directory, manifest->name(), 0, 1);
  CHECK(writer.ok()) << writer.status();
  CHECK((*writer)->Begin("v", 0, 0, data.size()).ok());
  for (size_t at = 0; at < data.size(); at += kChunk) {
    CHECK((*writer)->Append(absl::MakeSpan(data).subspan(at, kChunk)).ok());
  }
  auto file = (*writer)->Finish();
  CHECK(file.ok()) << file.status();
  manifest->clear_files();
  *manifest->add_files() = *file;
  CHECK(directory.WriteManifest(*manifest).ok());
}

void Load(const CheckpointDirectory& directory, const proto::Manifest& manifest,
          std::vector<float>* data) {
  auto reader = CheckpointReader::Open(directory, manifest.name());
  CHECK(reader.ok()) << reader.status();
  const absl::Status status = (*reader)->Read("v", 0, 0, absl::MakeSpan(*data));
  CHECK(status.ok()) << status;
}

void WriteRaw(const std::string& path, const std::vector<float>& data) {
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  PCHECK(file >= 0);
  const char* bytes = reinterpret_cast<const char*>(data.data());
  for (size_t at = 0; at < data.size() * sizeof(float); at += 1 << 20) {
    PCHECK(write(file, bytes + at, 1 << 20) == 1 << 20);
  }
  PCHECK(fsync(file) == 0);
  close(file);
}

void ReadRaw(const std::string& path, std::vector<float>* data) {
  const int file = open(path.c_str(), O_RDONLY);
  PCHECK(file >= 0);
  char* bytes = reinterpret_cast<char*>(data->data());
  for (size_t at = 0; at < data->size() * sizeof(float); at += 1 << 20) {
    PCHECK(pread(file, bytes + at, 1 << 20, at) == 1 << 20);
  }
  close(file);
}

double Seconds(const std::function<void()>& what) {
  const absl::Time begun = SteadyNow();
  what();
  return absl::ToDoubleSeconds(SteadyNow() - begun);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(const char* what, const char* limit,
             const std::vector<double>& ours, const std::vector<double>& raw) {
  const double gigabytes = kElements * sizeof(float) / 1e9;
  std::printf("%s: %.3f s, %.2f GB/s; %s: %.3f s; %.2f x its rate\n", what,
              Median(ours), gigabytes / Median(ours), limit, Median(raw),
              Median(raw) / Median(ours));
}

int Main(int argc, char** argv) {
  const std::string folder =
      absl::StrCat(argc > 1 ? argv[1] : "/tmp", "/data_file_benchmark");
  auto directory = CheckpointDirectory::Open(folder, PosixFileSystem());
  CHECK(directory.ok()) << directory.status();
  std::vector<float> data(kElements, 1.5f);
  proto::Manifest manifest = MakeManifest();
  const std::string raw = absl::StrCat(folder, "/raw");
  std::vector<double> save, load, write_raw, read_raw;
  // Measured in turn, so that all see the same state of the machine.
  for (int round = 0; round < kRounds; ++round) {
    write_raw.push_back(Seconds([&] { WriteRaw(raw, data); }));
    save.push_back(Seconds([&] { Save(*directory, data, &manifest); }));
    read_raw.push_back(Seconds([&] { ReadRaw(raw, &data); }));
    load.push_back(Seconds([&] { Load(*directory, manifest, &data); }));
  }
  Compare("save 256 MiB", "write and fsync", save, write_raw);
  Compare("load 256 MiB", "pread", load, read_raw);
  CHECK(directory->Remove(manifest.name()).ok());
  unlink(raw.c_str());
  rmdir(folder.c_str());
  return 0;
}

}  // namespace
}  // namespace holdfast

int main(int argc, char** argv) { return holdfast::Main(argc, argv); }

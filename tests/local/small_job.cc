// SPDX-License-Identifier: Apache-2.0
#include "tests/local/small_job.h"

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "cli/free_ports.h"
#include "common/base/random.h"
#include "glog/logging.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

constexpr int kExamples = 200;
constexpr int kSide = 8;
constexpr int kClasses = 4;

// Big-endian, as in IDX files.
std::string Number(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(value >> shift & 0xff);
  }
  return bytes;
}

std::string Images() {
  std::string file("\0\0\x08\x03", 4);
  file += Number(kExamples) + Number(kSide) + Number(kSide);
  for (uint32_t i = 0; i < kExamples; ++i) {
    for (uint32_t pixel = 0; pixel < kSide * kSide; ++pixel) {
      const uint32_t quarter =
          2 * (pixel / kSide / (kSide / 2)) + pixel % kSide / (kSide / 2);
      const uint32_t noise = Philox4x32({i, pixel, 0, 0}, {1, 2})[0] % 100;
      file += static_cast<char>(noise + (quarter == i % kClasses ? 100 : 0));
    }
  }
  return file;
}

std::string Labels() {
  std::string file("\0\0\x08\x01", 4);
  file += Number(kExamples);
  for (uint32_t i = 0; i < kExamples; ++i) {
    file += static_cast<char>(i % kClasses);
  }
  return file;
}

void WriteGzip(const std::string& path, const std::string& content) {
  const gzFile file = gzopen(path.c_str(), "wb");
  CHECK(file != nullptr) << path;
  CHECK_EQ(gzwrite(file, content.data(), content.size()),
           static_cast<int>(content.size()));
  CHECK_EQ(gzclose(file), Z_OK);
}

const google::protobuf::Value& FieldOf(const google::protobuf::Struct& result,
                                       const std::string& name) {
  static const auto* const kNone = new google::protobuf::Value();
  const auto found = result.fields().find(name);
  if (found != result.fields().end()) return found->second;
  ADD_FAILURE() << "no field " << name << " in the result";
  return *kNone;
}

}  // namespace

std::string FreshFolder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/", test->test_suite_name(), ".",
                   absl::StrReplaceAll(test->name(), {{"/", "."}}));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::vector<uint16_t> TakePorts(int count) {
  static absl::Mutex mutex(absl::kConstInit);
  static HeldPorts& held ABSL_GUARDED_BY(mutex) = *new HeldPorts;
  absl::MutexLock lock(&mutex);
  const auto ports = held.Take(count);
  CHECK(ports.ok()) << ports.status();
  return *ports;
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  CHECK(file) << path;
}

std::string ReadText(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

void WriteExamples(const std::string& folder) {
  WriteText(folder + "/images.idx", Images());
  WriteText(folder + "/labels.idx", Labels());
  WriteGzip(folder + "/images.idx.gz", Images());
  WriteGzip(folder + "/labels.idx.gz", Labels());
}

std::string WriteJob(const std::string& folder, const SmallJob& job) {
  constexpr char kText[] = R"(
name: "small"
model {
  sequential {
    layers { flatten {} }
    layers { dense { units: UNITS } }
    layers { relu {} }
    layers { dense { units: 4 } }
    loss { softmax_cross_entropy {} }
  }
}
data {
  train { idx { images: "images.idxEND" labels: "labels.idxEND" } }
  test { idx { images: "images.idxEND" labels: "labels.idxEND" } }
}
batch_size: 16
steps: STEPS
optimizer { OPTIMIZER }
consistency { CONSISTENCY }
evaluation { every_steps: 10 }
seed: 1
)";
  const std::string consistency =
      job.consistency.empty()
          ? absl::StrCat("synchronous { replicas_to_aggregate: ",
                         job.replicas_to_aggregate,
                         " total_num_replicas: ", job.total_num_replicas, " }")
          : job.consistency;
  const std::string path = folder + "/job.textproto";
  WriteText(path,
            absl::StrReplaceAll(kText, {{"END", job.gzip ? ".gz" : ""},
                                        {"UNITS", absl::StrCat(job.units)},
                                        {"STEPS", absl::StrCat(job.steps)},
                                        {"OPTIMIZER", job.optimizer},
                                        {"CONSISTENCY", consistency}}) +
                job.more);
  return path;
}

google::protobuf::Struct ReadResult(const std::string& path) {
  google::protobuf::Struct result;
  const auto status =
      google::protobuf::util::JsonStringToMessage(ReadText(path), &result);
  EXPECT_TRUE(status.ok()) << path << ": " << status.ToString();
  return result;
}

double NumberIn(const google::protobuf::Struct& result,
                const std::string& name) {
  return FieldOf(result, name).number_value();
}

std::string StringIn(const google::protobuf::Struct& result,
                     const std::string& name) {
  return FieldOf(result, name).string_value();
}

}  // namespace holdfast

#ifndef HOLDFAST_TESTS_LOCAL_SMALL_JOB_H_
#define HOLDFAST_TESTS_LOCAL_SMALL_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"

namespace holdfast {

// Where the programs under test are, for a test whose BUILD rule lists them as
// `data`.
inline constexpr char kHoldfast[] = "cli/holdfast";
inline constexpr char kPsServer[] = "ps_server/ps_server";
inline constexpr char kPsWorker[] = "worker/ps_worker";
// With --slow_step_ms_max.
inline constexpr char kSlowWorker[] = "tests/slow_worker/slow_worker";

// A folder of its own for each test, emptied first.
std::string FreshFolder();

// Free ports of loopback that nobody else takes until this process ends.
std::vector<uint16_t> TakePorts(int count);

void WriteText(const std::string& path, const std::string& text);
// Empty when there is no such file.
std::string ReadText(const std::string& path);

// Writes 200 images of 8 x 8 bytes and their labels into `folder`, as train and
// test set both: images.idx and labels.idx, plain, and the same as
// images.idx.gz and labels.idx.gz. An image of class c, of 4, is bright in
// quarter c, with noise: a model that learns at all learns it.
void WriteExamples(const std::string& folder);

// A job on these examples: two dense layers, three variables or more per ps.
struct SmallJob {
  int steps = 40;
  // N and M.
  int replicas_to_aggregate = 2;
  int total_num_replicas = 2;
  // Instead of a synchronous one of N and M, as text.
  std::string consistency;
  std::string optimizer = "learning_rate: 0.2 momentum { momentum: 0.9 }";
  bool gzip = false;
  // Of the hidden layer. With 256 or more its weights, which are 64 times as
  // many, are lent to neighbours (docs/protocol/same_host.md).
  int units = 16;
  // More fields, as text.
  std::string more;
};

// Writes it to FOLDER/job.textproto, whose path is returned.
std::string WriteJob(const std::string& folder, const SmallJob& job);

// The content of a result.json.
google::protobuf::Struct ReadResult(const std::string& path);
double NumberIn(const google::protobuf::Struct& result,
                const std::string& name);
std::string StringIn(const google::protobuf::Struct& result,
                     const std::string& name);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_LOCAL_SMALL_JOB_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_LOCAL_SMALL_JOB_H_
#define HOLDFAST_TESTS_LOCAL_SMALL_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"

namespace holdfast {

// Paths of the programs under test, for a test whose BUILD rule lists them as
// `data`.
inline constexpr char kHoldfast[] = "cli/holdfast";
inline constexpr char kPsServer[] = "ps_server/ps_server";
inline constexpr char kPsWorker[] = "worker/ps_worker";
// Has the flag --slow_step_ms_max, among others.
inline constexpr char kSlowWorker[] = "tests/slow_worker/slow_worker";

// Returns a separate folder for each test, emptied first.
std::string FreshFolder();

// Returns free loopback ports that no other process takes until this one ends.
std::vector<uint16_t> TakePorts(int count);

void WriteText(const std::string& path, const std::string& text);
// Returns an empty string if there is no such file.
std::string ReadText(const std::string& path);

// Writes 200 images of 8 x 8 bytes and their labels into `folder`, for use as
// both training and test set: images.idx and labels.idx, and the same
// compressed as images.idx.gz and labels.idx.gz. An image of class c (of 4
// classes) is bright in quarter c, with noise: any model that learns at all
// learns it.
void WriteExamples(const std::string& folder);

// A job on these examples: two dense layers, and at least three variables per
// ps.
struct SmallJob {
  int steps = 40;
  // N and M of a synchronous job.
  int replicas_to_aggregate = 2;
  int total_num_replicas = 2;
  // The consistency as text, instead of a synchronous one with N and M.
  std::string consistency;
  std::string optimizer = "learning_rate: 0.2 momentum { momentum: 0.9 }";
  bool gzip = false;
  // The units of the hidden layer. With 256 or more, its 64 x `units` weights
  // are lent to neighbors (docs/protocol/same_host.md).
  int units = 16;
  // More fields of the job, as text.
  std::string more;
};

// Writes the job to FOLDER/job.textproto, and returns that path.
std::string WriteJob(const std::string& folder, const SmallJob& job);

// Returns the content of a result.json.
google::protobuf::Struct ReadResult(const std::string& path);
double NumberIn(const google::protobuf::Struct& result,
                const std::string& name);
std::string StringIn(const google::protobuf::Struct& result,
                     const std::string& name);

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_LOCAL_SMALL_JOB_H_

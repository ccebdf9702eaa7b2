// SPDX-License-Identifier: Apache-2.0

// Shared by the tests of job files: a valid job, and what is wrong with others.
#ifndef HOLDFAST_COMMON_JOB_TESTING_JOB_TEXT_H_
#define HOLDFAST_COMMON_JOB_TESTING_JOB_TEXT_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace holdfast {

// A valid job. The tests of errors change single words in it.
inline constexpr char kJob[] = R"(name: "job"
model {
  sequential {
    layers { flatten {} }
    layers { dense { units: 8 } }
    layers { relu {} }
    layers { name: "out" dense { units: 4 use_bias: true } }
    loss { softmax_cross_entropy {} }
  }
}
data {
  train { idx { images: "train-images" labels: "train-labels" } }
  test { idx { images: "/data/test-images" labels: "/data/test-labels" } }
  scale: 0.5
}
batch_size: 100
steps: 3000
optimizer { learning_rate: 0.1 sgd {} }
consistency { synchronous { replicas_to_aggregate: 2 total_num_replicas: 2 } }
placement: GREEDY_BY_BYTES
evaluation { every_steps: 500 }
seed: 7
)";

// kJob with `from`, which must occur in it once, replaced.
std::string Changed(const std::string& from, const std::string& to);

// The lines of the error that `text` gives.
std::vector<std::string> ErrorsOf(const std::string& text);

proto::Job ParseJob(const std::string& text);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_TESTING_JOB_TEXT_H_

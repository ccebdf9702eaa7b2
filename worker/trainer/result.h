// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_TRAINER_RESULT_H_
#define HOLDFAST_WORKER_TRAINER_RESULT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/cluster.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/result.pb.h"
#include "worker/trainer/scores.h"

namespace holdfast {

// Fills in the consistency and the assignment of examples from `declaration`;
// fields that it leaves out get their defaults.
void AddDeclaration(const proto::Declaration& declaration,
                    proto::TrainingResult* result);

// Fills in the scores on the test set after the last step.
void AddEvaluation(const EvaluationScores& scores,
                   proto::TrainingResult* result);

// Fills in what the coordinator counted over the job: steps, examples, training
// loss, times, pushes, each worker's contributions, recoveries, and for
// asynchronous jobs the staleness.
void AddStatus(const proto::GetStatusResponse& status,
               proto::TrainingResult* result);

// Returns `result`, a TrainingResult or another message of result.proto, as
// JSON.
// Errors: INTERNAL when protobuf cannot write it.
absl::StatusOr<std::string> ResultToJson(
    const google::protobuf::Message& result);

// Writes `content` to `path` + ".tmp", which is synced and then renamed to
// `path`, so that readers find either a complete file or none, even after a
// crash.
// Errors: the system's, with the file's name.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_RESULT_H_

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

// Fills in when pushes became steps, and whose examples were whose, of what was
// declared, with its defaults filled in.
void AddDeclaration(const proto::Declaration& declaration,
                    proto::TrainingResult* result);

// Fills in what is told of the test set after the last step.
void AddEvaluation(const EvaluationScores& scores,
                   proto::TrainingResult* result);

// Fills in what the coordinator counted over the job: steps, examples, training
// loss, times, pushes, what each worker has given, recoveries, and of
// asynchronous jobs the staleness.
void AddStatus(const proto::GetStatusResponse& status,
               proto::TrainingResult* result);

// The JSON of result.json, or of another message of result.proto.
// Errors: INTERNAL when protobuf cannot write it.
absl::StatusOr<std::string> ResultToJson(
    const google::protobuf::Message& result);

// Writes `content` so that a reader, or a crash, finds the file whole or not at
// all: aside (`path` + ".tmp"), synced, renamed.
// Errors: as the system says, with the file's name.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::string& content);

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_TRAINER_RESULT_H_

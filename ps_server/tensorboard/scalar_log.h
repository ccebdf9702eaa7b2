// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TENSORBOARD_SCALAR_LOG_H_
#define HOLDFAST_PS_SERVER_TENSORBOARD_SCALAR_LOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/checkpoint/file_system.h"
#include "proto/coordinator.pb.h"
#include "proto/tensorboard.pb.h"
#include "ps_server/tensorboard/event_file.h"

namespace holdfast {

// Writes a job's progress for TensorBoard: loss, rates and evaluations by step.
//
// When the job goes on from an earlier step, another file begins. Its START
// event makes readers drop what earlier files say about later steps, so that
// readers see ascending steps. When the disk fails, the next event begins
// another file, and the daemon's log says once what is missing.
//
// Thread-compatible; blocks while the disk does.
class ScalarLog {
 public:
  // `folder` must exist. `process` is the daemon's name, which the names of
  // files contain.
  ScalarLog(FileSystem* files, std::string folder, std::string process,
            std::function<absl::Time()> date);

  // Records that the job begins, or goes on, at `step`.
  void Begin(uint64_t step);
  // Writes `news`, the points of the job's history that are new since the last
  // call.
  void Add(const proto::GetHistoryResponse& news);

 private:
  void Write(const std::vector<proto::tensorboard::Event>& events);
  absl::Status TryToWrite(const std::vector<proto::tensorboard::Event>& events);

  FileSystem* const files_;
  const std::string folder_;
  const std::string process_;
  const std::function<absl::Time()> date_;

  // The last step that was written, or from which the job went on.
  uint64_t step_ = 0;
  // The file that is being written. Null if the next event must begin a file.
  std::unique_ptr<EventFile> file_;
  bool failing_ = false;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TENSORBOARD_SCALAR_LOG_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TENSORBOARD_TENSOR_BOARD_H_
#define HOLDFAST_PS_SERVER_TENSORBOARD_TENSOR_BOARD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/strand.h"
#include "common/checkpoint/file_system.h"
#include "ps_server/coordinator/coordinator.h"
#include "ps_server/tensorboard/scalar_log.h"

namespace holdfast {

// Takes the new points of the job's history from the coordinator, and writes
// them for TensorBoard on a thread of its own.
//
// Thread-compatible: called from the coordinator's strand, or after the strand
// has stopped.
class TensorBoard {
 public:
  // `known` is the number of the last event that happened in an earlier life of
  // the coordinator. Errors: those of the file system when the folder cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<TensorBoard>> Start(
      FileSystem* files, const std::string& folder, const std::string& process,
      uint64_t known);

  // Takes what is new in the history of `coordinator`. Call it about once a
  // second: steps that are rolled back before the next call are not seen.
  void Look(Coordinator* coordinator);

  // Waits until what was taken is written. Returns false if that takes longer
  // than `patience`; this object must then not be destroyed.
  bool Stop(absl::Duration patience);

 private:
  TensorBoard(FileSystem* files, const std::string& folder,
              const std::string& process, uint64_t known);

  // Whether training has begun in this life of the coordinator.
  bool has_begun_ = false;
  // The last event, step and evaluation that were taken.
  uint64_t event_;
  uint64_t step_ = 0;
  uint64_t evaluated_ = 0;

  // Used only by the thread.
  ScalarLog log_;
  Strand thread_{"tensorboard"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TENSORBOARD_TENSOR_BOARD_H_

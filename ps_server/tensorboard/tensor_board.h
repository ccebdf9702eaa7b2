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

// Takes what is new from the coordinator, and has it written for TensorBoard by
// a thread of its own.
//
// Thread-compatible: called from the coordinator's strand, and once it has
// stopped.
class TensorBoard {
 public:
  // `known`: the last of the coordinator's events that happened in an earlier
  // life of it. Errors: those of the file system, when the folder cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<TensorBoard>> Start(
      FileSystem* files, const std::string& folder, const std::string& process,
      uint64_t known);

  // Takes what is new. Call it about once a second: of steps that were rolled
  // back in between nothing is seen.
  void Look(Coordinator* coordinator);

  // False when what was taken is not written after `patience`: then this object
  // has to outlive the process.
  bool Stop(absl::Duration patience);

 private:
  TensorBoard(FileSystem* files, const std::string& folder,
              const std::string& process, uint64_t known);

  // Training has begun in this life of the coordinator.
  bool has_begun_ = false;
  // The last that were taken.
  uint64_t event_;
  uint64_t step_ = 0;
  uint64_t evaluated_ = 0;

  // Used by the thread alone.
  ScalarLog log_;
  Strand thread_{"tensorboard"};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TENSORBOARD_TENSOR_BOARD_H_

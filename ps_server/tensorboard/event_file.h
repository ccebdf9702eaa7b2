// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_TENSORBOARD_EVENT_FILE_H_
#define HOLDFAST_PS_SERVER_TENSORBOARD_EVENT_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/checkpoint/file_system.h"
#include "proto/tensorboard.pb.h"

namespace holdfast {

// An event file of TensorBoard: records of proto::tensorboard::Event. A record
// is, in little-endian order,
//
//   uint64  length of data
//   uint32  masked CRC32C of the eight bytes before
//   byte    data[length]
//   uint32  masked CRC32C of data
//
// where masked is ((crc >> 15) | (crc << 17)) + 0xa282ead8, modulo 2^32
// (tensorflow/core/lib/io/record_writer.h).
//
// Thread-compatible.
class EventFile {
 public:
  // Creates a file in `folder` whose name sorts after those of the event files
  // there, because TensorBoard reads them in that order: the name contains the
  // seconds of `date`, or one more than the seconds of the last file if that is
  // greater. `process` says who writes the file. Errors: those of the file
  // system.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(
      FileSystem* files, const std::string& folder, absl::Time date,
      absl::string_view process);

  // Errors: those of the file system, after which the file may end within a
  // record, and must not be appended to.
  absl::Status Append(const std::vector<proto::tensorboard::Event>& events);

 private:
  explicit EventFile(std::unique_ptr<WritableFile> file)
      : file_(std::move(file)) {}

  const std::unique_ptr<WritableFile> file_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TENSORBOARD_EVENT_FILE_H_

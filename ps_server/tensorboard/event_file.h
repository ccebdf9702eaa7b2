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
//   uint32  masked CRC32C of the length's eight bytes
//   byte    data[length]
//   uint32  masked CRC32C of data
//
// where masked is ((crc >> 15) | (crc << 17)) + 0xa282ead8, modulo 2^32
// (tensorflow/core/lib/io/record_writer.h).
//
// Thread-compatible.
class EventFile {
 public:
  // Creates a file in `folder` whose name sorts after the names of all event
  // files in it, because TensorBoard reads the files in the order of their
  // names. The name contains the seconds of `date` or, if the last file's name
  // has as many seconds or more, one second more than that name. `process` says
  // who writes the file. Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(
      FileSystem* files, const std::string& folder, absl::Time date,
      absl::string_view process);

  // Appends a record for each event.
  // Errors: those of the file system. After an error the file may end within a
  // record, and nothing must be appended to it.
  absl::Status Append(const std::vector<proto::tensorboard::Event>& events);

 private:
  explicit EventFile(std::unique_ptr<WritableFile> file)
      : file_(std::move(file)) {}

  const std::unique_ptr<WritableFile> file_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TENSORBOARD_EVENT_FILE_H_

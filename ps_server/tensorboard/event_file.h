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

// A file of TensorBoard's: records of proto::tensorboard::Event. A record is,
// in little-endian order,
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
  // A file in `folder` whose name sorts behind those of the event files there,
  // as TensorBoard reads them in that order: the name begins with the seconds
  // of `date`, or those of the last file and one more. `process` tells who
  // writes it. Errors: those of the file system.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(
      FileSystem* files, const std::string& folder, absl::Time date,
      absl::string_view process);

  // Errors: those of the file system, after which the file may end within a
  // record, and takes no more of them.
  absl::Status Append(const std::vector<proto::tensorboard::Event>& events);

 private:
  explicit EventFile(std::unique_ptr<WritableFile> file)
      : file_(std::move(file)) {}

  const std::unique_ptr<WritableFile> file_;
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TENSORBOARD_EVENT_FILE_H_

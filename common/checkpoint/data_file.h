#ifndef HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_
#define HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// Bytes of a block, which has a checksum of its own. A larger one makes a
// reader that wants little read more; a smaller one makes the index longer.
inline constexpr uint64_t kCheckpointBlockBytes = uint64_t{1} << 20;

// Writes one ps' share of a checkpoint: stretches, then their index
// (docs/checkpoint_format.md). The file has its name only once it is whole.
//
// Thread-compatible. Errors are those of the file system; after one, all calls
// return it.
class DataFileWriter {
 public:
  // Makes the checkpoint's folder, if need be.
  static absl::StatusOr<std::unique_ptr<DataFileWriter>> Create(
      const CheckpointDirectory& directory, const proto::CheckpointName& name,
      uint32_t ps, uint32_t num_ps);
  // Removes what is not finished.
  virtual ~DataFileWriter() = default;

  // Begins a stretch of `size` elements from `begin` of the variable's values
  // (slot 0) or of slot `slot` - 1; its elements follow by Append.
  virtual absl::Status Begin(absl::string_view variable, uint32_t slot,
                             uint64_t begin, uint64_t size) = 0;
  virtual absl::Status Append(absl::Span<const float> elements) = 0;
  // Writes the index, syncs and renames.
  // Errors: also INTERNAL when a stretch has not got as many elements as it was
  // begun with.
  virtual absl::StatusOr<proto::DataFile> Finish() = 0;
};

// Reads a checkpoint as one: whoever saved which part of it.
//
// Thread-compatible.
class CheckpointReader {
 public:
  // Reads the manifest and the index of each data file.
  // Errors: those of CheckpointDirectory::ReadManifest; DATA_LOSS also when an
  // index is not the one that the manifest means, or stretches overlap or leave
  // elements of a declared variable out.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      const CheckpointDirectory& directory, const proto::CheckpointName& name);
  // The same by the path of the checkpoint's folder.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenFolder(
      const std::string& folder, FileSystem* file_system);
  virtual ~CheckpointReader() = default;

  virtual const proto::Manifest& manifest() const = 0;
  // What is declared of it, or null.
  virtual const proto::Variable* FindVariable(absl::string_view name) const = 0;
  // Slots that are stored of a variable, which is declared.
  virtual uint32_t num_slots(absl::string_view variable) const = 0;
  // Reads elements from `begin` on, as many as `into` has, of the values (slot
  // 0) or of slot `slot` - 1; every block that it takes from is tested.
  // Errors: NOT_FOUND when they are not stored; DATA_LOSS; of the file system.
  virtual absl::Status Read(absl::string_view variable, uint32_t slot,
                            uint64_t begin, absl::Span<float> into) = 0;
  // Tests every block of every file.
  virtual absl::Status Verify() = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_DATA_FILE_H_

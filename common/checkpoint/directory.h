#ifndef HOLDFAST_COMMON_CHECKPOINT_DIRECTORY_H_
#define HOLDFAST_COMMON_CHECKPOINT_DIRECTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/file_system.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// "g0001-step00001000", and back. Wider numbers take more digits.
// Errors: INVALID_ARGUMENT for a name of another form.
std::string FolderName(const proto::CheckpointName& name);
absl::StatusOr<proto::CheckpointName> ParseFolderName(absl::string_view folder);

// A directory with the checkpoints of one job (docs/formats/checkpoint.md).
//
// What is written is written aside, synced and renamed, then the folder is
// synced; so a file is whole or not there, and OK means that it outlives a
// crash of the machine. Whatever is read is tested against its checksum:
// DATA_LOSS names the file and what is wrong with it.
//
// Thread-safe, as its file system is.
class CheckpointDirectory {
 public:
  // Makes the folder where it is not there, but nothing in it.
  // Errors: of the file system.
  static absl::StatusOr<CheckpointDirectory> Open(std::string path,
                                                  FileSystem* file_system);
  // The same for a reader: NOT_FOUND when it is not there.
  static absl::StatusOr<CheckpointDirectory> OpenToRead(
      std::string path, FileSystem* file_system);

  // Of the job's best checkpoints, which lie there beside those of the job
  // itself; it has no journal. Its folder may not be there.
  CheckpointDirectory Best() const;

  const std::string& path() const { return path_; }
  FileSystem* file_system() const { return file_system_; }
  std::string Folder(const proto::CheckpointName& name) const;

  // Keeps other coordinators out while it lives. `owner` is for their messages.
  // Errors: ALREADY_EXISTS, naming the holder.
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(absl::string_view owner) const;

  // Errors: NOT_FOUND when none was ever written; DATA_LOSS.
  absl::StatusOr<proto::Journal> ReadJournal() const;
  absl::Status WriteJournal(const proto::Journal& journal) const;

  // Errors: as above. Nothing but what people are shown depends on it.
  absl::StatusOr<proto::History> ReadHistory() const;
  absl::Status WriteHistory(const proto::History& history) const;

  // Errors: NOT_FOUND; DATA_LOSS, also when a file that it names is not there
  // in the right size, or the folder holds the manifest of another checkpoint.
  absl::StatusOr<proto::Manifest> ReadManifest(
      const proto::CheckpointName& name) const;
  // Makes the folder, if need be.
  absl::Status WriteManifest(const proto::Manifest& manifest) const;

  // Every checkpoint that has a folder, complete or not, by name.
  absl::StatusOr<std::vector<proto::CheckpointName>> List() const;
  // Gives a checkpoint's folder another name, which is no checkpoint's and is
  // returned, so that it is kept and no longer in the way.
  // Errors: NOT_FOUND; of the file system.
  absl::StatusOr<std::string> SetAside(const proto::CheckpointName& name) const;
  // Links a checkpoint, and those of its chain, into Best(). OK when they are
  // there already.
  // Errors: as ReadManifest; DATA_LOSS also when one of the chain is not there;
  // of the file system.
  absl::Status KeepBest(const proto::CheckpointName& name) const;
  // Removes a checkpoint, the manifest first. OK when it is not there.
  absl::Status Remove(const proto::CheckpointName& name) const;

 private:
  CheckpointDirectory(std::string path, FileSystem* file_system)
      : path_(std::move(path)), file_system_(file_system) {}

  absl::Status LinkIntoBest(const proto::Manifest& manifest) const;

  std::string path_;
  FileSystem* file_system_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_DIRECTORY_H_

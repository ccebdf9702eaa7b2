// SPDX-License-Identifier: Apache-2.0
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

// Convert a checkpoint's name to and from the name of its folder, such as
// "g0001-step00001000". Larger numbers take more digits.
// Errors: INVALID_ARGUMENT for a name of another form.
std::string FolderName(const proto::CheckpointName& name);
absl::StatusOr<proto::CheckpointName> ParseFolderName(absl::string_view folder);

// A directory with the checkpoints of one job (docs/formats/checkpoint.md).
//
// Every file is written under a temporary name, synced and renamed, then the
// folder is synced; so a file is complete or absent, and OK means that it
// survives a crash of the machine. Everything read is verified against its
// checksum: DATA_LOSS names the file and what is wrong with it.
//
// Thread-safe, as its file system is.
class CheckpointDirectory {
 public:
  // Creates the folder if it is missing, but nothing in it.
  // Errors: those of the file system.
  static absl::StatusOr<CheckpointDirectory> Open(std::string path,
                                                  FileSystem* file_system);
  // Like Open, but for a reader: creates nothing, and returns NOT_FOUND if the
  // folder does not exist.
  static absl::StatusOr<CheckpointDirectory> OpenToRead(
      std::string path, FileSystem* file_system);

  // The directory of the job's best checkpoints, inside this one. It has no
  // journal, and its folder may not exist.
  CheckpointDirectory Best() const;

  const std::string& path() const { return path_; }
  FileSystem* file_system() const { return file_system_; }
  std::string Folder(const proto::CheckpointName& name) const;

  // Excludes other coordinators until the returned lock is destroyed. `owner`
  // names the holder in the errors that they get.
  // Errors: ALREADY_EXISTS, naming the holder, if the directory is locked.
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(absl::string_view owner) const;

  // Errors: NOT_FOUND when no journal was ever written; DATA_LOSS.
  absl::StatusOr<proto::Journal> ReadJournal() const;
  absl::Status WriteJournal(const proto::Journal& journal) const;

  // The history is only shown to people; no decision depends on it.
  // Errors: as ReadJournal.
  absl::StatusOr<proto::History> ReadHistory() const;
  absl::Status WriteHistory(const proto::History& history) const;

  // Errors: NOT_FOUND; DATA_LOSS, also when a file that the manifest names is
  // missing or has the wrong size, or when the folder holds the manifest of
  // another checkpoint.
  absl::StatusOr<proto::Manifest> ReadManifest(
      const proto::CheckpointName& name) const;
  // Creates the folder if it is missing.
  absl::Status WriteManifest(const proto::Manifest& manifest) const;

  // All checkpoints that have a folder, complete or not, sorted by generation
  // and step.
  absl::StatusOr<std::vector<proto::CheckpointName>> List() const;
  // Renames a checkpoint's folder to a name that is not a checkpoint's, so that
  // it is kept but out of the way. Returns the new name.
  // Errors: NOT_FOUND; those of the file system.
  absl::StatusOr<std::string> SetAside(const proto::CheckpointName& name) const;
  // Links a checkpoint and the checkpoints of its chain into Best(). Returns OK
  // if they are there already.
  // Errors: those of ReadManifest; DATA_LOSS also when a checkpoint of the
  // chain is missing; those of the file system.
  absl::Status KeepBest(const proto::CheckpointName& name) const;
  // Removes a checkpoint, the manifest first. Returns OK if there is no such
  // checkpoint.
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

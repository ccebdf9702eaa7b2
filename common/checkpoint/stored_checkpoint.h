// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_CHECKPOINT_STORED_CHECKPOINT_H_
#define HOLDFAST_COMMON_CHECKPOINT_STORED_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checkpoint/directory.h"
#include "common/checkpoint/file_system.h"
#include "common/checkpoint/stored_table.h"
#include "proto/checkpoint.pb.h"

namespace holdfast {

// A checkpoint's own files, without those of its chain. Private to the library.
//
// Thread-compatible.
class StoredCheckpoint {
 public:
  enum class Files {
    // All files stay open, so that they can be read even after they have been
    // removed.
    kStayOpen,
    // Only the file being read is open: a chain may have more files than a
    // process may open.
    kOneAtATime,
  };
  // Errors: those of CheckpointReader::Open, except those about the chain.
  static absl::StatusOr<std::unique_ptr<StoredCheckpoint>> Open(
      const CheckpointDirectory& directory, const proto::CheckpointName& name,
      Files files);

  const std::string& folder() const { return folder_; }
  const proto::Manifest& manifest() const { return manifest_; }

  // As the methods of CheckpointReader.
  const proto::Variable* FindVariable(absl::string_view name) const;
  uint32_t num_slots(absl::string_view variable) const;
  absl::Status Read(absl::string_view variable, uint32_t slot, uint64_t begin,
                    absl::Span<float> into);

  using Tables = std::map<std::string, StoredTable, std::less<>>;
  const Tables& tables() const { return tables_; }
  // Null if the table is not declared.
  const StoredTable* FindTable(absl::string_view name) const;

  // Reads every block that has elements of variables, and verifies it.
  absl::Status VerifyVariables();

 private:
  // An extent and the index of its file.
  struct Extent {
    const proto::StoredExtent* stored;
    size_t file;
  };
  struct Variable {
    const proto::Variable* declared;
    uint64_t elements;
    // Indexed by slot (0 for the values): the extents that have elements, in
    // ascending order. If the variable has no elements, its slots have no
    // extents.
    std::map<uint32_t, std::vector<Extent>> by_slot;
  };
  class OneOpenFile;
  class FileOfMany;

  StoredCheckpoint(const CheckpointDirectory& directory,
                   const proto::CheckpointName& name)
      : folder_(directory.Folder(name)) {}

  absl::Status Start(const CheckpointDirectory& directory,
                     const proto::CheckpointName& name, Files files);
  absl::Status CheckNames() const;
  absl::Status TakeDeclaration();
  absl::Status OpenFile(FileSystem* file_system, Files files, int i);
  absl::Status ReadIndex(const std::string& path, ReadableFile* file, int i,
                         uint64_t* end);
  absl::Status TakeExtents(const std::string& path, int i, uint64_t end);
  absl::Status CheckCoverage();
  absl::Status ReadExtent(const Extent& extent, uint64_t from,
                          absl::Span<float> into);

  std::string PathOf(size_t file) const;
  absl::Status Damaged(absl::string_view what) const;
  absl::Status NotStored(absl::string_view what) const;

  const std::string folder_;
  proto::Manifest manifest_;
  std::map<std::string, Variable, std::less<>> variables_;
  Tables tables_;
  // Parallel to the manifest's files.
  std::shared_ptr<OneOpenFile> one_open_file_;
  std::vector<std::unique_ptr<ReadableFile>> files_;
  std::vector<proto::DataFileIndex> indices_;
  // Holds a block of which only a part is wanted.
  std::vector<float> scratch_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_CHECKPOINT_STORED_CHECKPOINT_H_

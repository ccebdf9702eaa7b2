// SPDX-License-Identifier: Apache-2.0
#include "common/checkpoint/data_file.h"

#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/stored_checkpoint.h"
#include "common/checkpoint/table_chain.h"

namespace holdfast {
namespace {

using Files = StoredCheckpoint::Files;

class Reader final : public CheckpointReader {
 public:
  explicit Reader(const CheckpointDirectory& directory)
      : directory_(directory) {}

  absl::Status Start(const proto::CheckpointName& name) {
    HOLDFAST_RETURN_IF_ERROR(AddToLine(name, Files::kStayOpen));
    const auto& chain = manifest().chain();
    for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
      HOLDFAST_RETURN_IF_ERROR(AddLink(link->checkpoint()));
    }
    for (const auto& [name, table] : own().tables()) {
      TableChain merged(LinksOf(name));
      HOLDFAST_RETURN_IF_ERROR(merged.Check());
      tables_.emplace(name, std::move(merged));
    }
    return absl::OkStatus();
  }

  const proto::Manifest& manifest() const override { return own().manifest(); }

  const proto::Variable* FindVariable(absl::string_view name) const override {
    return own().FindVariable(name);
  }

  uint32_t num_slots(absl::string_view variable) const override {
    return own().num_slots(variable);
  }

  absl::Status Read(absl::string_view variable, uint32_t slot, uint64_t begin,
                    absl::Span<float> into) override {
    return own().Read(variable, slot, begin, into);
  }

  absl::Status Verify() override {
    absl::Status status = own().VerifyVariables();
    // Drop cached blocks: they may differ from the files.
    for (const Member& member : line_) member.block->extent = nullptr;
    for (auto& [name, table] : tables_) {
      if (!status.ok()) return status;
      status =
          table.Read({}, [](const StoredRow&) { return absl::OkStatus(); });
    }
    return status;
  }

  const proto::EmbeddingTable* FindTable(
      absl::string_view name) const override {
    const auto found = tables_.find(name);
    return found == tables_.end() ? nullptr : &found->second.declared();
  }

  uint32_t floats_per_row(absl::string_view table) const override {
    const auto found = tables_.find(table);
    return found == tables_.end() ? 0 : found->second.floats_per_row();
  }

  StoredCounts CountRows(absl::string_view table,
                         BucketRange buckets) const override {
    const auto found = tables_.find(table);
    return found == tables_.end() ? StoredCounts()
                                  : found->second.Count(buckets);
  }

  absl::Status ReadRows(absl::string_view table, BucketRange buckets,
                        VisitRow visit) override {
    const auto found = tables_.find(table);
    return found == tables_.end() ? NotStored(table)
                                  : found->second.Read(buckets, visit);
  }

  absl::Status ReadChanges(absl::string_view table, BucketRange buckets,
                           uint64_t since_step, VisitRow visit_row,
                           VisitRemoved visit_removed) override {
    const auto found = tables_.find(table);
    if (found == tables_.end()) return NotStored(table);
    HOLDFAST_ASSIGN_OR_RETURN(const auto line,
                              LineSince(table, buckets, since_step));
    return found->second.ReadChanges(buckets, since_step, line, visit_row,
                                     visit_removed);
  }

 private:
  struct Member {
    std::unique_ptr<StoredCheckpoint> checkpoint;
    std::unique_ptr<RowBlock> block;
  };

  StoredCheckpoint& own() { return *line_.front().checkpoint; }
  const StoredCheckpoint& own() const { return *line_.front().checkpoint; }

  absl::Status NotStored(absl::string_view table) const {
    return absl::NotFoundError(
        absl::StrCat(own().folder(), ": holds no table \"", table, "\""));
  }

  // Opens checkpoint `name`, which must be the predecessor of the last one in
  // line_, and appends it to line_.
  absl::Status AddToLine(const proto::CheckpointName& name, Files files) {
    HOLDFAST_ASSIGN_OR_RETURN(auto opened,
                              StoredCheckpoint::Open(directory_, name, files));
    line_.push_back({std::move(opened), std::make_unique<RowBlock>()});
    return absl::OkStatus();
  }

  // Like AddToLine, for a checkpoint of the chain, which must exist.
  absl::Status AddLink(const proto::CheckpointName& name) {
    const proto::Manifest& after = line_.back().checkpoint->manifest();
    if (FolderName(after.previous()) != FolderName(name)) {
      return absl::DataLossError(absl::StrCat(
          line_.back().checkpoint->folder(), ": comes after ",
          FolderName(after.previous()), ", but in the chain of ",
          FolderName(manifest().name()), " after ", FolderName(name)));
    }
    const absl::Status added = AddToLine(name, Files::kOneAtATime);
    if (!absl::IsNotFound(added)) return added;
    return absl::DataLossError(
        absl::StrCat(own().folder(), ": needs ", FolderName(name),
                     ", which is missing: ", added.message()));
  }

  // The parts of a table that can be merged. Checkpoints before one without the
  // table do not have this table either.
  std::vector<TableChain::Link> LinksOf(absl::string_view name) const {
    std::vector<TableChain::Link> links;
    for (const Member& member : line_) {
      const StoredTable* const part = member.checkpoint->FindTable(name);
      if (part == nullptr) break;
      links.push_back({part, member.block.get()});
    }
    return links;
  }

  // The checkpoints whose steps are above `since_step`, from this one back,
  // newest first. Opens those that are not in line_ yet.
  absl::StatusOr<std::vector<TableChain::Link>> LineSince(
      absl::string_view table, BucketRange buckets, uint64_t since_step) {
    const uint64_t step = manifest().name().step();
    if (since_step > step) {
      return absl::InvalidArgumentError(absl::StrCat(
          own().folder(), ": is at step ", step, ", which is before step ",
          since_step, "; choose a later checkpoint"));
    }
    std::vector<TableChain::Link> line;
    uint64_t known_since = step;
    for (size_t i = 0; known_since > since_step; ++i) {
      const auto unknown = [&](absl::string_view why) {
        return absl::FailedPreconditionError(
            absl::StrCat(own().folder(), ": which rows of table \"", table,
                         "\" were removed since step ", since_step,
                         " is not known, only since step ", known_since, ": ",
                         why, "; export all rows instead"));
      };
      if (i == line_.size()) {
        const absl::Status added = AddToLine(
            line_.back().checkpoint->manifest().previous(), Files::kOneAtATime);
        if (absl::IsNotFound(added)) return unknown(added.message());
        if (!added.ok()) return added;
      }
      const StoredCheckpoint& checkpoint = *line_[i].checkpoint;
      const StoredTable* const part = checkpoint.FindTable(table);
      if (part == nullptr || !part->ListsRemoved(buckets)) {
        return unknown(
            absl::StrCat(checkpoint.folder(), " does not list them"));
      }
      line.push_back({part, line_[i].block.get()});
      known_since = checkpoint.manifest().previous().step();
    }
    return line;
  }

  const CheckpointDirectory directory_;
  // The checkpoint, the checkpoints of its chain, and the earlier ones that
  // LineSince has opened, newest first.
  std::vector<Member> line_;
  std::map<std::string, TableChain, std::less<>> tables_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    const CheckpointDirectory& directory, const proto::CheckpointName& name) {
  auto reader = std::make_unique<Reader>(directory);
  HOLDFAST_RETURN_IF_ERROR(reader->Start(name));
  return reader;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::OpenFolder(
    const std::string& folder, FileSystem* file_system) {
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // "g0001-.../"
  const auto name = ParseFolderName(path.filename().string());
  if (!name.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": ", name.status().message()));
  }
  const std::string parent = path.parent_path().string();
  HOLDFAST_ASSIGN_OR_RETURN(const auto directory,
                            CheckpointDirectory::OpenToRead(
                                parent.empty() ? "." : parent, file_system));
  return Open(directory, *name);
}

}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "ps_server/disk/directory_archive.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "ps_server/disk/rest.h"
#include "ps_server/reply/reply_on.h"

namespace holdfast {
namespace {

using google::protobuf::util::MessageDifferencer;

absl::StatusOr<Done> ToDone(const absl::Status& status) {
  if (!status.ok()) return status;
  return Done();
}

// Whether both are the same journal, or neither is one.
bool Same(const std::optional<proto::Journal>& a,
          const std::optional<proto::Journal>& b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() == b.has_value();
  return MessageDifferencer::Equals(*a, *b);
}

}  // namespace

DirectoryArchive::DirectoryArchive(CheckpointDirectory directory,
                                   std::optional<proto::Journal> journal,
                                   Strand* home)
    : directory_(std::move(directory)),
      home_(home),
      written_(std::move(journal)) {}

absl::StatusOr<std::optional<proto::Journal>>
DirectoryArchive::ReadOwnJournal() {
  std::optional<proto::Journal> journal;
  auto read = directory_.ReadJournal();
  if (read.ok()) {
    journal = *std::move(read);
  } else if (!absl::IsNotFound(read.status())) {
    return read.status();
  }
  if (attempted_.has_value() && Same(journal, attempted_)) {
    written_ = std::exchange(attempted_, std::nullopt);
  }
  if (!Same(journal, written_)) {
    return absl::AbortedError(
        absl::StrCat("the journal in ", directory_.path(),
                     " is not the one that this coordinator wrote last: "
                     "another coordinator has taken over the directory"));
  }
  return journal;
}

absl::Status DirectoryArchive::ReplaceJournal(const proto::Journal& journal) {
  if (auto own = ReadOwnJournal(); !own.ok()) return own.status();
  attempted_ = journal;
  absl::Status status = directory_.WriteJournal(journal);
  if (status.ok()) written_ = std::exchange(attempted_, std::nullopt);
  return status;
}

void DirectoryArchive::WriteJournal(const proto::Journal& journal,
                                    Reply<Done> reply) {
  thread_.Post(
      [this, journal, reply = ReplyOn(home_, std::move(reply))]() mutable {
        reply(ToDone(ReplaceJournal(journal)));
      });
}

void DirectoryArchive::WriteManifest(const proto::Manifest& manifest,
                                     Reply<Done> reply) {
  thread_.Post(
      [this, manifest, reply = ReplyOn(home_, std::move(reply))]() mutable {
        reply(ToDone(directory_.WriteManifest(manifest)));
      });
}

void DirectoryArchive::WriteHistory(proto::History history, Reply<Done> reply) {
  thread_.Post([this, history = std::move(history),
                reply = ReplyOn(home_, std::move(reply))]() mutable {
    absl::Status status = ReadOwnJournal().status();
    if (status.ok()) status = directory_.WriteHistory(history);
    reply(ToDone(status));
  });
}

void DirectoryArchive::ReadManifest(const proto::CheckpointName& name,
                                    Reply<proto::Manifest> reply) {
  thread_.Post(
      [this, name, reply = ReplyOn(home_, std::move(reply))]() mutable {
        reply(Read(name));
      });
}

absl::StatusOr<proto::Manifest> DirectoryArchive::Read(
    const proto::CheckpointName& name) {
  auto manifest = directory_.ReadManifest(name);
  if (absl::IsUnavailable(manifest.status()) && ReadOwnJournal().ok()) {
    return absl::UnknownError(manifest.status().message());
  }
  return manifest;
}

void DirectoryArchive::SetAside(const proto::CheckpointName& name) {
  thread_.Post([this, name] {
    to_set_aside_.push_back(name);
    if (absl::Status status = MoveAside(); !status.ok()) {
      LOG(WARNING)
          << "could not yet set aside a checkpoint that cannot be read: "
          << status;
    }
  });
}

absl::Status DirectoryArchive::MoveAside() {
  absl::Status result;
  std::vector<proto::CheckpointName> left;
  for (const proto::CheckpointName& name : to_set_aside_) {
    const auto moved = directory_.SetAside(name);
    if (moved.ok()) {
      LOG(WARNING) << "a checkpoint that cannot be read is kept as " << *moved;
      continue;
    }
    // A checkpoint that is not there yet may become visible later.
    if (!absl::IsNotFound(moved.status())) result.Update(moved.status());
    left.push_back(name);
  }
  to_set_aside_ = std::move(left);
  return result;
}

bool DirectoryArchive::Stop(absl::Duration patience) {
  return ComesToRest(&thread_, SteadyNow() + patience);
}

void DirectoryArchive::RemoveOthers(const proto::CheckpointName* under_way) {
  std::optional<proto::CheckpointName> spared;
  if (under_way != nullptr) spared = *under_way;
  thread_.Post([this, spared] {
    if (absl::Status status = Remove(spared); !status.ok()) {
      LOG(WARNING) << "failed to remove old checkpoints: " << status;
    }
  });
}

void DirectoryArchive::KeepBest(const proto::CheckpointName& name,
                                Reply<Done> reply) {
  thread_.Post(
      [this, name, reply = ReplyOn(home_, std::move(reply))]() mutable {
        reply(ToDone(directory_.KeepBest(name)));
      });
}

void DirectoryArchive::RemoveOthersOfBest() {
  thread_.Post([this] {
    if (absl::Status status = RemoveOfBest(); !status.ok()) {
      LOG(WARNING)
          << "failed to remove checkpoints that are no longer among the best: "
          << status;
    }
  });
}

absl::StatusOr<DirectoryArchive::FolderNames> DirectoryArchive::NeedsOf(
    const CheckpointDirectory& directory, const proto::CheckpointName& name) {
  const std::string folder = FolderName(name);
  if (const auto known = needs_.find(folder); known != needs_.end()) {
    return known->second;
  }
  const auto manifest = directory.ReadManifest(name);
  if (absl::IsNotFound(manifest.status()) ||
      absl::IsDataLoss(manifest.status())) {
    return FolderNames();
  }
  if (!manifest.ok()) return manifest.status();
  FolderNames& needs = needs_[folder];
  for (const proto::ChainLink& link : manifest->chain()) {
    needs.insert(FolderName(link.checkpoint()));
  }
  return needs;
}

absl::StatusOr<DirectoryArchive::FolderNames> DirectoryArchive::WithNeeded(
    const CheckpointDirectory& directory, const Checkpoints& kept,
    const proto::Declaration& declaration) {
  FolderNames stay;
  for (const proto::CheckpointName& name : kept) {
    stay.insert(FolderName(name));
    // Only tables have chains.
    if (declaration.tables().empty()) continue;
    HOLDFAST_ASSIGN_OR_RETURN(const auto needs, NeedsOf(directory, name));
    stay.insert(needs.begin(), needs.end());
  }
  return stay;
}

void DirectoryArchive::ForgetOthersNeeds(const proto::Journal& journal) {
  FolderNames kept;
  for (const auto* const names : {&journal.checkpoints(), &journal.best()}) {
    for (const proto::CheckpointName& name : *names) {
      kept.insert(FolderName(name));
    }
  }
  for (auto needs = needs_.begin(); needs != needs_.end();) {
    needs =
        kept.count(needs->first) > 0 ? std::next(needs) : needs_.erase(needs);
  }
}

absl::Status DirectoryArchive::RemoveOfBest() {
  HOLDFAST_ASSIGN_OR_RETURN(const auto journal, ReadOwnJournal());
  const CheckpointDirectory best = directory_.Best();
  const auto names = best.List();
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  const proto::Journal known = journal.value_or(proto::Journal());
  HOLDFAST_ASSIGN_OR_RETURN(
      const auto stay, WithNeeded(best, known.best(), known.declaration()));
  absl::Status result;
  for (const proto::CheckpointName& name : *names) {
    if (stay.count(FolderName(name)) == 0) result.Update(best.Remove(name));
  }
  return result;
}

absl::Status DirectoryArchive::Remove(
    const std::optional<proto::CheckpointName>& under_way) {
  HOLDFAST_ASSIGN_OR_RETURN(const auto journal, ReadOwnJournal());
  absl::Status result = MoveAside();
  HOLDFAST_ASSIGN_OR_RETURN(const auto names, directory_.List());
  const proto::Journal known = journal.value_or(proto::Journal());
  ForgetOthersNeeds(known);
  HOLDFAST_ASSIGN_OR_RETURN(
      auto stay,
      WithNeeded(directory_, known.checkpoints(), known.declaration()));
  // The checkpoint in progress needs the last durable checkpoint, and the
  // checkpoints that this one needs.
  if (under_way.has_value()) stay.insert(FolderName(*under_way));
  for (const auto& name : to_set_aside_) stay.insert(FolderName(name));
  for (const proto::CheckpointName& name : names) {
    // If a checkpoint cannot be removed, the others are removed all the same.
    if (stay.count(FolderName(name)) == 0) {
      result.Update(directory_.Remove(name));
    }
  }
  return result;
}

}  // namespace holdfast

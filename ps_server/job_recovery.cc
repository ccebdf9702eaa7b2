// SPDX-License-Identifier: Apache-2.0
#include "ps_server/job_recovery.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/nonce.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/data_file.h"
#include "common/process/process_name.h"
#include "glog/logging.h"

namespace holdfast {
namespace {

// How long another process may hold the directory before that is an error, and
// how often the lock is tried meanwhile.
constexpr absl::Duration kLockPatience = absl::Seconds(5);
constexpr absl::Duration kLockPause = absl::Milliseconds(100);

absl::StatusOr<proto::Manifest> ReadWarmStart(
    const CheckpointDirectory& directory, const std::string& warm_start) {
  const auto reader =
      CheckpointReader::OpenFolder(warm_start, directory.file_system());
  if (reader.ok()) return (*reader)->manifest();
  return absl::Status(reader.status().code(),
                      absl::StrCat("--warm_start=", warm_start, ": ",
                                   reader.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileLock>> AwaitLock(
    const CheckpointDirectory& directory, const std::string& task) {
  const std::string owner = absl::StrCat(task, " (", ProcessName(), ")");
  const absl::Time deadline = SteadyNow() + kLockPatience;
  auto lock = directory.Lock(owner);
  while (absl::IsAlreadyExists(lock.status()) && SteadyNow() < deadline) {
    LOG_FIRST_N(INFO, 1) << task << " waits: " << lock.status().message();
    absl::SleepFor(kLockPause);
    lock = directory.Lock(owner);
  }
  return lock;
}

absl::StatusOr<proto::Journal> RecoverJournal(
    const CheckpointDirectory& directory, const std::string& warm_start) {
  absl::StatusOr<proto::Journal> journal = directory.ReadJournal();
  if (!absl::IsNotFound(journal.status())) return journal;
  HOLDFAST_ASSIGN_OR_RETURN(const auto checkpoints, directory.List());
  if (!checkpoints.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory.path(), " holds ", checkpoints.size(),
        " checkpoints and no journal: use another directory (and --warm_start, "
        "to begin with the values of one of them)"));
  }
  if (!warm_start.empty()) {
    const auto manifest = ReadWarmStart(directory, warm_start);
    if (!manifest.ok()) return manifest.status();
  }
  proto::Journal fresh;
  fresh.set_directory_nonce(MakeNonce());
  return fresh;
}

absl::StatusOr<std::optional<proto::Manifest>> FindWarmSlots(
    const CheckpointDirectory& directory, const proto::Journal& journal,
    const std::string& warm_start) {
  if (!journal.checkpoints().empty()) return std::nullopt;
  HOLDFAST_ASSIGN_OR_RETURN(auto manifest,
                            ReadWarmStart(directory, warm_start));
  return manifest;
}

proto::History RecoverHistory(const CheckpointDirectory& directory,
                              const proto::Journal& journal,
                              const std::string& task) {
  // A new directory has no history.
  if (journal.generation() == 0) return {};
  absl::StatusOr<proto::History> history = directory.ReadHistory();
  if (!history.ok()) {
    LOG(WARNING) << task << " goes on without the history of the job: "
                 << history.status();
    return {};
  }
  if (history->directory_nonce() != journal.directory_nonce()) {
    LOG(WARNING) << task
                 << " goes on without the history of the job: the one in "
                 << directory.path() << " belongs to another directory";
    return {};
  }
  return *std::move(history);
}

}  // namespace holdfast

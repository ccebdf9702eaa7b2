// SPDX-License-Identifier: Apache-2.0
#include "cli/certificate_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cli/certificate_authority.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/credentials.h"
#include "common/rpc/identity.h"

namespace holdfast {
namespace {

constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 365 * 10);
// Allows for differences between the clocks of machines.
constexpr absl::Duration kBackdated = absl::Minutes(5);
constexpr mode_t kPublic = 0644;
constexpr mode_t kPrivate = 0600;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
}

// Replaces an existing file atomically.
absl::Status WriteFile(const std::string& path, const std::string& text,
                       mode_t mode) {
  const auto failed = [&] {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  };
  const std::string aside = path + ".new";
  unlink(aside.c_str());
  const int fd =
      open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return failed();
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const ssize_t written = write(fd, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || fsync(fd) != 0 ||
      rename(aside.c_str(), path.c_str()) != 0) {
    return failed();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::FailedPreconditionError(absl::StrCat("cannot read ", path));
  }
  return text.str();
}

// The authority of the folder, or a new one.
absl::StatusOr<CertificateAuthority> OpenAuthority(
    const CertificateFolderOptions& options, absl::Time now) {
  const std::string certificate_path = options.path + "/ca.crt";
  const std::string key_path = options.path + "/ca.key";
  if (Exists(certificate_path) != Exists(key_path)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "of ", certificate_path, " and ", key_path,
        " only one exists: without both nothing can be signed, and "
        "neither is overwritten; restore the other, or choose another --out"));
  }
  if (Exists(key_path)) {
    HOLDFAST_ASSIGN_OR_RETURN(const auto certificate,
                              ReadFile(certificate_path));
    HOLDFAST_ASSIGN_OR_RETURN(const auto key, ReadFile(key_path));
    auto authority = CertificateAuthority::FromKeyPair({certificate, key});
    if (authority.ok()) return authority;
    return absl::FailedPreconditionError(
        absl::StrCat(certificate_path, " and ", key_path, ": ",
                     authority.status().message()));
  }
  auto authority = CertificateAuthority::Make(
      absl::StrCat("Holdfast, for ", options.training), now - kBackdated,
      now + kAuthorityLifetime);
  if (!authority.ok()) return authority;
  const KeyPair& pair = authority->key_pair();
  absl::Status status = WriteFile(key_path, pair.key, kPrivate);
  if (status.ok()) {
    status = WriteFile(certificate_path, pair.certificate, kPublic);
  }
  if (!status.ok()) return status;
  return authority;
}

absl::Status WriteTask(const std::string& folder, const KeyPair& pair,
                       const std::string& authority) {
  absl::Status status = MakeFolder(folder);
  if (status.ok()) status = WriteFile(folder + "/ca.crt", authority, kPublic);
  if (status.ok()) status = WriteFile(folder + "/tls.key", pair.key, kPrivate);
  if (!status.ok()) return status;
  return WriteFile(folder + "/tls.crt", pair.certificate, kPublic);
}

}  // namespace

std::vector<TaskId> TasksWithOperator(const ClusterSpec& cluster) {
  std::vector<TaskId> tasks;
  for (const auto& [job, addresses] : cluster.jobs()) {
    for (const auto& [index, address] : addresses) {
      tasks.push_back({job, index});
    }
  }
  tasks.push_back({kOperatorJob, 0});
  return tasks;
}

std::string CertificateFolderOf(const std::string& path, const TaskId& task) {
  return absl::StrCat(path, "/", task.job, "-", task.index);
}

absl::StatusOr<std::vector<TaskId>> MakeCertificateFolder(
    const CertificateFolderOptions& options) {
  absl::Status status = CheckTrainingName(options.training);
  if (status.ok()) status = MakeFolder(options.path);
  if (!status.ok()) return status;
  const absl::Time now = DateNow();
  HOLDFAST_ASSIGN_OR_RETURN(const auto authority, OpenAuthority(options, now));
  std::vector<TaskId> made;
  for (const TaskId& task : options.tasks) {
    const std::string folder = CertificateFolderOf(options.path, task);
    // The last file to be written to a task's folder.
    if (!options.renew && Exists(folder + "/tls.crt")) {
      const auto kept = Credentials::FromFolder(folder);
      if (kept.ok() && kept->identity().training != options.training) {
        return absl::InvalidArgumentError(absl::StrCat(
            folder, "/tls.crt is of the training \"", kept->identity().training,
            "\", not \"", options.training, "\": give --training=",
            kept->identity().training, ", or another --out"));
      }
      continue;
    }
    const auto pair = authority.Issue(RequestFor(
        {options.training, task}, now - kBackdated, now + options.lifetime));
    if (!pair.ok()) return pair.status();
    status = WriteTask(folder, *pair, authority.key_pair().certificate);
    if (!status.ok()) return status;
    made.push_back(task);
  }
  return made;
}

}  // namespace holdfast

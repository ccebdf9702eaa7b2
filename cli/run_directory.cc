// SPDX-License-Identifier: Apache-2.0
#include "cli/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kClusterSpec = "cluster.json";
constexpr absl::string_view kResult = "result.json";
constexpr absl::string_view kEncrypted = "encrypted";
constexpr absl::string_view kHeaderMark = "==== ";

// Such as "ps-0.pid".
bool IsPid(absl::string_view file) {
  return (absl::ConsumePrefix(&file, "ps-") ||
          absl::ConsumePrefix(&file, "worker-")) &&
         absl::ConsumeSuffix(&file, ".pid") && !file.empty() &&
         std::all_of(file.begin(), file.end(), absl::ascii_isdigit);
}

bool IsMark(absl::string_view file) {
  return IsPid(file) || file == kEncrypted;
}

absl::Status RemoveMarks(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (IsMark(entry.path().filename().string())) files.push_back(entry.path());
  }
  for (const fs::path& file : files) {
    if (!fs::remove(file, error) && error) {
      return absl::ErrnoToStatus(error.value(),
                                 absl::StrCat("cannot remove ", file.string()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunDirectory>> RunDirectory::Open(
    const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("cannot create the folder ", path));
  }
  const int lock = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot open the folder ", path));
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    close(lock);
    if (reason == EWOULDBLOCK) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, " is in use by another run"));
    }
    return absl::ErrnoToStatus(reason, absl::StrCat("cannot lock ", path));
  }
  auto directory = std::unique_ptr<RunDirectory>(new RunDirectory(path, lock));
  HOLDFAST_RETURN_IF_ERROR(RemoveMarks(path));
  return directory;
}

RunDirectory::~RunDirectory() {
  RemoveMarks(path_).IgnoreError();
  close(lock_);
}

std::string RunDirectory::ClusterSpecPathOf(absl::string_view path) {
  return absl::StrCat(path, "/", kClusterSpec);
}

std::string RunDirectory::TlsPathOf(absl::string_view path) {
  return absl::StrCat(path, "/tls");
}

std::string RunDirectory::PidPathOf(absl::string_view path,
                                    absl::string_view daemon) {
  return absl::StrCat(path, "/", daemon, ".pid");
}

bool RunDirectory::IsEncrypted(absl::string_view path) {
  std::error_code ignored;
  return fs::exists(absl::StrCat(path, "/", kEncrypted), ignored);
}

std::string RunDirectory::cluster_spec_path() const {
  return ClusterSpecPathOf(path_);
}

std::string RunDirectory::result_path() const {
  return absl::StrCat(path_, "/", kResult);
}

absl::Status RunDirectory::SetResultAside(uint64_t step) const {
  const std::string to =
      absl::StrFormat("%s/result-step%08d.json", path_, step);
  std::error_code error;
  std::filesystem::rename(result_path(), to, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      result_path(), " cannot be renamed to ", to, ": ", error.message()));
}

std::string RunDirectory::tls_path() const { return TlsPathOf(path_); }

std::string RunDirectory::HostPath(uint32_t host) const {
  return absl::StrCat(path_, "/hosts/", host);
}

absl::Status RunDirectory::MakeHostFolder(uint32_t host) const {
  const std::string path = HostPath(host);
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (!code) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, code);
  }
  if (!code) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot make ", path, ": ", code.message()));
}

std::string RunDirectory::LogPath(absl::string_view daemon) const {
  return absl::StrCat(path_, "/", daemon, ".log");
}

absl::Status RunDirectory::WriteClusterSpec(absl::string_view json) const {
  return Write(cluster_spec_path(), json);
}

absl::Status RunDirectory::WritePid(absl::string_view daemon, pid_t pid) const {
  return Write(PidPathOf(path_, daemon), absl::StrCat(pid, "\n"));
}

absl::Status RunDirectory::MarkEncrypted() const {
  return Write(absl::StrCat(path_, "/", kEncrypted), "");
}

absl::Status RunDirectory::Write(const std::string& path,
                                 absl::string_view content) const {
  std::ofstream file(path);
  file << content << std::flush;
  if (!file) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

std::string LogHeader(absl::Time date, const std::string& binary,
                      const std::vector<std::string>& args) {
  return absl::StrCat(
      kHeaderMark,
      absl::FormatTime("%Y-%m-%dT%H:%M:%S%Ez", date, absl::LocalTimeZone()),
      " ", binary, args.empty() ? "" : " ", absl::StrJoin(args, " "), "\n");
}

bool IsLogHeader(absl::string_view line) {
  return absl::StartsWith(line, kHeaderMark);
}

std::string LastLines(const std::string& path, int lines) {
  constexpr std::streamoff kMost = 64 << 10;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = std::min<std::streamoff>(file.tellg(), kMost);
  std::string tail(size, '\0');
  file.seekg(-size, std::ios::end);
  file.read(tail.data(), size);
  const std::vector<std::string> all =
      absl::StrSplit(absl::StripSuffix(tail, "\n"), '\n');
  size_t first = all.size();
  while (first > 0 && all.size() - first < static_cast<size_t>(lines) &&
         !IsLogHeader(all[first - 1])) {
    --first;
  }
  return absl::StrJoin(all.begin() + first, all.end(), "\n");
}

}  // namespace holdfast

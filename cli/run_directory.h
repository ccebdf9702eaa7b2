#ifndef HOLDFAST_CLI_RUN_DIRECTORY_H_
#define HOLDFAST_CLI_RUN_DIRECTORY_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace holdfast {

// The folder that a run leaves behind:
//
//   cluster.json   the ClusterSpec of the last start, in TensorFlow's form
//   ps-0.log       what the daemon of that task said, each time that it was
//                  started, behind a LogHeader; worker-0.log, ...
//   ps-0.pid       its process, while the run lasts
//   checkpoints    a folder of the ps, where they have no other
//   hosts          a folder for each pair of ps and worker that share memory,
//                  where they do not with others
//   tls            certificates, where a run was encrypted
//   encrypted      there while a run lasts that is encrypted
//   result.json    what came out
//   result-step00000040.json
//                  what had come out at that step, of a job that was given more
//
// Of an earlier run's files, logs are appended to, and a result is kept: who
// finds one there has no business here, unless the job has more to do. One run
// at a time uses it.
// Thread-compatible.
class RunDirectory {
 public:
  // Makes the folder where there is none, and removes what stands for a run
  // that lasts, where one that was killed has left it. Locked until this is
  // destroyed.
  // Errors: ALREADY_EXISTS when another run is using it; as the system says.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Open(
      const std::string& path);

  // Removes what stands for a run that lasts.
  ~RunDirectory();

  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string cluster_spec_path() const;
  std::string result_path() const;
  std::string tls_path() const;
  // Of the sockets of one host, where the run plays several.
  std::string HostPath(uint32_t host) const;
  // `daemon` as "ps-0".
  std::string LogPath(absl::string_view daemon) const;

  // The same of the run directory at `path`, for those who look at the run of
  // another process.
  static std::string ClusterSpecPathOf(absl::string_view path);
  static std::string TlsPathOf(absl::string_view path);
  static std::string PidPathOf(absl::string_view path,
                               absl::string_view daemon);
  // Whether a run that is encrypted lasts there.
  static bool IsEncrypted(absl::string_view path);

  absl::Status WriteClusterSpec(absl::string_view json) const;
  // Renames the result after the step that the job had reached.
  absl::Status SetResultAside(uint64_t step) const;
  // Makes HostPath, for this user alone.
  absl::Status MakeHostFolder(uint32_t host) const;
  absl::Status WritePid(absl::string_view daemon, pid_t pid) const;
  // This run is encrypted.
  absl::Status MarkEncrypted() const;

 private:
  RunDirectory(std::string path, int lock)
      : path_(std::move(path)), lock_(lock) {}

  absl::Status Write(const std::string& path, absl::string_view content) const;

  const std::string path_;
  const int lock_;  // a descriptor of the folder
};

// The line, with its end, that begins what a process says in a log:
//   ==== 2024-05-17T12:00:00+02:00 bin/ps_server --task_index=0
std::string LogHeader(absl::Time date, const std::string& binary,
                      const std::vector<std::string>& args);

// Whether `line`, of a log, is a LogHeader.
bool IsLogHeader(absl::string_view line);

// The last `lines` lines behind the last LogHeader of the file at `path`, of
// which at most the last 64 KiB are read; empty when it cannot be read.
std::string LastLines(const std::string& path, int lines);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_RUN_DIRECTORY_H_

// SPDX-License-Identifier: Apache-2.0
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

// The folder of a run:
//
//   cluster.json   the ClusterSpec of the last start, in TensorFlow's form
//   ps-0.log       output of that task's daemon, with a LogHeader before each
//                  start; worker-0.log, ...
//   ps-0.pid       its process ID, during the run
//   checkpoints    checkpoint directory of the ps, unless they have another
//   hosts          a folder for each pair of ps and worker that share memory,
//                  if they share it only in pairs
//   tls            certificates, if a run was encrypted
//   encrypted      exists during an encrypted run
//   result.json    the result
//   result-step00000040.json
//                  an earlier result, from that step, of a job that was
//                  extended
//
// Logs of an earlier run are appended to, and its result is kept: a run that
// finds a result must not use the directory, unless the job has more to do.
// Only one run at a time uses the directory. Thread-compatible.
class RunDirectory {
 public:
  // Creates the folder if it does not exist, and removes the files that mark a
  // running run, in case a killed run has left them. The folder is locked until
  // this is destroyed. Errors: ALREADY_EXISTS when another run is using it;
  // those of the system.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Open(
      const std::string& path);

  // Removes the files that mark a running run.
  ~RunDirectory();

  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string cluster_spec_path() const;
  std::string result_path() const;
  std::string tls_path() const;
  // Folder of the sockets of one simulated host.
  std::string HostPath(uint32_t host) const;
  // `daemon` is a name such as "ps-0".
  std::string LogPath(absl::string_view daemon) const;

  // Paths in the run directory at `path`, for observers of another process's
  // run.
  static std::string ClusterSpecPathOf(absl::string_view path);
  static std::string TlsPathOf(absl::string_view path);
  static std::string PidPathOf(absl::string_view path,
                               absl::string_view daemon);
  // Whether an encrypted run is in progress in the directory `path`.
  static bool IsEncrypted(absl::string_view path);

  absl::Status WriteClusterSpec(absl::string_view json) const;
  // Renames result.json to the name of an earlier result, from `step`, the step
  // that the job had reached.
  absl::Status SetResultAside(uint64_t step) const;
  // Creates HostPath, accessible only to this user.
  absl::Status MakeHostFolder(uint32_t host) const;
  absl::Status WritePid(absl::string_view daemon, pid_t pid) const;
  // Marks this run as encrypted.
  absl::Status MarkEncrypted() const;

 private:
  RunDirectory(std::string path, int lock)
      : path_(std::move(path)), lock_(lock) {}

  absl::Status Write(const std::string& path, absl::string_view content) const;

  const std::string path_;
  const int lock_;  // a descriptor of the folder
};

// The line, including the line break, that precedes a process's output in a
// log:
//   ==== 2024-05-17T12:00:00+02:00 bin/ps_server --task_index=0
std::string LogHeader(absl::Time date, const std::string& binary,
                      const std::vector<std::string>& args);

// Whether `line` of a log is a LogHeader.
bool IsLogHeader(absl::string_view line);

// Returns the last `lines` lines after the last LogHeader of the file at
// `path`. Reads at most the last 64 KiB of the file. Returns "" if the file
// cannot be read.
std::string LastLines(const std::string& path, int lines);

}  // namespace holdfast

#endif  // HOLDFAST_CLI_RUN_DIRECTORY_H_

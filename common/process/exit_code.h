// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_PROCESS_EXIT_CODE_H_
#define HOLDFAST_COMMON_PROCESS_EXIT_CODE_H_

#include "absl/status/status.h"

namespace holdfast {

// The exit codes of all our programs. docs/operating/exit_codes.md lists the
// exit codes of each program and their causes.

// The job is done, or the command succeeded.
inline constexpr int kExitDone = 0;
// The job or the program failed; stderr says why.
inline constexpr int kExitFailed = 1;
// The user has made a mistake that a restart does not fix: wrong flags, job
// file, data or cluster; stderr says which.
inline constexpr int kExitUsage = 2;
// The user interrupted a command (Ctrl-C); 128 + SIGINT, as in a shell.
inline constexpr int kExitInterrupted = 130;
// The job may continue, and this task should be restarted: it was stopped
// before the job's end, was fenced, or could not reach other tasks. Supervisors
// use this code to decide whether to restart a task; 138 is one of the codes
// that Kubeflow's restartPolicy ExitCode treats as retryable.
inline constexpr int kExitRestart = 138;

// The exit code of a process that ends because of `signal`, as in a shell.
constexpr int ExitCodeOfSignal(int signal) { return 128 + signal; }

// The exit code of a program that could not start: kExitRestart if another
// start, later or elsewhere, may succeed, because something is unreachable or
// held by another process (UNAVAILABLE, DEADLINE_EXCEEDED, ALREADY_EXISTS);
// otherwise kExitUsage.
inline int ExitCodeOfStart(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) ||
                 absl::IsAlreadyExists(error)
             ? kExitRestart
             : kExitUsage;
}

// The exit code of a task that the coordinator did not admit. ALREADY_EXISTS
// means that a live process still holds the task's place after the task has
// waited for the duration of a lease: the task was started twice.
inline int ExitCodeOfJoin(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return kExitRestart;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_PROCESS_EXIT_CODE_H_

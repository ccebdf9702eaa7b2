#ifndef HOLDFAST_COMMON_PROCESS_EXIT_CODE_H_
#define HOLDFAST_COMMON_PROCESS_EXIT_CODE_H_

#include "absl/status/status.h"

namespace holdfast {

// The exit codes of all our programs. docs/operating/exit_codes.md lists what
// each program ends with and why.

// The job is done, or the command did what it was told.
inline constexpr int kExitDone = 0;
// The job or the program failed; stderr says why.
inline constexpr int kExitFailed = 1;
// The user's mistake, which no other start mends: wrong flags, job file, data
// or cluster; stderr says what.
inline constexpr int kExitUsage = 2;
// The user ended a command (Ctrl-C), as a shell would name it: 128 + SIGINT.
inline constexpr int kExitInterrupted = 130;
// The job may go on, and another start of this task is worth it: told to stop
// before the end, shut out, or out of reach of the others. Supervisors tell by
// it whether to start a task again; 138 is one of the codes that Kubeflow's
// restartPolicy ExitCode takes so.
inline constexpr int kExitRestart = 138;

// Of a process that ends because of `signal`, as a shell would name it.
constexpr int ExitCodeOfSignal(int signal) { return 128 + signal; }

// Of a program that could not start: kExitRestart where another start, later or
// elsewhere, may go better, because something is out of reach, or held by
// another process (UNAVAILABLE, DEADLINE_EXCEEDED, ALREADY_EXISTS).
inline int ExitCodeOfStart(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) ||
                 absl::IsAlreadyExists(error)
             ? kExitRestart
             : kExitUsage;
}

// Of a task that the coordinator did not take in. One that waits a lease for
// its place, and finds it held by a process that lives (ALREADY_EXISTS), is
// there twice.
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

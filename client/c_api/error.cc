// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/error.h"

#include <cctype>

#include "absl/strings/ascii.h"
#include "client/failure.h"
#include "common/base/printable_text.h"
#include "common/process/exit_code.h"

struct holdfast_error {
  holdfast::c_api::Error error;
  std::string task;
};

namespace holdfast::c_api {
namespace {

// The exit code of a ps_worker that ends because of such an error.
int32_t ExitCodeOf(holdfast_kind kind) {
  switch (kind) {
    case HOLDFAST_OK:
    case HOLDFAST_STOPPED:
      return kExitDone;
    case HOLDFAST_INVALID:
    case HOLDFAST_REFUSED:
    case HOLDFAST_NOT_FOUND:
      return kExitUsage;
    case HOLDFAST_ROLLED_BACK:
    case HOLDFAST_FENCED:
    case HOLDFAST_UNAVAILABLE:
      return kExitRestart;
    case HOLDFAST_BAD_HANDLE:
    case HOLDFAST_TIMED_OUT:
    case HOLDFAST_JOB_FAILED:
    case HOLDFAST_DAMAGED:
    case HOLDFAST_INTERNAL:
      return kExitFailed;
  }
  return kExitFailed;
}

Error WithMessage(holdfast_kind kind, const absl::Status& status) {
  return Error(kind, std::string(status.message()));
}

}  // namespace

Error::Error(holdfast_kind kind, std::string message)
    : kind(kind), message(std::move(message)), exit_code(ExitCodeOf(kind)) {}

Error Invalid(std::string message) {
  return Error(HOLDFAST_INVALID, std::move(message));
}

Error Closed() { return Error(HOLDFAST_BAD_HANDLE, "the cluster is closed"); }

Error OfConnecting(const absl::Status& status) {
  const auto kind = [&] {
    switch (status.code()) {
      case absl::StatusCode::kOk:
        return HOLDFAST_OK;
      case absl::StatusCode::kUnavailable:
      case absl::StatusCode::kDeadlineExceeded:
        return HOLDFAST_UNAVAILABLE;
      case absl::StatusCode::kAlreadyExists:
      case absl::StatusCode::kFailedPrecondition:
      case absl::StatusCode::kInvalidArgument:
        return HOLDFAST_REFUSED;
      case absl::StatusCode::kAborted:
        return HOLDFAST_JOB_FAILED;
      case absl::StatusCode::kCancelled:
        return HOLDFAST_BAD_HANDLE;
      default:
        return HOLDFAST_INTERNAL;
    }
  }();
  if (kind == HOLDFAST_OK) return Error();
  return Error(kind, std::string(status.message()), ExitCodeOfJoin(status));
}

Error OfCluster(const absl::Status& status, const Cluster& cluster) {
  if (status.ok()) return Error();
  switch (FailureOf(status, cluster)) {
    case Failure::kInvalid:
      return WithMessage(HOLDFAST_INVALID, status);
    case Failure::kCancelled:
      return WithMessage(HOLDFAST_BAD_HANDLE, status);
    case Failure::kRolledBack:
      return WithMessage(HOLDFAST_ROLLED_BACK, status);
    case Failure::kFenced:
      return WithMessage(HOLDFAST_FENCED, status);
    case Failure::kJobFailed:
      return WithMessage(HOLDFAST_JOB_FAILED, status);
    case Failure::kJobStopped:
      return WithMessage(HOLDFAST_STOPPED, status);
    case Failure::kUnavailable:
      // If a task cannot be reached, a restart of this worker may help. If a
      // wait timed out, it cannot.
      return Error(
          HOLDFAST_UNAVAILABLE, std::string(status.message()),
          IsWorkersOwn(status, cluster.state()) ? kExitRestart : kExitFailed);
    case Failure::kRefused:
      return WithMessage(HOLDFAST_REFUSED, status);
    case Failure::kInternal:
      break;
  }
  return WithMessage(HOLDFAST_INTERNAL, status);
}

Error OfFiles(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Error();
    case absl::StatusCode::kNotFound:
      return WithMessage(HOLDFAST_NOT_FOUND, status);
    case absl::StatusCode::kInvalidArgument:
      return WithMessage(HOLDFAST_INVALID, status);
    case absl::StatusCode::kDataLoss:
      return WithMessage(HOLDFAST_DAMAGED, status);
    default:
      return WithMessage(HOLDFAST_INTERNAL, status);
  }
}

std::string TaskIn(absl::string_view message) {
  constexpr absl::string_view kTask = "/task:";
  const size_t begin = message.find("/job:");
  if (begin == absl::string_view::npos) return "";
  const size_t task = message.find(kTask, begin);
  if (task == absl::string_view::npos) return "";
  size_t end = task + kTask.size();
  while (end < message.size() && absl::ascii_isdigit(message[end])) ++end;
  const absl::string_view found = message.substr(begin, end - begin);
  // The match spans two names, the first of which is not a task.
  if (found.find(' ') != absl::string_view::npos) {
    return TaskIn(message.substr(begin + 1));
  }
  return std::string(found);
}

int32_t Report(Error result, holdfast_error** error) {
  const int32_t kind = result.kind;
  if (error != nullptr) {
    *error = nullptr;
    if (!result.ok()) {
      // Most callers print it.
      result.message = PrintableLines(result.message);
      std::string task = TaskIn(result.message);
      *error = new holdfast_error{std::move(result), std::move(task)};
    }
  }
  return kind;
}

}  // namespace holdfast::c_api

extern "C" {

int32_t holdfast_error_kind(const holdfast_error* error) {
  return error == nullptr ? HOLDFAST_OK : error->error.kind;
}

const char* holdfast_error_message(const holdfast_error* error) {
  return error == nullptr ? "" : error->error.message.c_str();
}

const char* holdfast_error_task(const holdfast_error* error) {
  return error == nullptr ? "" : error->task.c_str();
}

int32_t holdfast_error_exit_code(const holdfast_error* error) {
  return error == nullptr ? 0 : error->error.exit_code;
}

void holdfast_error_free(holdfast_error* error) { delete error; }

}  // extern "C"

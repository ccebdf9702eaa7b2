// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_MACHINE_QUERIES_H_
#define HOLDFAST_PS_SERVER_MACHINE_QUERIES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/base/strand.h"
#include "common/base/validate.h"
#include "common/process/http_server.h"
#include "ps_server/reply/reply.h"

namespace holdfast {

// Asks an event machine (the coordinator or the shard) for what a page shows.
// Pages are made on a thread of their own, which must not hang if the machine's
// thread does.
//
// Thread-safe.
template <typename Machine>
class MachineQueries {
 public:
  // `machine` lives on `strand`; both must outlive this object. `name`, such as
  // "the coordinator", appears in errors. `timeout` is how long a page may
  // wait; with a longer timeout a stuck thread is reported later and delays
  // other pages longer.
  MachineQueries(std::string name, Machine* machine, Strand* strand,
                 absl::Duration timeout = absl::Seconds(1))
      : name_(std::move(name)),
        machine_(machine),
        strand_(strand),
        timeout_(timeout) {}

  // Returns what `method` replies to `request`; `method` must reply before it
  // returns:
  //   queries.Ask(&Coordinator::GetStatus, proto::GetStatusRequest())
  // Errors: UNAVAILABLE when the machine's thread does not get to the request
  // in time, or at once if the thread's current task has taken longer than the
  // timeout already; INVALID_ARGUMENT when `request` breaks a rule of its
  // proto; those of the method.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(void (Machine::*method)(const Request&,
                                                       Reply<Response>),
                               const Request& request) {
    HOLDFAST_RETURN_IF_ERROR(ValidateMessage(request));
    if (strand_->busy_for() > timeout_) return Stuck();
    // Shared with the machine's reply, which may come after this function has
    // returned.
    struct Call {
      absl::Notification answered;
      absl::StatusOr<Response> response = absl::UnknownError("no answer");
    };
    const auto call = std::make_shared<Call>();
    strand_->Post([machine = machine_, method, request, call] {
      (machine->*method)(request, [call](absl::StatusOr<Response> response) {
        call->response = std::move(response);
        call->answered.Notify();
      });
    });
    if (!call->answered.WaitForNotificationWithTimeout(timeout_)) {
      return Stuck();
    }
    return std::move(call->response);
  }

 private:
  absl::Status Stuck() const {
    return absl::UnavailableError(absl::StrCat(
        name_, " has not answered for ", absl::FormatDuration(timeout_),
        ": its thread is busy with something else"));
  }

  const std::string name_;
  Machine* const machine_;
  Strand* const strand_;
  const absl::Duration timeout_;
};

// The page that shows the error `status`: 400 for INVALID_ARGUMENT, 503 for
// UNAVAILABLE, otherwise 500.
inline HttpServer::Answer ErrorAnswer(const absl::Status& status) {
  return {absl::IsInvalidArgument(status) ? 400
          : absl::IsUnavailable(status)   ? 503
                                          : 500,
          absl::StrCat(status.message(), "\n")};
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_MACHINE_QUERIES_H_

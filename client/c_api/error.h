// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_ERROR_H_
#define HOLDFAST_CLIENT_C_API_ERROR_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/c_api/holdfast.h"
#include "client/cluster.h"

namespace holdfast::c_api {

// A holdfast_error by value; a success has kind HOLDFAST_OK.
struct Error {
  Error() = default;
  Error(holdfast_kind kind, std::string message);
  Error(holdfast_kind kind, std::string message, int32_t exit_code)
      : kind(kind), message(std::move(message)), exit_code(exit_code) {}

  bool ok() const { return kind == HOLDFAST_OK; }

  holdfast_kind kind = HOLDFAST_OK;
  std::string message;
  int32_t exit_code = 0;
};

// An error in an argument or in the order of calls.
Error Invalid(std::string message);
// The error of a cluster that is closed.
Error Closed();
// Converts an error of Cluster::Connect.
Error OfConnecting(const absl::Status& status);
// Converts an error of any other call to a cluster.
Error OfCluster(const absl::Status& status, const Cluster& cluster);
// Converts an error of a checkpoint's files.
Error OfFiles(const absl::Status& status);

// The first task in `message`, such as "/job:ps/task:1"; empty if there is
// none.
std::string TaskIn(absl::string_view message);

// Sets the last argument of a function of the C API, and returns the function's
// result.
int32_t Report(Error result, holdfast_error** error);

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_ERROR_H_

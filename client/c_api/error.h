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

// Of an argument or the order of calls.
Error Invalid(std::string message);
// Of a cluster that is closed.
Error Closed();
// Of Cluster::Connect.
Error OfConnecting(const absl::Status& status);
// Of all other calls to a cluster.
Error OfCluster(const absl::Status& status, const Cluster& cluster);
// Of a checkpoint's files.
Error OfFiles(const absl::Status& status);

// "/job:ps/task:1", the first in `message`; empty where there is none.
std::string TaskIn(absl::string_view message);

// What a function of the C API returns, and does with its last argument.
int32_t Report(Error result, holdfast_error** error);

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_ERROR_H_

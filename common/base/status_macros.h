// SPDX-License-Identifier: Apache-2.0

// Returns early with an error, as in
//
//   HOLDFAST_RETURN_IF_ERROR(file->Close());
//   HOLDFAST_ASSIGN_OR_RETURN(const Shape shape, ParseShape(text));
//
// For functions, and lambdas, that return absl::Status or an absl::StatusOr.
#ifndef HOLDFAST_COMMON_BASE_STATUS_MACROS_H_
#define HOLDFAST_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates the expression, an absl::Status, and returns it unless it is OK.
#define HOLDFAST_RETURN_IF_ERROR(...)                                          \
  do {                                                                         \
    if (absl::Status holdfast_status = (__VA_ARGS__); !holdfast_status.ok()) { \
      return holdfast_status;                                                  \
    }                                                                          \
  } while (false)

// Evaluates the expression, an absl::StatusOr, and returns its status unless
// the status is OK; otherwise moves the value to `lhs`: a variable, or the
// declaration of one. A type whose name has a comma is written as `auto`.
#define HOLDFAST_ASSIGN_OR_RETURN(lhs, ...)                            \
  HOLDFAST_ASSIGN_OR_RETURN_IMPL(                                      \
      HOLDFAST_STATUS_MACROS_NAME(holdfast_status_or_, __LINE__), lhs, \
      (__VA_ARGS__))

#define HOLDFAST_STATUS_MACROS_NAME(name, line) \
  HOLDFAST_STATUS_MACROS_JOIN(name, line)
#define HOLDFAST_STATUS_MACROS_JOIN(name, line) name##line
#define HOLDFAST_ASSIGN_OR_RETURN_IMPL(status_or, lhs, expression) \
  auto status_or = expression;                                     \
  if (!status_or.ok()) return std::move(status_or).status();       \
  lhs = *std::move(status_or)

#endif  // HOLDFAST_COMMON_BASE_STATUS_MACROS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_OPTIONS_H_
#define HOLDFAST_CLIENT_C_API_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/c_api/holdfast.h"
#include "client/cluster.h"

namespace holdfast::c_api {

// Reads named settings, of which `known` are allowed.
// Errors: INVALID_ARGUMENT for one that is unknown, given twice, or NULL.
absl::StatusOr<std::map<std::string, std::string>> ReadOptions(
    absl::Span<const holdfast_option> options,
    absl::Span<const absl::string_view> known);

// The value of a setting that is "true" or "false"; false if absent. Errors:
// INVALID_ARGUMENT for any other value.
absl::StatusOr<bool> BoolOf(const std::map<std::string, std::string>& options,
                            const std::string& name);

// The place of a process in a cluster, and how it connects.
struct Place {
  Cluster::Options connect;
  uint32_t replica = 0;
  // The path of the trace file. Empty: no trace.
  std::string trace;
};

// Reads the options of holdfast_connect. `tf_config`: the environment variable
// TF_CONFIG.
// Errors: those of ResolveTask and Credentials::FromFolder; INVALID_ARGUMENT.
absl::StatusOr<Place> ReadPlace(absl::Span<const holdfast_option> options,
                                absl::string_view tf_config);

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_OPTIONS_H_

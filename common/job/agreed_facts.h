// SPDX-License-Identifier: Apache-2.0

// The facts that all workers of a job must share (Declaration.agreed).
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_JOB_AGREED_FACTS_H_
#define HOLDFAST_COMMON_JOB_AGREED_FACTS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/map.h"
#include "proto/cluster.pb.h"

namespace holdfast {

// Values by name.
using AgreedFacts = google::protobuf::Map<std::string, std::string>;

// The maximum number of names in a job.
inline constexpr size_t kMaxAgreedFacts = 10'000;

// [J4] Checks that `task`, which has these facts, may join the job that `job`
// declares.
// Errors: ALREADY_EXISTS, with both values and the ways out, when the job has
// another value for a name, the first of them in alphabetical order;
// INVALID_ARGUMENT when the job would have too many names.
absl::Status CheckAgreed(const std::string& task, const AgreedFacts& facts,
                         const proto::Declaration& job);

// Whether `all` has each of `facts`.
bool HasFacts(const AgreedFacts& all, const AgreedFacts& facts);

// Adds the facts that `all` does not have.
void AddFacts(const AgreedFacts& facts, AgreedFacts* all);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_JOB_AGREED_FACTS_H_

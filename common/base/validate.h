// SPDX-License-Identifier: Apache-2.0

// Checks messages of proto/ against their rules.
//
// The rules for a single field are options of the field in the proto file
// (proto/rules.proto); rules between fields are in validate.cc. In addition,
// every float must be finite, unless its rule says otherwise, and every enum
// value must be known.
//
// Pure functions; safe from any thread.
#ifndef HOLDFAST_COMMON_BASE_VALIDATE_H_
#define HOLDFAST_COMMON_BASE_VALIDATE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace holdfast {

struct BrokenRule {
  // The path of the field, such as "layers[2].dense.units"; empty if the
  // message itself breaks the rule.
  std::string path;
  // For example, "must be above 0, is -1".
  std::string what;
};

// The maximum number of broken rules that an error lists for one message.
constexpr size_t kMaxBrokenRulesTold = 20;

// The rules that `message` and its submessages break, in the order of the
// proto. Stops soon after it has found more than kMaxBrokenRulesTold.
std::vector<BrokenRule> FindBrokenRules(
    const google::protobuf::Message& message);

// Errors: INVALID_ARGUMENT when `message` breaks rules, naming its type and
// each rule broken: `PushRequest: sender.task: must be set; num_parts: must be
// at least 1, is 0 or not set`.
absl::Status ValidateMessage(const google::protobuf::Message& message);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_VALIDATE_H_

// Tests messages of proto/ against their rules.
//
// The rules of one field stand beside it in the proto, as options
// (proto/rules.proto); those between fields in validate.cc. Besides, every
// float must be finite, unless its rule says otherwise, and every enum value
// known.
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
  // Of the field, as "layers[2].dense.units"; empty where it is the message
  // itself that breaks the rule.
  std::string path;
  // As "must be above 0, is -1".
  std::string what;
};

// How many broken rules of one message are told.
constexpr size_t kMaxBrokenRulesTold = 20;

// The rules that `message` and its submessages break, in the order of the
// proto. Stops looking soon after it has more than are told.
std::vector<BrokenRule> FindBrokenRules(
    const google::protobuf::Message& message);

// Errors: INVALID_ARGUMENT when `message` breaks rules, naming its type and
// each rule broken: `PushRequest: sender.task: must be set; num_parts: must be
// at least 1, is 0 or not set`.
absl::Status ValidateMessage(const google::protobuf::Message& message);

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_BASE_VALIDATE_H_

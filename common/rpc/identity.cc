// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/identity.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace holdfast {
namespace {

constexpr char kScheme[] = "holdfast://";
constexpr size_t kMaxNameLength = 63;

}  // namespace

std::string Identity::ToUri() const {
  return absl::StrCat(kScheme, training, "/", task.job, "/", task.index);
}

absl::Status CheckTrainingName(absl::string_view name) {
  const bool right =
      !name.empty() && name.size() <= kMaxNameLength && name.front() != '-' &&
      name.back() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
      });
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", name, "\" is not a valid training name: it must have 1 to ",
      kMaxNameLength,
      " lower-case letters, digits and '-', and neither begin nor end with "
      "'-'"));
}

bool IsIdentityUri(absl::string_view uri) {
  return absl::StartsWith(uri, kScheme);
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view uri) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", uri, "\" is not an identity: ", why));
  };
  if (!IsIdentityUri(uri)) {
    return wrong("it is not of the form holdfast://TRAINING/JOB/INDEX");
  }
  const std::vector<absl::string_view> parts =
      absl::StrSplit(uri.substr(sizeof(kScheme) - 1), '/');
  if (parts.size() != 3) {
    return wrong("it is not of the form holdfast://TRAINING/JOB/INDEX");
  }
  if (absl::Status status = CheckTrainingName(parts[0]); !status.ok()) {
    return wrong(status.message());
  }
  for (const char* job :
       {kPsJob, kWorkerJob, kChiefJob, kEvaluatorJob, kOperatorJob}) {
    if (parts[1] != job) continue;
    uint32_t index;
    // Only the canonical form is accepted.
    if (!absl::SimpleAtoi(parts[2], &index) ||
        absl::StrCat(index) != parts[2]) {
      return wrong("its index is not a number");
    }
    return Identity{std::string(parts[0]), {job, index}};
  }
  return wrong(absl::StrCat("there is no job \"", parts[1], "\""));
}

}  // namespace holdfast

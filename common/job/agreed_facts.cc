// SPDX-License-Identifier: Apache-2.0
#include "common/job/agreed_facts.h"

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

// Facts are texts of users' programs: what a terminal would obey is escaped.
std::string Shown(const std::string& text) {
  return text.empty() ? "\"\"" : absl::Utf8SafeCHexEscape(text);
}

}  // namespace

absl::Status CheckAgreed(const std::string& task, const AgreedFacts& facts,
                         const proto::Declaration& job) {
  const AgreedFacts& agreed = job.agreed();
  size_t added = 0;
  for (const auto& [name, value] :
       std::map<std::string, std::string>(facts.begin(), facts.end())) {
    const auto of_job = agreed.find(name);
    if (of_job == agreed.end()) {
      ++added;
      continue;
    }
    if (of_job->second == value) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        task, " has ", Shown(name), " ", Shown(value), ", the job has ",
        Shown(of_job->second),
        ": it must be the same in every worker and after each restart, for "
        "example from a fixed seed",
        job.has_checkpoints() ? "; or train in another checkpoint directory"
                              : ""));
  }
  if (agreed.size() + added > kMaxAgreedFacts) {
    return absl::InvalidArgumentError(absl::StrCat(
        task, " brings ", added, " facts to agree on, the job has ",
        agreed.size(), " already, and can have at most ", kMaxAgreedFacts,
        ": combine several into one, for example by a digest"));
  }
  return absl::OkStatus();
}

bool HasFacts(const AgreedFacts& all, const AgreedFacts& facts) {
  for (const auto& [name, value] : facts) {
    const auto found = all.find(name);
    if (found == all.end() || found->second != value) return false;
  }
  return true;
}

void AddFacts(const AgreedFacts& facts, AgreedFacts* all) {
  for (const auto& [name, value] : facts) all->insert({name, value});
}

}  // namespace holdfast

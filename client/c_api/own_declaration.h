// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_OWN_DECLARATION_H_
#define HOLDFAST_CLIENT_C_API_OWN_DECLARATION_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/c_api/error.h"
#include "client/first_values.h"
#include "common/job/agreed_facts.h"
#include "proto/cluster.pb.h"

namespace holdfast::c_api {

// What this worker declares. The chief declares it to the cluster, with the
// first values that it gives; every other worker compares it with the job's
// declaration.
//
// Its facts are compared with the job's by every worker, the chief included.
//
// Thread-safe, except that declaration() and first_values() must not overlap
// with Take or Withdraw.
class OwnDeclaration {
 public:
  // `task` is the worker's name, for errors.
  OwnDeclaration(std::string task, bool is_chief)
      : task_(std::move(task)), is_chief_(is_chief) {}

  // Parses `text`, a Declaration as textproto, and copies the chief's first
  // values: one pointer for each variable, null if it has another initializer,
  // or no pointers at all. May be called again with the same text.
  // Errors: REFUSED if another text was taken before, unless it was given up;
  // INVALID.
  Error Take(const std::string& text,
             absl::Span<const float* const> first_values)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the declaration, so that another one may be taken.
  void Withdraw() ABSL_LOCKS_EXCLUDED(mutex_);
  // The job has another declaration: another one may be taken instead of this
  // one, which stays until then, so that the worker does not train without one.
  void GiveUp() ABSL_LOCKS_EXCLUDED(mutex_);
  bool taken() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return text_.has_value();
  }

  // Checks that `standing`, the job's declaration, is the declaration that was
  // taken, if one was taken, and does not contradict facts().
  // Errors: ALREADY_EXISTS, with the first difference.
  absl::Status CheckStanding(const proto::Declaration& standing) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // [J4] The facts that this worker has declared, or has agreed on since.
  AgreedFacts facts() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Adds facts that the job has accepted.
  void AddFacts(const AgreedFacts& facts) ABSL_LOCKS_EXCLUDED(mutex_);

  // The declaration, with the digests of the first values; empty before Take.
  const proto::Declaration& declaration() const { return declaration_; }
  // Returns the chief's first values; null if none were given. The values live
  // as long as this object.
  FirstValues first_values() const;

 private:
  // Copies the chief's first values, and computes their digests.
  absl::Status TakeFirstValues(absl::Span<const float* const> values,
                               proto::Declaration* declaration);

  const std::string task_;
  const bool is_chief_;

  mutable absl::Mutex mutex_;
  std::optional<std::string> text_ ABSL_GUARDED_BY(mutex_);
  AgreedFacts facts_ ABSL_GUARDED_BY(mutex_);
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  // Set when text_ is. Without facts.
  proto::Declaration declaration_;
  // Indexed by variable; empty if there are none.
  std::vector<std::vector<float>> first_values_;
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_OWN_DECLARATION_H_

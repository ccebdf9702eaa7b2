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
#include "proto/cluster.pb.h"

namespace holdfast::c_api {

// What this worker declares: the chief to the cluster, with the first values
// that it gives; every other worker to have it compared with what stands.
//
// Thread-safe, but declaration() and first_values() must not overlap with Take
// or Withdraw.
class OwnDeclaration {
 public:
  // `task` is the worker's name, for errors.
  OwnDeclaration(std::string task, bool is_chief)
      : task_(std::move(task)), is_chief_(is_chief) {}

  // Parses `text`, a Declaration as textproto, and copies the chief's first
  // values: one pointer for each variable, null where it has an initializer, or
  // none at all. The same text may come again.
  // Errors: REFUSED when another text stands; INVALID.
  Error Take(const std::string& text,
             absl::Span<const float* const> first_values)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes room for a better one.
  void Withdraw() ABSL_LOCKS_EXCLUDED(mutex_);
  bool taken() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return text_.has_value();
  }

  // Whether what stands is what was taken, if anything was.
  // Errors: ALREADY_EXISTS with the first difference.
  absl::Status CheckStanding(const proto::Declaration& standing) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // With the digests of the first values; before Take it is empty.
  const proto::Declaration& declaration() const { return declaration_; }
  // Null where none are given. They live as long as this object.
  FirstValues first_values() const;

 private:
  // Takes a copy of the chief's, and their digests.
  absl::Status TakeFirstValues(absl::Span<const float* const> values,
                               proto::Declaration* declaration);

  const std::string task_;
  const bool is_chief_;

  mutable absl::Mutex mutex_;
  std::optional<std::string> text_ ABSL_GUARDED_BY(mutex_);
  // Set with the text.
  proto::Declaration declaration_;
  // By variable; empty where there are none.
  std::vector<std::vector<float>> first_values_;
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_OWN_DECLARATION_H_

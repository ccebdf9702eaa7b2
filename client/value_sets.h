// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_VALUE_SETS_H_
#define HOLDFAST_CLIENT_VALUE_SETS_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/parameters.h"

namespace holdfast::client {

// Sets of values, each reused once the last reference to it is gone, because
// fresh pages cost more than the copy that fills them. The memory of all sets
// lives as long as this object or a reference to one of the sets.
//
// Thread-safe, as are the references.
class ValueSets : public std::enable_shared_from_this<ValueSets> {
 public:
  struct Set {
    // Numbered from 0, in order of creation.
    int number = 0;
    Parameters values;
  };

  // Makes sets for `num_variables` variables, which write to `memory` as
  // described at Parameters::SetMemory.
  static std::shared_ptr<ValueSets> Make(size_t num_variables,
                                         std::vector<absl::Span<float>> memory);

  // Returns the unreferenced set with the lowest number, or a new set if all
  // are referenced. The set keeps no values in place.
  std::shared_ptr<Set> Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  ValueSets(size_t num_variables, std::vector<absl::Span<float>> memory)
      : num_variables_(num_variables), memory_(std::move(memory)) {}

  void GiveBack(Set* set) ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t num_variables_;
  const std::vector<absl::Span<float>> memory_;
  absl::Mutex mutex_;
  // Indexed by number.
  std::vector<std::unique_ptr<Set>> sets_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_VALUE_SETS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_COMPRESSION_H_
#define HOLDFAST_CLIENT_COMPRESSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/plan.h"
#include "common/job/ids.h"
#include "common/tensor/encoding.h"

namespace holdfast::client {

// Encodes the gradients of a worker's pushes as declared, with error feedback:
// the part of a variable's gradient that was not sent, the residual, is added
// to the next gradient (Seide et al. 2014; Stich et al. 2018; Karimireddy et
// al. 2019).
//
// If a push does not count, its changes to the residuals are undone: each
// residual is what it was before that push, apart from the changes by later
// pushes. Residuals live as long as this object, that is, for one generation of
// the job in one life of a worker.
//
// An encoded variable costs memory of twice its size, plus its size for each
// further push whose verdict is unknown, plus the encoded bytes.
//
// Thread-safe.
class GradientEncoder {
 public:
  // `push`: the plan by which pushes are spread over messages.
  GradientEncoder(const Layout& layout, const Plan& push);

  // Whether gradients of this variable are encoded.
  bool Encodes(size_t variable) const {
    return !variables_[variable].ranges.empty();
  }

  // Encodes the gradient of a variable for which Encodes() is true. The result
  // maps each range's first element to its encoding, which is EXACT if that
  // takes no more bytes. Repeated calls for the same push with the same
  // gradient return the same bytes.
  using Encoded = std::map<uint64_t, EncodedElements>;
  Encoded Encode(PushSequence push, size_t variable,
                 absl::Span<const float> gradient) ABSL_LOCKS_EXCLUDED(mutex_);

  // Notes whether a push counts (`counts`), and undoes its changes if it does
  // not. Only the first call for a push has an effect.
  void Settle(PushSequence push, bool counts) ABSL_LOCKS_EXCLUDED(mutex_);
  // Assumes that all pushes up to `through` whose verdicts are unknown count,
  // because their verdicts will never be known.
  void Forget(PushSequence through) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Values = std::shared_ptr<std::vector<float>>;

  struct Variable {
    proto::Compression compression;
    uint64_t size = 0;
    // The variable's ranges in the push plan. Empty if the variable is not
    // encoded.
    std::vector<ElementRange> ranges;
    // Null if all of its elements are 0.
    Values residual;
    // Memory for the next residual.
    Values spare;
    // Buffers of `encoded_bytes` bytes each for encoded gradients: one for each
    // push in progress.
    uint64_t encoded_bytes = 0;
    std::vector<std::shared_ptr<char>> memory;
  };
  // A residual before and after a push changed it.
  struct Change {
    Values before;
    Values after;
  };
  // Indexed by variable.
  using Changes = std::map<size_t, Change>;

  void Keep(Changes changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Undo(Changes changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<char> FindMemory(Variable* variable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Values TakeSpare(Variable* variable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  // Residuals and memory are guarded by the lock; the rest never changes.
  std::vector<Variable> variables_;
  // The changes made by pushes whose verdicts are unknown.
  std::map<PushSequence, Changes> changes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_COMPRESSION_H_

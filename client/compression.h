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

// Encodes the gradients of a worker's pushes as the declaration says, with
// error feedback: what was not sent of a variable's gradient, its residual, is
// added to the next one (Seide et al. 2014; Stich et al. 2018; Karimireddy et
// al. 2019).
//
// A push that does not count takes what it did to the residuals with it: each
// is again what it was before that push, but for what later pushes have done to
// it. Residuals live as long as this object: those of a generation of the job,
// in one life of a worker.
//
// A variable that is encoded costs its size twice, and once more for each
// further push whose fate is not known; and what is sent of it.
//
// Thread-safe.
class GradientEncoder {
 public:
  // `push`: how pushes are spread over messages.
  GradientEncoder(const Layout& layout, const Plan& push);

  // Whether gradients of this variable are sent otherwise than as they are.
  bool Encodes(size_t variable) const {
    return !variables_[variable].ranges.empty();
  }

  // The gradient of a variable that Encodes, by its ranges' first elements;
  // EXACT where that is no longer. Again for the same push, with the same
  // gradient: the same bytes.
  using Encoded = std::map<uint64_t, EncodedElements>;
  Encoded Encode(PushSequence push, size_t variable,
                 absl::Span<const float> gradient) ABSL_LOCKS_EXCLUDED(mutex_);

  // What became of a push. The first that is said of it stands.
  void Settle(PushSequence push, bool counts) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whatever is not known of pushes up to `through` will not be known any more:
  // they are taken to count.
  void Forget(PushSequence through) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Values = std::shared_ptr<std::vector<float>>;

  struct Variable {
    proto::Compression compression;
    uint64_t size = 0;
    // Of the push plan. None: it is not encoded.
    std::vector<ElementRange> ranges;
    // Null: zeros.
    Values residual;
    // Memory for the next residual.
    Values spare;
    // For what is sent, of as many pushes as are under way at a time.
    uint64_t encoded_bytes = 0;
    std::vector<std::shared_ptr<char>> memory;
  };
  // What a push did to a residual.
  struct Change {
    Values before;
    Values after;
  };
  // By variable.
  using Changes = std::map<size_t, Change>;

  void Keep(Changes changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Undo(Changes changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<char> FindMemory(Variable* variable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Values TakeSpare(Variable* variable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  // Residuals and memory under the lock; the rest is never changed.
  std::vector<Variable> variables_;
  // Of pushes whose fate is not known.
  std::map<PushSequence, Changes> changes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_COMPRESSION_H_

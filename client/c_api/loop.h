// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_LOOP_H_
#define HOLDFAST_CLIENT_C_API_LOOP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/c_api/error.h"
#include "client/c_api/holdfast.h"
#include "client/c_api/values.h"
#include "client/row_request.h"
#include "client/training_loop.h"
#include "common/trace/trace.h"

namespace holdfast::c_api {

class Connection;

// The object behind a loop's handle.
//
// Thread-safe.
class Loop {
 public:
  Loop(std::shared_ptr<Connection> connection,
       std::unique_ptr<TrainingLoop> loop);
  // Ends waits, and releases everything that belongs to the cluster. Must be
  // called before the cluster is destroyed.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

  Error Next(absl::Time until, holdfast_turn* turn);
  // Sets `*state` to a holdfast_turn_state.
  Error Current(holdfast_turn* turn, int32_t* state);
  Error Restart();
  Error Values(absl::Span<const float*> values);
  // Sets `*values` to the turn's values. `data` is filled in as by Values,
  // unless it is empty.
  Error TakeValues(absl::Span<const float*> data,
                   std::shared_ptr<c_api::Values>* values);
  Error Read(absl::Span<float* const> into, absl::Span<const size_t> elements);
  Error Input(bool waiting);
  // Sets `*memory` to null if there is none.
  Error Memory(size_t variable, float** memory);
  Error Add(size_t variable, absl::Span<const float> gradient);
  Error Contribute(const TrainingLoop::Gradient& gradient);
  Error Push(absl::Span<const float* const> gradients,
             absl::Span<const size_t> elements,
             const TrainingLoop::Gradient& gradient);
  // See TrainingLoop.
  Error ReadRows(absl::Span<const RowUse> rows,
                 absl::Span<const absl::Span<float>> into, absl::Time until);
  Error WantRows(absl::Span<const RowUse> rows);
  Error AddRows(const RowUse& rows, absl::Span<const float> gradients);
  Error Outcome(holdfast_outcome* outcome);

 private:
  // Fills `*turn` in.
  void Tell(const TrainingLoop::Turn& from, holdfast_turn* turn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Error CheckCount(size_t count) const;
  // Returns the error of a loop that is done, whose values could not be read
  // because of `why`.
  Error NoValues(const absl::Status& why) const;
  Error AddLocked(size_t variable, absl::Span<const float> gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Adds the turn's computation to the trace. Called when the turn is
  // contributed, which ends the computation.
  void TraceGradient() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the wait for input to the trace, if there is one. The wait ends with
  // this call.
  void TraceInput() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Connection> connection_;
  Tracer* const tracer_;
  std::atomic<bool> given_up_{false};
  absl::Mutex mutex_;
  // Set if there is a tracer: when the turn was handed out or, after that,
  // contributed.
  absl::Time since_ ABSL_GUARDED_BY(mutex_);
  uint64_t batch_ ABSL_GUARDED_BY(mutex_) = 0;
  // Set if there is a tracer: when the caller began to wait for its input.
  std::optional<absl::Time> input_since_ ABSL_GUARDED_BY(mutex_);
  // Null once the cluster is closed.
  std::unique_ptr<TrainingLoop> loop_ ABSL_GUARDED_BY(mutex_);
  // The memory of the loop's values, which outlive the loop.
  const std::shared_ptr<const void> memory_;
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_LOOP_H_

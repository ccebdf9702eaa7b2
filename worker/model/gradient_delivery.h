// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_DELIVERY_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_DELIVERY_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/strand.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"

namespace holdfast {

// Downloads the gradients of a batch from a backend, and gives them to a
// model's sink in the order of the calls of Add.
//
// If the backend is asynchronous, a thread of this object's own waits for the
// downloads and calls the sink, so the caller can enqueue the rest of the
// backward pass meanwhile, however long the sink takes. The thread is started
// by the first batch and sleeps between batches. With any other backend there
// is no such thread, and Add calls the sink.
//
// An asynchronous backend also sums the squares of large gradients, so that the
// sink need not read these to know their norm, and whether they are finite
// (GradientFacts).
//
// Thread-compatible. Each Begin must be followed by Finish.
class GradientDelivery {
 public:
  // Waits until it is known whether the gradients may go to the sink, and
  // returns whether they may.
  using Decide = absl::FunctionRef<absl::StatusOr<bool>()>;

  // Gradients with at least this many values get facts. Smaller ones are read
  // by the host in 25 microseconds (at 10 GB/s), which the three operations of
  // the facts would hardly save.
  static constexpr int64_t kMinForFacts = int64_t{1} << 16;

  // Variables are below `num_variables`. `backend` must outlive this object.
  GradientDelivery(Backend* backend, int64_t num_variables)
      : backend_(backend),
        asynchronous_(backend->IsAsynchronous()),
        num_variables_(num_variables) {}

  GradientDelivery(const GradientDelivery&) = delete;
  GradientDelivery& operator=(const GradientDelivery&) = delete;

  // Begins a batch. `decide` and `sink`, which are used until Finish has
  // returned, are called by one thread at a time: `decide` once, before all
  // calls of `sink`. If the backend is not asynchronous, `decide` is not
  // called: the caller has decided, and adds only gradients that may go.
  void Begin(GradientSink sink, Decide decide);

  // Returns the memory that a gradient can be written to so that it need not be
  // copied (GradientSink::Memory). Empty if a thread of this object calls the
  // sink, which the caller must then leave alone.
  absl::Span<float> Memory(int variable) const;

  // Begins to download the gradient of `variable`, which must not change until
  // Finish has returned. Errors: the backend's, also those of downloads that
  // were added before.
  absl::Status Add(int variable, ConstMatrix gradient);

  // Waits until each gradient has arrived and, if `decide` returned true, has
  // been given to the sink. If not `complete`, because the pass has failed, no
  // more gradients go to the sink. Errors: those of the backend and of
  // `decide`.
  absl::Status Finish(bool complete);

 private:
  struct Sending {
    int variable = 0;
    Download download;
    // The sum of squares, which arrives before the gradient. Absent: there is
    // none.
    std::optional<Download> squares;
  };

  // Begins to sum the squares of the gradient, and to download the sum. Absent
  // if the gradient is too small. Errors: the backend's.
  absl::StatusOr<std::optional<Download>> StartSquares(int variable,
                                                       ConstMatrix gradient);
  // Runs in the delivering thread, from Begin to Finish.
  void Deliver();
  // Waits for gradient `place` of the batch. Returns false if there is none.
  bool AwaitAdded(size_t place, Sending* next);
  // Waits until the values are there. Errors: the backend's.
  absl::Status AwaitArrival(const Sending& next);
  // Returns the facts that have arrived with a gradient.
  static GradientFacts FactsOf(const Sending& next);
  void Fail(const absl::Status& status);

  Backend* const backend_;
  const bool asynchronous_;
  const int64_t num_variables_;

  // A double for each variable.
  DeviceBuffer squares_;

  // Those of the batch under way.
  std::optional<GradientSink> sink_;
  std::optional<Decide> decide_;

  absl::Mutex mutex_;
  std::vector<Sending> sending_ ABSL_GUARDED_BY(mutex_);
  // Whether Finish has been called.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether no more gradients go to the sink.
  bool dropping_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether the thread has done all that there is to do for the batch.
  bool delivered_ ABSL_GUARDED_BY(mutex_) = false;
  // The first error of the batch.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);

  // Null before the first batch. Destroyed first, while the rest is there.
  std::unique_ptr<Strand> thread_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_DELIVERY_H_

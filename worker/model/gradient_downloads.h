#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_DOWNLOADS_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_DOWNLOADS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"

namespace holdfast {

// The gradients of a batch on their way from a backend to a model's sink, in
// the order in which they were made.
//
// Thread-compatible.
class GradientDownloads {
 public:
  // `backend` must outlive this object.
  explicit GradientDownloads(Backend* backend) : backend_(backend) {}

  // Of another batch; what was begun before is forgotten.
  void Clear();

  // Begins to bring one. Errors: the backend's.
  absl::Status Begin(int variable, ConstMatrix gradient);
  // Gives `sink` those that have arrived. Never waits: the device has the rest
  // of the backward pass to do. Errors: the backend's.
  absl::Status Deliver(GradientSink sink);
  // Both.
  absl::Status Start(int variable, ConstMatrix gradient, GradientSink sink);

  // Waits for the rest, and gives it to `sink`. Errors: the backend's.
  absl::Status Finish(GradientSink sink);
  // Waits for the rest, which nobody gets. Errors: the backend's.
  absl::Status Drop();

 private:
  struct Sending {
    int variable = 0;
    Download download;
  };

  Backend* const backend_;
  std::vector<Sending> sending_;
  size_t delivered_ = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_MODEL_GRADIENT_DOWNLOADS_H_

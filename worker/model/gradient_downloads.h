// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_MODEL_GRADIENT_DOWNLOADS_H_
#define HOLDFAST_WORKER_MODEL_GRADIENT_DOWNLOADS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "worker/backend/backend.h"
#include "worker/model/model.h"

namespace holdfast {

// Downloads the gradients of a batch from a backend, and gives them to a
// model's sink in the order in which they were computed.
//
// Thread-compatible.
class GradientDownloads {
 public:
  // `backend` must outlive this object.
  explicit GradientDownloads(Backend* backend) : backend_(backend) {}

  // Begins another batch, and forgets the downloads that were begun before.
  void Clear();

  // Begins to download the gradient of `variable`. Errors: the backend's.
  absl::Status Begin(int variable, ConstMatrix gradient);
  // Gives `sink` the gradients that have arrived. Never waits, so that the host
  // can go on enqueueing the backward pass. Errors: the backend's.
  absl::Status Deliver(GradientSink sink);
  // Calls Begin and then Deliver.
  absl::Status Start(int variable, ConstMatrix gradient, GradientSink sink);

  // Waits for the gradients that have not been delivered, and gives them to
  // `sink`. Errors: the backend's.
  absl::Status Finish(GradientSink sink);
  // Waits for the gradients that have not been delivered, and discards them.
  // Errors: the backend's.
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

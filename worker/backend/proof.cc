// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/proof.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"

namespace holdfast {

absl::Status ProveBackend(Backend* backend) {
  DeviceBuffer a_memory, b_memory, c_memory;
  const std::vector<float> a = {1, 2, 3, 4};
  const std::vector<float> b = {5, 6, 7, 8};
  HOLDFAST_ASSIGN_OR_RETURN(const auto left,
                            backend->Upload(a, 2, 2, &a_memory));
  HOLDFAST_ASSIGN_OR_RETURN(const auto right,
                            backend->Upload(b, 2, 2, &b_memory));
  const absl::Status status = backend->Reserve(4, &c_memory);
  if (!status.ok()) return status;
  const Matrix c = c_memory.View(2, 2);
  backend->MatMul(Form::kPlain, left, Form::kPlain, right, c);
  backend->Scale(2, c, c);
  HOLDFAST_ASSIGN_OR_RETURN(const auto download, backend->StartDownload(c));
  HOLDFAST_RETURN_IF_ERROR(backend->Await(download));
  const std::vector<float> expected = {38, 44, 86, 100};
  if (!std::equal(expected.begin(), expected.end(), download.values.begin(),
                  download.values.end())) {
    return absl::InternalError(
        "it computes a wrong product of two 2 x 2 matrices");
  }
  return absl::OkStatus();
}

}  // namespace holdfast

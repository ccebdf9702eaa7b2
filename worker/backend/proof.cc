// SPDX-License-Identifier: Apache-2.0
#include "worker/backend/proof.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace holdfast {
namespace {

// Larger than what a device may copy in one go.
constexpr int64_t kPatternSize = (int64_t{1} << 20) + 3;

// Whether what `to` fetches of `pattern`, which `from` shares as `shared`, is
// the same.
absl::StatusOr<bool> Arrives(absl::Span<const float> pattern, Backend* from,
                             SharedMatrix* shared, Backend* to) {
  DeviceBuffer theirs, ours;
  HOLDFAST_ASSIGN_OR_RETURN(const auto matrix,
                            from->Upload(pattern, 1, pattern.size(), &theirs));
  HOLDFAST_RETURN_IF_ERROR(from->Share(matrix, shared));
  HOLDFAST_ASSIGN_OR_RETURN(const auto fetched, to->Fetch(*shared, &ours));
  HOLDFAST_ASSIGN_OR_RETURN(const auto download, to->StartDownload(fetched));
  HOLDFAST_RETURN_IF_ERROR(to->Await(download));
  return std::equal(pattern.begin(), pattern.end(), download.values.begin(),
                    download.values.end());
}

}  // namespace

absl::Status ProvePeers(absl::Span<Backend* const> backends,
                        absl::Span<const std::string> names) {
  if (backends.size() < 2) return absl::OkStatus();
  // No two values are equal, and none is 0.
  std::vector<float> pattern(kPatternSize);
  for (int64_t i = 0; i < kPatternSize; ++i) {
    pattern[i] = static_cast<float>(i + 1);
  }
  for (size_t i = 1; i < backends.size(); ++i) {
    SharedMatrix shared;
    const auto arrives = [&] {
      return Arrives(pattern, backends[i], &shared, backends[0]);
    };
    const absl::StatusOr<bool> direct = arrives();
    if (direct.ok() && *direct) continue;
    const std::string copies =
        absl::StrCat("copies from ", names[i], " to ", names[0]);
    LOG(WARNING) << copies << " go over host memory, which is slower: "
                 << (direct.ok() ? "what arrives is not what was copied"
                                 : std::string(direct.status().message()));
    backends[0]->FetchOverHost(shared);
    HOLDFAST_ASSIGN_OR_RETURN(const auto over_host, arrives());
    if (over_host) continue;
    return absl::InternalError(
        absl::StrCat(copies,
                     " are wrong, directly and over host memory: "
                     "use one GPU, with --device=cuda:N"));
  }
  return absl::OkStatus();
}

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

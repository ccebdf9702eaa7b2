// SPDX-License-Identifier: Apache-2.0

// CudaDeviceMath's operations on bags, on pairs of vectors, and on columns.
#include "worker/backend/cuda/cuda_device_math.h"
#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/kernels.h"

namespace holdfast {
namespace {

kernels::Bags Of(const DeviceBags& bags) {
  return {bags.rows,  bags.bags,   bags.weights,           bags.offsets,
          bags.uses,  bags.begins, bags.num_merged_bags(), bags.num_rows,
          bags.merged};
}

}  // namespace

absl::Status CudaDeviceMath::SumBags(const DeviceBags& bags, ConstMatrix rows,
                                     Matrix y) {
  return CudaStatus(
      kernels::SumBags(stream_, Of(bags), rows.data, y.cols, y.data),
      "SumBags");
}

absl::Status CudaDeviceMath::SumBagsGradient(const DeviceBags& bags,
                                             ConstMatrix dy, Matrix drows) {
  return CudaStatus(kernels::SumBagsGradient(stream_, Of(bags), dy.data,
                                             drows.cols, drows.data),
                    "SumBagsGradient");
}

absl::Status CudaDeviceMath::PairwiseBags(const DeviceBags& bags,
                                          ConstMatrix rows, Matrix sums,
                                          Matrix y) {
  return CudaStatus(kernels::PairwiseBags(stream_, Of(bags), rows.data,
                                          sums.cols, sums.data, y.data),
                    "PairwiseBags");
}

absl::Status CudaDeviceMath::AddPairwiseBagsGradient(const DeviceBags& bags,
                                                     ConstMatrix rows,
                                                     ConstMatrix sums,
                                                     ConstMatrix dy,
                                                     Matrix drows) {
  return CudaStatus(
      kernels::AddPairwiseBagsGradient(stream_, Of(bags), rows.data, sums.data,
                                       dy.data, drows.cols, drows.data),
      "AddPairwiseBagsGradient");
}

absl::Status CudaDeviceMath::DotPairs(ConstMatrix x, int64_t n, Matrix y) {
  if (y.size() == 0) return absl::OkStatus();
  return CudaStatus(
      kernels::DotPairs(stream_, x.data, x.rows, n, x.cols / n, y.data),
      "DotPairs");
}

absl::Status CudaDeviceMath::DotPairsGradient(ConstMatrix x, int64_t n,
                                              ConstMatrix dy, Matrix dx) {
  if (x.size() == 0) return absl::OkStatus();
  return CudaStatus(kernels::DotPairsGradient(stream_, x.data, dy.data, x.rows,
                                              n, x.cols / n, dx.data),
                    "DotPairsGradient");
}

absl::Status CudaDeviceMath::CopyColumns(ConstMatrix x, int64_t from,
                                         int64_t count, Matrix y, int64_t to) {
  return CudaStatus(kernels::CopyColumns(stream_, x.data + from, x.cols, x.rows,
                                         count, y.data + to, y.cols),
                    "CopyColumns");
}

absl::Status CudaDeviceMath::AddColumns(ConstMatrix x, int64_t from,
                                        int64_t count, Matrix y, int64_t to) {
  return CudaStatus(kernels::AddColumns(stream_, x.data + from, x.cols, x.rows,
                                        count, y.data + to, y.cols),
                    "AddColumns");
}

}  // namespace holdfast

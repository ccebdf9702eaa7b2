// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_PS_SERVER_SHARD_WANTED_VALUES_H_
#define HOLDFAST_PS_SERVER_SHARD_WANTED_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor_piece.h"
#include "proto/shard.pb.h"
#include "ps_server/store/dense_store.h"

namespace holdfast {

// The store of a generation that may lack first values, which workers must give
// (docs/protocol/recovery.md, "First values").
//
// Values come in whole ranges (common/job/given_values.h). A range without the
// declared digest is not kept, so it does not matter who sends it [V2].
//
// Thread-compatible.
class WantedValues {
 public:
  // The maximum number of ranges sent in one call.
  static constexpr size_t kMostRanges = 1024;

  // Wants the values that `store` lacks.
  // Errors: INVALID_ARGUMENT unless there is a digest for each range.
  static absl::StatusOr<WantedValues> Of(std::unique_ptr<DenseStore> store);

  // Keeps a range, unless it is here already.
  // Errors: INVALID_ARGUMENT, naming the variable, for a piece that is not a
  // range wanted here, or does not have the declared values.
  absl::Status Add(const TensorPiece& piece);

  // Whether nothing is missing.
  bool complete() const { return missing_.empty(); }
  // The first variable with missing values. There must be one.
  const std::string& first_variable() const {
    return variables_[missing_.begin()->first].name;
  }
  // The ranges to be sent in the next call. Cycles through all missing ranges,
  // so that several workers are asked for different ones, and eventually again
  // for those that did not come.
  std::vector<proto::ReadRange> Next();

  // Call it once nothing is missing.
  std::unique_ptr<DenseStore> TakeStore() { return std::move(store_); }

 private:
  struct Variable {
    std::string name;
    uint64_t elements = 0;
    std::vector<std::string> digests;
    // Its slices that are here.
    std::vector<size_t> slices;
  };
  // Index into variables_, and number of the range.
  using Range = std::pair<size_t, uint64_t>;

  WantedValues() = default;

  static uint64_t SizeOf(const Variable& variable, uint64_t range);
  // Copies what the shard holds of a range into the store.
  void Keep(const Variable& variable, uint64_t begin, const Buffer& values);

  std::unique_ptr<DenseStore> store_;
  std::vector<Variable> variables_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  std::set<Range> missing_;
  // Where the next call of Next continues.
  Range next_ = {0, 0};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_WANTED_VALUES_H_

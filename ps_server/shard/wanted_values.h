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

// The store of a new generation, which may lack first values that workers must
// give (docs/protocol/recovery.md, "First values").
//
// Values come in whole ranges (common/job/given_values.h). A range without the
// declared digest is not kept, so it does not matter who sends it [V2].
//
// Thread-compatible.
class WantedValues {
 public:
  // The maximum number of ranges sent in one call.
  static constexpr size_t kMostRanges = 1024;

  // Finds the ranges of values that `store` lacks. Errors: INVALID_ARGUMENT
  // unless there is a digest for each of them.
  static absl::StatusOr<WantedValues> Of(std::unique_ptr<DenseStore> store);

  // Keeps the values of a range, unless they are here already. Errors:
  // INVALID_ARGUMENT, naming the variable, for a piece that is not a range of
  // this shard's variables, or does not have the declared digest.
  absl::Status Add(const TensorPiece& piece);

  // Whether nothing is missing.
  bool complete() const { return missing_.empty(); }
  // The name of the first variable with missing values. There must be one.
  const std::string& first_variable() const {
    return variables_[missing_.begin()->first].name;
  }
  // Returns the ranges that a worker is to send in its next call. Successive
  // calls of Next cycle through all missing ranges, so that different workers
  // are asked for different ranges, and ranges that did not come are asked for
  // again.
  std::vector<proto::ReadRange> Next();

  // Returns the store. Must be called only once complete().
  std::unique_ptr<DenseStore> TakeStore() { return std::move(store_); }

 private:
  struct Variable {
    std::string name;
    uint64_t elements = 0;
    std::vector<std::string> digests;
    // The indices of its slices that this shard holds.
    std::vector<size_t> slices;
  };
  // Index into variables_, and number of the range.
  using Range = std::pair<size_t, uint64_t>;

  WantedValues() = default;

  static uint64_t SizeOf(const Variable& variable, uint64_t range);
  // Copies those values of a range that belong to this shard's slices into the
  // store.
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

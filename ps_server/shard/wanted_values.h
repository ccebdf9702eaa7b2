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

// The store of a generation that may lack first values, which workers have to
// give (docs/protocol/recovery.md, "First values").
//
// Values come in whole ranges (common/job/given_values.h). What has not the
// declared digest is not kept, so it does not matter who sends it [V2].
//
// Thread-compatible.
class WantedValues {
 public:
  // What is sent in one call, at most.
  static constexpr size_t kMostRanges = 1024;

  // Of what `store` lacks.
  // Errors: INVALID_ARGUMENT where there is not a digest for each range.
  static absl::StatusOr<WantedValues> Of(std::unique_ptr<DenseStore> store);

  // Keeps a range, unless it is here already.
  // Errors: INVALID_ARGUMENT, naming the variable, for what is not a range
  // that is wanted here, or has not the declared values.
  absl::Status Add(const TensorPiece& piece);

  // Nothing is lacking.
  bool complete() const { return missing_.empty(); }
  // The first variable that lacks something. There must be one.
  const std::string& first_variable() const {
    return variables_[missing_.begin()->first].name;
  }
  // What is to be sent in the next call. Goes round through all that is
  // lacking, so that several workers are asked for different ranges, and in
  // the end again for what did not come.
  std::vector<proto::ReadRange> Next();

  // Once it is complete.
  std::unique_ptr<DenseStore> TakeStore() { return std::move(store_); }

 private:
  struct Variable {
    std::string name;
    uint64_t elements = 0;
    std::vector<std::string> digests;
    // Those of its slices that are here.
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
  // Where the next round goes on.
  Range next_ = {0, 0};
};

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_SHARD_WANTED_VALUES_H_

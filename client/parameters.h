// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_PARAMETERS_H_
#define HOLDFAST_CLIENT_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/job/ids.h"
#include "common/process/host_memory.h"

namespace holdfast {

// The values of all variables, in order of declaration, each row-major, and of
// the rows of embedding tables that the user wants.
//
// A pull decides where the values of a variable are stored: in this object's
// memory, in memory provided by the caller (SetMemory), or in place, in memory
// that this object keeps alive (docs/protocol/same_host.md, "Reading in
// place"). Readers need not know.
//
// Thread-compatible. Moving an object does not move the values. A copy shares
// with the original the memory of values that are kept in place, and memory
// provided by the caller.
class Parameters {
 public:
  Parameters() = default;
  Parameters(GlobalStep version, std::vector<std::vector<float>> values);

  // Whether all values that training changes have this version.
  bool AllAt(GlobalStep step) const;

  // The number of variables.
  size_t size() const { return places_.size(); }
  // The values of a variable. They stay where they are until the next pull into
  // this object begins, or Release.
  absl::Span<const float> Of(size_t variable) const;
  // The values of all variables.
  std::vector<absl::Span<const float>> All() const;

  // ---- For callers that pull ----

  // Makes this object allocate pinned memory from `memory`, as long as `memory`
  // has some. This does not affect variables whose values are kept in place or
  // written to the caller's memory. `memory` must outlive the object. Null, the
  // default: memory is not pinned.
  void SetHostMemory(HostMemory* memory) { host_memory_ = memory; }
  // Makes pulls write the values of variable i to memory[i], if that is not
  // null, instead of this object's memory. memory[i] must have the variable's
  // size.
  void SetMemory(absl::Span<const absl::Span<float>> memory);
  // Releases values that are kept in place; the values of those variables are
  // then unspecified.
  void Release();
  // The values of a variable at an address that does not change from pull to
  // pull: in the caller's memory, or in this object's memory, to which values
  // that are kept in place are copied once.
  absl::Span<const float> AtFixedPlace(size_t variable);

  // ---- Rows of embedding tables (docs/protocol/tables.md) ----

  // Sets the rows of a table (its index as declared) that pulls into this
  // object read from now on. `ids` must be strictly increasing
  // (client/row_batch.h). Default: none. Discards the values of the rows wanted
  // before.
  void WantRows(size_t table, absl::Span<const uint64_t> ids);
  // The ids of the wanted rows.
  absl::Span<const uint64_t> RowIds(size_t table) const;
  // The values of the wanted rows, one row after another in the order of ids;
  // empty before a pull. They stay where they are until the next pull into this
  // object begins, or WantRows.
  absl::Span<const float> RowsOf(size_t table) const;

  // Whether pulls into this object also read the variables. Pulls that come
  // with a push always do. Default: true.
  void WantVariables(bool want) { wants_variables_ = want; }
  bool wants_variables() const { return wants_variables_; }

  // Synchronous: the version of all values. Asynchronous: the least of
  // `versions`, not counting ps that hold nothing trainable, whose values never
  // change.
  GlobalStep version;
  // Indexed by ps. In asynchronous jobs, the version of the values that the
  // shard sent; the least one, if the values came in several messages.
  std::vector<GlobalStep> versions;
  // The loss scale for gradients at these values, which keeps small gradients
  // from vanishing in float16 (proto::LossScale). Gradients are divided by it
  // before they are pushed. In asynchronous jobs, Ticket::loss_scale applies
  // instead.
  float loss_scale = 1;

  // ---- For the implementation of pulls ----

  void Resize(size_t num_variables) { places_.resize(num_variables); }
  // Whether the caller has provided memory for a variable.
  bool HasMemory(size_t variable) const;
  // Returns memory to which the pull must write the `size` values of a
  // variable: this object's memory or the caller's. A repeated call with the
  // same size changes nothing, as long as no values are kept in place, so
  // several threads may make it and write to different elements.
  absl::Span<float> Write(size_t variable, size_t size);
  // Makes `values`, which are valid as long as `owner` exists, the values of
  // the variable.
  void Keep(size_t variable, absl::Span<const float> values,
            std::shared_ptr<const void> owner);
  // One more than the highest index of the tables of which rows are wanted.
  size_t num_tables() const { return rows_.size(); }
  // Returns memory to which the pull must write the values of the wanted rows.
  // Calling it again with the same length changes nothing.
  absl::Span<float> WriteRows(size_t table, size_t row_length);

 private:
  // This object's memory for a variable. A copy of an Own is not pinned.
  class Own {
   public:
    Own() = default;
    explicit Own(std::vector<float> values) : heap_(std::move(values)) {}
    Own(const Own& other);
    Own& operator=(const Own& other);
    Own(Own&&) = default;
    Own& operator=(Own&&) = default;

    // Memory for `size` values: the existing memory if it has that size,
    // otherwise allocated from `memory`, or from the heap if `memory` is null
    // or exhausted.
    absl::Span<float> Make(size_t size, HostMemory* memory);
    absl::Span<const float> values() const {
      if (pinned_ == nullptr) return heap_;
      return absl::MakeConstSpan(pinned_.get(), pinned_size_);
    }

   private:
    // At most one of `heap_` and `pinned_` is in use.
    std::vector<float> heap_;
    HostBuffer pinned_;
    size_t pinned_size_ = 0;
  };

  struct Place {
    Own own;
    absl::Span<float> given;
    // The values that are kept in place; valid if `owner` is not null.
    // `copied`: whether `own` contains a copy of them.
    absl::Span<const float> kept;
    std::shared_ptr<const void> owner;
    bool copied = false;
  };

  struct Rows {
    std::vector<uint64_t> ids;
    // The values are the first num_values of `memory`, which never shrinks,
    // because the number of rows differs from batch to batch.
    std::vector<float> memory;
    size_t num_values = 0;
  };

  std::vector<Place> places_;
  // Indexed by table.
  std::vector<Rows> rows_;
  bool wants_variables_ = true;
  HostMemory* host_memory_ = nullptr;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_PARAMETERS_H_

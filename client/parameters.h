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

// The values of all variables, in the order declared, each row-major, and of
// the rows of embedding tables that its user wants.
//
// A pull decides where the values of a variable lie: in memory of this object,
// in memory that the caller has given for them (SetMemory), or where they were
// read, in memory that this object keeps (docs/protocol/same_host.md, "Reading
// in place"). Readers need not know.
//
// Thread-compatible. Moving it moves no values; a copy shares what is kept and
// what the caller has given.
class Parameters {
 public:
  Parameters() = default;
  Parameters(GlobalStep version, std::vector<std::vector<float>> values);

  // Whether all that changes is of this version.
  bool AllAt(GlobalStep step) const;

  // The number of variables.
  size_t size() const { return places_.size(); }
  // The values of a variable. They stay where they are until the next pull into
  // this object begins, or Release.
  absl::Span<const float> Of(size_t variable) const;
  // Those of all variables.
  std::vector<absl::Span<const float>> All() const;

  // ---- For whoever pulls ----

  // From now on memory of this object's is pinned where it is taken, as far as
  // `memory` has some; that is, not of variables whose values are kept, or
  // written to the caller's memory. It must outlive the object. Null, the
  // default: none is.
  void SetHostMemory(HostMemory* memory) { host_memory_ = memory; }
  // From now on the values of variable i are written to memory[i], where that
  // is not null, in place of memory of this object's. It must be of their size.
  void SetMemory(absl::Span<const absl::Span<float>> memory);
  // Lets go of what is kept; the values of those variables are not specified
  // then.
  void Release();
  // The same, in memory that lies at one place from pull to pull: that of this
  // object, to which what is kept is copied, once, or the caller's.
  absl::Span<const float> AtFixedPlace(size_t variable);

  // ---- Rows of embedding tables (docs/protocol/tables.md) ----

  // Which rows of a table, by its index as declared, pulls into this object
  // read from now on: ids that rise, each once (client/row_batch.h). Default:
  // none. The values that were there are gone.
  void WantRows(size_t table, absl::Span<const uint64_t> ids);
  // Those ids.
  absl::Span<const uint64_t> RowIds(size_t table) const;
  // Their values, row after row in the order of ids; empty before a pull. They
  // stay where they are until the next pull into this object begins, or
  // WantRows.
  absl::Span<const float> RowsOf(size_t table) const;

  // Whether pulls into this object, other than one that comes with a push, read
  // the variables as well. Default: they do.
  void WantVariables(bool want) { wants_variables_ = want; }
  bool wants_variables() const { return wants_variables_; }

  // Synchronous: of all values. Asynchronous: the least of `versions`, without
  // those of ps that hold nothing that is trained: their values never change.
  GlobalStep version;
  // By ps. Asynchronous: of what that shard sent, or, where it came in several
  // messages, the least of them.
  std::vector<GlobalStep> versions;
  // With which gradients on them are computed, so that small ones do not vanish
  // in float16 (proto::LossScale); they are pushed without it. Asynchronous:
  // see Ticket.
  float loss_scale = 1;

  // ---- For the pull itself ----

  void Resize(size_t num_variables) { places_.resize(num_variables); }
  // Whether the caller has given memory for a variable.
  bool HasMemory(size_t variable) const;
  // Where the `size` values of a variable are to be written: memory of this
  // object's, or the caller's. Once it has that size and nothing is kept, the
  // call changes nothing, and several threads may write to parts of it.
  absl::Span<float> Write(size_t variable, size_t size);
  // `values` are those of the variable, for as long as `owner` is there.
  void Keep(size_t variable, absl::Span<const float> values,
            std::shared_ptr<const void> owner);
  // The tables up to the last of which rows are wanted.
  size_t num_tables() const { return rows_.size(); }
  // Where the values of the wanted rows are to be written. Called again with
  // the same length, it changes nothing.
  absl::Span<float> WriteRows(size_t table, size_t row_length);

 private:
  // Memory of this object's. What is copied is not pinned.
  class Own {
   public:
    Own() = default;
    explicit Own(std::vector<float> values) : heap_(std::move(values)) {}
    Own(const Own& other);
    Own& operator=(const Own& other);
    Own(Own&&) = default;
    Own& operator=(Own&&) = default;

    // Memory for so many values, the same as before if it has that size; else
    // of `memory`, which may be null or have none.
    absl::Span<float> Make(size_t size, HostMemory* memory);
    absl::Span<const float> values() const {
      if (pinned_ == nullptr) return heap_;
      return absl::MakeConstSpan(pinned_.get(), pinned_size_);
    }

   private:
    // One of them is empty.
    std::vector<float> heap_;
    HostBuffer pinned_;
    size_t pinned_size_ = 0;
  };

  struct Place {
    Own own;
    absl::Span<float> given;
    // Where `owner` is not null; and whether `own` is a copy of it.
    absl::Span<const float> kept;
    std::shared_ptr<const void> owner;
    bool copied = false;
  };

  struct Rows {
    std::vector<uint64_t> ids;
    // The first num_values of `memory`, which never shrinks: batches differ in
    // their numbers of rows.
    std::vector<float> memory;
    size_t num_values = 0;
  };

  std::vector<Place> places_;
  // By table.
  std::vector<Rows> rows_;
  bool wants_variables_ = true;
  HostMemory* host_memory_ = nullptr;
};

}  // namespace holdfast

#endif  // HOLDFAST_CLIENT_PARAMETERS_H_

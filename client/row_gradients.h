// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_ROW_GRADIENTS_H_
#define HOLDFAST_CLIENT_ROW_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/loan.h"
#include "client/neighbors.h"
#include "client/plan.h"
#include "client/row_plan.h"
#include "common/job/ids.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_encoding.h"
#include "common/tensor/tensor_piece.h"

namespace holdfast::client {

// The gradients of rows of embedding tables in one push. They are copied to
// group them by ps, if there are several, and into shared memory, if a ps of
// this host can read them there. Otherwise they are sent from the user's
// memory, which is lent until AwaitReturn.
//
// The number of parts is known once nothing more will be handed in: see Close.
//
// Thread-compatible, except that PiecesOf may be called from any thread after
// Close.
class RowGradients {
 public:
  // `layout` and `plan` must outlive this object. `plan`: the plan of the
  // variables' gradients. A ps without a part in `plan` gets one here, if only
  // an empty one, because in a job with tables every ps gives a receipt for
  // each push. `neighbors`: null if nothing is lent; must outlive this object.
  // `step`: determines the rounding of INT8.
  RowGradients(const Layout* layout, const Plan* plan,
               Neighbors* neighbors = nullptr, GlobalStep step = GlobalStep(0));

  // Returns OK if Take may be called with these arguments.
  // Errors: those of Push::AddRows.
  absl::Status Check(size_t table, absl::Span<const uint64_t> ids,
                     absl::Span<const float> gradients) const;
  void Take(size_t table, absl::Span<const uint64_t> ids,
            absl::Span<const float> gradients);
  // Whether every table has been taken.
  bool complete() const { return num_taken_ == taken_.size(); }

  // Declares that tables not taken so far have no rows. Returns false if Close
  // was called before.
  bool Close();
  bool closed() const { return closed_; }

  // The number of parts for a ps. Valid after Close.
  size_t num_parts(uint32_t ps) const { return plan_.parts(ps).size(); }
  // The size of all gradients for a ps, in bytes.
  uint64_t BytesOf(uint32_t ps) const { return plan_.BytesOf(ps); }
  // The pieces of a part, in the form in which they are sent.
  std::vector<TensorPiece> PiecesOf(uint32_t ps, uint32_t part) const;

  // See Gradients::AwaitReturn.
  void AwaitReturn();

 private:
  // Whether any ps is linked, and `bytes` are enough to be lent.
  bool MayBeLent(size_t bytes) const;
  // Memory for a copy of gradients: shared memory if `lends`, and if there is
  // any.
  std::shared_ptr<float> TakeMemory(size_t size, bool lends) const;

  const Layout& layout_;
  const Plan& dense_plan_;
  Neighbors* const neighbors_;
  const RowRounding rounding_;
  RowPlan plan_;
  Loan loan_;
  // Indexed by table.
  std::vector<bool> taken_;
  size_t num_taken_ = 0;
  bool closed_ = false;
  // Indexed by table: the gradients as they are sent, those for ps 0 first.
  std::vector<Buffer> gradients_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_GRADIENTS_H_

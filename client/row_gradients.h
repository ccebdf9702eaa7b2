#ifndef HOLDFAST_CLIENT_ROW_GRADIENTS_H_
#define HOLDFAST_CLIENT_ROW_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/layout.h"
#include "client/loan.h"
#include "client/plan.h"
#include "client/row_plan.h"
#include "common/job/ids.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_encoding.h"
#include "common/tensor/tensor_piece.h"

namespace holdfast::client {

// The gradients of rows of embedding tables in one push. With one ps they are
// sent from the user's memory, which is lent until AwaitReturn. With several,
// those for each ps are brought together in a copy.
//
// How many parts there are is known when nothing more is handed in: Close.
//
// Thread-compatible, but PiecesOf may be called from any thread after Close.
class RowGradients {
 public:
  // Both must outlive this object. `step`: by which INT8 rounds. `plan`: that
  // of the variables' gradients. A ps that has no part by it has one here, be
  // it an empty one: in a job with tables every ps gives a receipt for each
  // push.
  RowGradients(const Layout* layout, const Plan* plan,
               GlobalStep step = GlobalStep(0));

  // Whether Take may be called.
  // Errors: those of Push::AddRows.
  absl::Status Check(size_t table, absl::Span<const uint64_t> ids,
                     absl::Span<const float> gradients) const;
  void Take(size_t table, absl::Span<const uint64_t> ids,
            absl::Span<const float> gradients);
  // Whether each table was taken.
  bool complete() const { return num_taken_ == taken_.size(); }

  // Of tables that were not taken there are no rows. False: it was called
  // before.
  bool Close();
  bool closed() const { return closed_; }

  // From Close on.
  size_t num_parts(uint32_t ps) const { return plan_.parts(ps).size(); }
  // Of all gradients for a ps.
  uint64_t BytesOf(uint32_t ps) const { return plan_.BytesOf(ps); }
  // As they are to be sent.
  std::vector<TensorPiece> PiecesOf(uint32_t ps, uint32_t part) const;

  // As Gradients::AwaitReturn.
  void AwaitReturn();

 private:
  const Layout& layout_;
  const Plan& dense_plan_;
  const RowRounding rounding_;
  RowPlan plan_;
  Loan loan_;
  // By table.
  std::vector<bool> taken_;
  size_t num_taken_ = 0;
  bool closed_ = false;
  // By table, those for ps 0 first, as they are sent.
  std::vector<Buffer> gradients_;
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_ROW_GRADIENTS_H_

// SPDX-License-Identifier: Apache-2.0
#include "worker/trainer/batch_rows.h"

#include <cstdint>

#include "common/base/status_macros.h"

namespace holdfast {

std::vector<std::vector<int>> FieldsOf(const Model& model) {
  std::vector<std::vector<int>> fields;
  for (const ModelTable& table : model.Tables()) {
    fields.push_back(table.fields);
  }
  return fields;
}

void BatchRows::Want(const TableBags* bags, Parameters* values) const {
  for (size_t t = 0; t < num_tables_; ++t) {
    values->WantRows(t, bags == nullptr ? absl::Span<const uint64_t>()
                                        : bags->Of(t).unique());
  }
}

bool BatchRows::AreIn(const TableBags& bags, const Parameters& values) const {
  if (values.num_tables() != num_tables_) return false;
  for (size_t t = 0; t < num_tables_; ++t) {
    const absl::Span<const uint64_t> ids = bags.Of(t).unique();
    if (values.RowIds(t) != ids) return false;
    if (!ids.empty() && values.RowsOf(t).empty()) return false;
  }
  return true;
}

absl::Status BatchRows::Bring(const Parameters& at, const RowSource& read,
                              Batch* batch) {
  if (num_tables_ == 0) return absl::OkStatus();
  if (batch->bags == nullptr) {
    return absl::InvalidArgumentError(
        "the batch has no ids, but the model has embedding tables");
  }
  const Parameters* from = &at;
  if (!AreIn(*batch->bags, at)) {
    alone_.WantVariables(false);
    Want(batch->bags, &alone_);
    HOLDFAST_RETURN_IF_ERROR(read(&alone_));
    from = &alone_;
  }
  rows_.resize(num_tables_);
  for (size_t t = 0; t < num_tables_; ++t) rows_[t] = from->RowsOf(t);
  batch->rows = rows_;
  return absl::OkStatus();
}

}  // namespace holdfast

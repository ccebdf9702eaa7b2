// SPDX-License-Identifier: Apache-2.0

// The part of a training loop that handles rows of embedding tables.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/training_loop.h"
#include "common/base/status_macros.h"
#include "common/tensor/norm.h"

namespace holdfast {

absl::Status TrainingLoop::WantRows(absl::Span<const RowUse> rows) {
  client::RowRequest wanted;
  HOLDFAST_RETURN_IF_ERROR(wanted.Assign(tables_, rows));
  wanted_rows_ = std::move(wanted);
  return absl::OkStatus();
}

Parameters& TrainingLoop::PullInto() {
  Parameters& into = next();
  wanted_rows_.WantFrom(&into);
  wanted_rows_ = client::RowRequest();
  return into;
}

absl::StatusOr<bool> TrainingLoop::ReadRows(
    absl::Span<const RowUse> rows, absl::Span<const absl::Span<float>> into,
    absl::Time until) {
  if (stage_ != Stage::kTurn && stage_ != Stage::kDone) {
    return absl::FailedPreconditionError("there is no turn to read rows for");
  }
  if (!values_status_.ok()) return values_status_;
  if (!failed_.ok()) return failed_;
  if (from_checkpoint_ && !rows.empty()) {
    return absl::UnavailableError(
        "the job is done, and its ps no longer have rows; its last checkpoint "
        "holds them");
  }
  absl::Status status = row_request_.Assign(tables_, rows);
  for (size_t i = 0; status.ok() && i < rows.size(); ++i) {
    status = row_request_.CheckSize(i, into[i].size());
  }
  if (!status.ok()) return status;
  const Parameters* from = &now();
  if (row_pull_ != nullptr && !row_request_.IsWantedFrom(rows_)) {
    row_pull_.reset();
    wait_ends_.reset();
  }
  if (row_pull_ != nullptr || !row_request_.IsIn(*from)) {
    from = &rows_;
    if (row_pull_ == nullptr) {
      row_request_.WantFrom(&rows_);
      row_pull_ = cluster_.StartPull(
          mode_.asynchronous ? GlobalStep(0) : now().version, &rows_);
    }
    if (stage_ == Stage::kTurn) Meter(PhaseMeter::Phase::kVersion);
    if (!wait_ends_.has_value()) wait_ends_ = StepDeadline();
    if (!row_pull_->WaitUntilDone(std::min(until, *wait_ends_)) &&
        clock_.Now() < *wait_ends_) {
      return false;
    }
    status = row_pull_->Await(*std::exchange(wait_ends_, {}));
    row_pull_.reset();
    if (!status.ok()) {
      if (stage_ == Stage::kTurn) failed_ = status;
      return status;
    }
    if (stage_ == Stage::kTurn) Meter();
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    row_request_.Copy(i, *from, into[i].data());
  }
  return true;
}

absl::Status TrainingLoop::AddRows(size_t table, absl::Span<const uint64_t> ids,
                                   absl::Span<const float> gradients) {
  if (stage_ != Stage::kTurn) {
    return absl::FailedPreconditionError("there is no turn to push for");
  }
  absl::Status status = client::CheckRowUse(tables_, {table, ids});
  if (!status.ok()) return status;
  const proto::EmbeddingTable& declared = tables_[static_cast<int>(table)];
  const size_t length = declared.row_length();
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", declared.name(), "\": ", what...));
  };
  if (gradients.size() != ids.size() * length) {
    return error("the gradients of ", ids.size(), " rows of ", length,
                 " values are ", gradients.size(), " numbers");
  }
  if (!failed_.ok()) return absl::OkStatus();
  handed_in_ = true;
  RowsOfTurn& of_turn = rows_of_turn_[table];
  if (of_turn == RowsOfTurn::kAdded) {
    // The rows that were handed in before are already being sent.
    return error("its rows were handed in before");
  }
  Underway& hand = underway_.back();
  RowSums& rows = hand.memory.rows[table];
  rows.batch.Assign(ids);
  const absl::Span<const uint64_t> unique = rows.batch.unique();
  if (unique.size() > declared.max_rows_per_push()) {
    return error(unique.size(), " rows are pushed, but max_rows_per_push is ",
                 declared.max_rows_per_push());
  }
  rows.sums.resize(unique.size() * length);
  rows.batch.Sum(gradients.data(), length, rows.sums.data());
  status = client::CheckFiniteRows(declared.name(), unique, rows.sums.data(),
                                   length);
  if (!status.ok()) {
    of_turn = RowsOfTurn::kNotFinite;
    return status;
  }
  status = hand.push->AddRows(table, unique, rows.sums);
  if (absl::IsInvalidArgument(status)) return status;
  if (!status.ok()) {
    failed_ = status;
    return absl::OkStatus();
  }
  of_turn = RowsOfTurn::kAdded;
  if (mode_.max_global_norm) row_squares_[table] = SumOfSquares(rows.sums);
  return absl::OkStatus();
}

}  // namespace holdfast

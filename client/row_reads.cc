// SPDX-License-Identifier: Apache-2.0
#include "client/row_reads.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_encoding.h"

namespace holdfast::client {

absl::Status CheckWantedRows(const Layout& layout, const Parameters& into) {
  for (size_t i = 0; i < into.num_tables(); ++i) {
    HOLDFAST_RETURN_IF_ERROR(CheckRowIds(layout, i, into.RowIds(i)));
  }
  return absl::OkStatus();
}

RowReads::RowReads(const Layout* layout, const Plan* plan, bool ask_all,
                   Parameters* into, Reading reading)
    : layout_(*layout), into_(*into), reading_(reading), plan_(layout) {
  for (size_t i = 0; i < into->num_tables(); ++i) {
    plan_.Set(i, into->RowIds(i));
  }
  plan_.Cut(plan->part_bytes);
  if (ask_all) plan_.AddEmptyParts(*plan);
}

proto::Encoding RowReads::EncodingOf(size_t table) const {
  return reading_ == Reading::kExact ? proto::EXACT
                                     : layout_.tables()[table].pull;
}

void RowReads::Prepare() const {
  for (size_t i = 0; i < into_.num_tables(); ++i) {
    into_.WriteRows(i, layout_.tables()[i].row_length);
  }
}

void RowReads::AddRanges(
    uint32_t ps, uint32_t part,
    google::protobuf::RepeatedPtrField<proto::ReadRange>* ranges) const {
  for (const RowPlan::RowRange& rows : plan_.parts(ps)[part]) {
    proto::ReadRange& range = *ranges->Add();
    range.set_variable(layout_.tables()[rows.table].name);
    range.set_encoding(EncodingOf(rows.table));
    *range.mutable_rows() = plan_.EncodedIds(ps, rows);
  }
}

absl::Status RowReads::Take(uint32_t ps, uint32_t part,
                            absl::Span<const TensorPiece> pieces) const {
  const RowPlan::Part& ranges = plan_.parts(ps)[part];
  if (pieces.size() != ranges.size()) {
    return absl::InternalError(
        absl::StrCat(ranges.size(), " ranges of rows were requested, but ",
                     pieces.size(), " tensors arrived"));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    HOLDFAST_RETURN_IF_ERROR(Check(ranges[i], pieces[i]));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    Write(ps, ranges[i], pieces[i].data);
  }
  return absl::OkStatus();
}

absl::Status RowReads::Check(const RowPlan::RowRange& range,
                             const TensorPiece& piece) const {
  const Layout::Table& table = layout_.tables()[range.table];
  const auto error = [&](const auto&... what) {
    return absl::InternalError(
        absl::StrCat(range.size, " rows of table \"", table.name,
                     "\" were requested, but arrived ", what...));
  };
  if (piece.variable != table.name) {
    return error("as rows of \"", piece.variable, "\"");
  }
  if (!piece.rows.has_value()) return error("as elements of a variable");
  if (piece.dtype != proto::FLOAT32) return error("as dtype ", piece.dtype);
  if (piece.encoding != EncodingOf(range.table)) {
    return error("in encoding ", static_cast<int>(piece.encoding));
  }
  if (piece.data.size() !=
      range.size * EncodedRowBytes(piece.encoding, table.row_length)) {
    return error("in ", piece.data.size(), " bytes");
  }
  return absl::OkStatus();
}

void RowReads::Write(uint32_t ps, const RowPlan::RowRange& range,
                     const Buffer& values) const {
  const size_t length = layout_.tables()[range.table].row_length;
  float* const rows = into_.WriteRows(range.table, length).data();
  const absl::Span<const uint32_t> places = plan_.Places(ps, range);
  const proto::Encoding encoding = EncodingOf(range.table);
  if (places.empty()) {
    DecodeRows(encoding, length, values,
               rows + plan_.FirstPlace(ps, range) * length);
    return;
  }
  if (encoding != proto::EXACT) {
    const size_t row_bytes = EncodedRowBytes(encoding, length);
    size_t begin = 0;
    for (const uint32_t place : places) {
      DecodeRows(encoding, length, values.Sub(begin, row_bytes),
                 rows + place * length);
      begin += row_bytes;
    }
    return;
  }
  FloatReader reader(&values);
  for (const uint32_t place : places) {
    float* to = rows + place * length;
    for (size_t left = length; left > 0;) {
      float cut;
      const FloatReader::Run run = reader.Next(left, &cut);
      std::memcpy(to, run.data, run.size * sizeof(float));
      to += run.size;
      left -= run.size;
    }
  }
}

}  // namespace holdfast::client

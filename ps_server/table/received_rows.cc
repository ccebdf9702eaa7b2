// SPDX-License-Identifier: Apache-2.0
#include "ps_server/table/received_rows.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/tensor/row_encoding.h"
#include "common/tensor/row_ids.h"

namespace holdfast {

absl::StatusOr<ReceivedRows> ReceivedRows::Parse(
    const proto::EmbeddingTable& table, BucketRange buckets, uint64_t num_rows,
    absl::string_view ids, Buffer gradients, proto::Encoding encoding) {
  const auto error = [&table](auto&&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", table.name(), "\": ", what...));
  };
  if (num_rows > table.max_rows_per_push()) {
    return error("a push of ", num_rows, " rows, but max_rows_per_push is ",
                 table.max_rows_per_push());
  }
  if (encoding != proto::EXACT && encoding != table.push()) {
    return error("gradients in encoding ", static_cast<int>(encoding),
                 ", declared ", proto::Encoding_Name(table.push()));
  }
  const size_t length = table.row_length();
  const size_t row_bytes = EncodedRowBytes(encoding, length);
  // The product is below 2^48: the factors are at most 2^30 and 2^18.
  if (gradients.size() != num_rows * row_bytes) {
    return error("gradients of ", gradients.size(), " bytes for ", num_rows,
                 " rows of ", table.row_length(), " float32");
  }
  absl::StatusOr<std::vector<uint64_t>> decoded = DecodeRowIds(ids, num_rows);
  if (!decoded.ok()) return error(decoded.status().message());

  ReceivedRows rows;
  rows.ids_ = *std::move(decoded);
  for (const uint64_t id : rows.ids_) {
    if (!buckets.Contains(BucketOfRow(id))) {
      return error("row ", id, " is in bucket ", BucketOfRow(id),
                   ", which is not on this ps");
    }
  }
  if (encoding != proto::EXACT) {
    auto& decoded = rows.whole_.emplace_back(
        std::make_unique<char[]>(num_rows * length * sizeof(float)));
    auto* const floats = reinterpret_cast<float*>(decoded.get());
    DecodeRows(encoding, length, gradients, floats);
    for (uint64_t row = 0; row < num_rows; ++row) {
      rows.gradients_.push_back(floats + row * length);
    }
    return rows;
  }
  rows.data_ = std::move(gradients);
  rows.gradients_.reserve(num_rows);
  const auto spans = rows.data_.spans();
  size_t span = 0;
  for (uint64_t row = 0; row < num_rows; ++row) {
    const size_t begin = row * row_bytes;
    while (begin >= spans[span].begin + spans[span].size) ++span;
    const size_t offset = begin - spans[span].begin;
    if (offset + row_bytes <= spans[span].size) {
      rows.gradients_.push_back(spans[span].data + offset);
    } else {
      rows.whole_.push_back(std::make_unique<char[]>(row_bytes));
      rows.data_.Sub(begin, row_bytes).CopyTo(rows.whole_.back().get());
      rows.gradients_.push_back(rows.whole_.back().get());
    }
  }
  return rows;
}

}  // namespace holdfast

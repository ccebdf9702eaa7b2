// SPDX-License-Identifier: Apache-2.0

// Pushes and tables for the tests of this folder.
#ifndef HOLDFAST_PS_SERVER_TABLE_TESTING_TABLE_TESTING_H_
#define HOLDFAST_PS_SERVER_TABLE_TESTING_TABLE_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/tensor/buffer.h"
#include "common/tensor/row_ids.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "ps_server/table/embedding_table.h"
#include "ps_server/table/received_rows.h"

namespace holdfast {

template <typename Message>
Message ParseText(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message))
      << text;
  return message;
}

// The declaration of table "t" with `row_length` and other `fields`.
inline proto::EmbeddingTable Declared(uint32_t row_length,
                                      const std::string& fields) {
  auto table = ParseText<proto::EmbeddingTable>(
      "name: \"t\" max_rows_per_push: 1000000 " + fields);
  table.set_row_length(row_length);
  if (!table.has_initializer()) table.mutable_initializer()->mutable_zeros();
  return table;
}

// The gradients of a push by id, each of the length of a row.
using Gradients = std::map<uint64_t, std::vector<float>>;

inline Buffer BytesOf(const std::vector<float>& floats) {
  return Buffer::FromString(
      std::string(reinterpret_cast<const char*>(floats.data()),
                  floats.size() * sizeof(float)));
}

// The gradients as a ps that has `buckets` receives them.
inline ReceivedRows Received(const proto::EmbeddingTable& table,
                             const Gradients& gradients,
                             BucketRange buckets = {}) {
  std::vector<uint64_t> ids;
  std::vector<float> values;
  for (const auto& [id, gradient] : gradients) {
    if (!buckets.Contains(BucketOfRow(id))) continue;
    ids.push_back(id);
    values.insert(values.end(), gradient.begin(), gradient.end());
  }
  absl::StatusOr<ReceivedRows> rows = ReceivedRows::Parse(
      table, buckets, ids.size(), EncodeRowIds(ids), BytesOf(values));
  EXPECT_TRUE(rows.ok()) << rows.status();
  return *std::move(rows);
}

inline std::unique_ptr<EmbeddingTable> MakeEmbeddingTable(
    const proto::EmbeddingTable& declared, const std::string& optimizer,
    const EmbeddingTable::Options& options = {}) {
  absl::StatusOr<std::unique_ptr<EmbeddingTable>> table =
      EmbeddingTable::Create(declared, ParseText<proto::Optimizer>(optimizer),
                             options);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

// Applies a step with `pushes`, each with weight 1, and the divisor 1.
inline void Step(EmbeddingTable* table, const std::vector<Gradients>& pushes,
                 const proto::StepScalars& scalars) {
  std::vector<ReceivedRows> received;
  for (const Gradients& push : pushes) {
    received.push_back(Received(table->declared(), push, table->buckets()));
  }
  RowSum sum;
  for (const ReceivedRows& rows : received) sum.terms.push_back({{&rows}, 1});
  table->ApplyStep(sum, scalars, {});
}

inline proto::StepScalars Rate(float learning_rate) {
  proto::StepScalars scalars;
  scalars.set_learning_rate(learning_rate);
  return scalars;
}

inline std::vector<float> ReadRow(const EmbeddingTable& table, uint64_t id) {
  std::vector<float> values(table.declared().row_length());
  table.Read({&id, 1}, values.data());
  return values;
}

}  // namespace holdfast

#endif  // HOLDFAST_PS_SERVER_TABLE_TESTING_TABLE_TESTING_H_

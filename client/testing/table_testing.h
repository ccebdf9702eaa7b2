// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_TESTING_TABLE_TESTING_H_
#define HOLDFAST_CLIENT_TESTING_TABLE_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/testing/generation_testing.h"
#include "common/tensor/buffer.h"
#include "common/tensor/row_bucket.h"
#include "common/tensor/row_ids.h"
#include "gtest/gtest.h"

namespace holdfast::client {

// A generation of a job that also has table 0, "t", whose rows have 2 values; a
// push has at most 6 of them.
class TableTest : public GenerationTest {
 protected:
  TableTest() { AddTable("t", 2, 6); }

  // The n-th id, from 0, of those that belong to a ps.
  static uint64_t IdOf(uint32_t ps, uint32_t num_ps, int n) {
    for (uint64_t id = 0;; ++id) {
      if (PsOfBucket(BucketOfRow(id), num_ps) == ps && n-- == 0) return id;
    }
  }

  static std::vector<uint64_t> IdsOf(const proto::RowIds& rows) {
    const auto ids = DecodeRowIds(rows.ids(), rows.num_rows());
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.value_or(std::vector<uint64_t>());
  }

  // Element e of a row at a version: no two are equal, for ids up to 99.
  static float Value(uint64_t id, size_t e, uint64_t version = 0) {
    return static_cast<float>(version * 1000 + id * 10 + e);
  }
  static std::vector<float> Values(const std::vector<uint64_t>& ids,
                                   uint64_t version = 0) {
    std::vector<float> values;
    for (const uint64_t id : ids) {
      values.push_back(Value(id, 0, version));
      values.push_back(Value(id, 1, version));
    }
    return values;
  }

  // A piece as a shard sends it at a version; every element of a variable is
  // the version.
  static TensorPiece PieceAt(const proto::ReadRange& range, uint64_t version) {
    if (!range.has_rows()) {
      return PieceOf(range, static_cast<float>(version));
    }
    TensorPiece piece;
    piece.variable = range.variable();
    piece.rows.emplace();
    const std::vector<float> values = Values(IdsOf(range.rows()), version);
    piece.data = Buffer::FromString(
        std::string(reinterpret_cast<const char*>(values.data()),
                    values.size() * sizeof(float)));
    return piece;
  }
  template <typename Request>
  static std::vector<TensorPiece> PiecesAt(const Request& request,
                                           uint64_t version) {
    std::vector<TensorPiece> pieces;
    for (const proto::ReadRange& range : request.ranges()) {
      pieces.push_back(PieceAt(range, version));
    }
    return pieces;
  }

  // Answers the oldest pull of the ps, and returns its request.
  proto::PullRequest AnswerPull(uint32_t ps, uint64_t version) {
    auto pull = transport_.Take(rpc::kPull, ps);
    WithTensors<proto::PullResponse> response;
    response.message.set_version(version);
    response.tensors = PiecesAt(pull.request, version);
    pull.Answer(response);
    return pull.request;
  }
};

}  // namespace holdfast::client

#endif  // HOLDFAST_CLIENT_TESTING_TABLE_TESTING_H_

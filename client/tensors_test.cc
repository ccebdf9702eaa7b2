// SPDX-License-Identifier: Apache-2.0
#include "client/tensors.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/rpc_limits.h"
#include "common/tensor/buffer.h"
#include "common/tensor/tensor_piece.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast::client {
namespace {

using ::testing::Each;

// A ps of this host lends "whole" and "fixed" in one piece each, and "cut" in
// two; "small" is sent.
class ReadingInPlaceTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kLent = kMinLentBytes / sizeof(float);
  enum Variable { kWhole, kCut, kSmall, kFixed };

  static Layout MakeLayout() {
    proto::GetPlacementResponse placement;
    const auto add = [&](const char* name, std::vector<uint64_t> slices) {
      proto::Variable& variable =
          *placement.mutable_declaration()->add_variables();
      variable.set_name(name);
      variable.set_dtype(proto::FLOAT32);
      uint64_t begin = 0;
      for (const uint64_t size : slices) {
        proto::Slice& slice = *placement.add_slices();
        slice.set_variable(name);
        slice.set_begin(begin);
        slice.set_size(size);
        begin += size;
      }
      variable.add_shape(begin);
      return &variable;
    };
    add("whole", {kLent});
    add("cut", {kLent, kLent});
    add("small", {10});
    add("fixed", {kLent})->set_trainable(false);
    return *Layout::Make(placement, 1);
  }

  // A piece whose elements are all `value`, at an address `offset` bytes after
  // a multiple of 4.
  TensorPiece PieceOf(const ElementRange& range, float value,
                      size_t offset = 0) {
    const Layout::Variable& variable = layout_.variables()[range.variable];
    TensorPiece piece;
    piece.variable = variable.name;
    piece.shape = variable.shape;
    piece.begin = range.begin;
    auto memory = std::make_shared<std::vector<float>>(range.size + 1, value);
    char* const data = reinterpret_cast<char*>(memory->data()) + offset;
    std::vector<float> values(range.size, value);
    std::copy_n(reinterpret_cast<const char*>(values.data()),
                range.size * sizeof(float), data);
    lent_.push_back(memory);
    piece.data = Buffer::FromMemory(data, range.size * sizeof(float), memory);
    return piece;
  }
  std::vector<TensorPiece> Answer(float value, size_t offset = 0) {
    lent_.clear();
    std::vector<TensorPiece> pieces;
    for (const ElementRange& range : part()) {
      pieces.push_back(PieceOf(range, value, offset));
    }
    return pieces;
  }
  const Plan::Part& part() const { return plan_.parts[0][0]; }

  void Take(std::vector<TensorPiece> pieces,
            const std::shared_ptr<const void>& leave) {
    Prepare(layout_, plan_, &values_);
    ASSERT_EQ(TakeValues(layout_, plan_, part(), Reading::kAsDeclared, pieces,
                         leave, &values_),
              absl::OkStatus());
  }
  void ExpectAll(float value) const {
    ASSERT_EQ(values_.size(), 4);
    for (size_t v = 0; v < values_.size(); ++v) {
      EXPECT_EQ(values_.Of(v).size(), layout_.variables()[v].size);
      EXPECT_THAT(values_.Of(v), Each(value));
    }
  }
  // The number of pieces of the last answer that are kept.
  int NumKept() const {
    int kept = 0;
    for (const auto& memory : lent_) kept += !memory.expired();
    return kept;
  }

  const Layout layout_ = MakeLayout();
  const Plan plan_ = PlanPull(layout_, 1 << 20, {true});
  const std::shared_ptr<const void> leave_ = std::make_shared<int>();
  // The memory of the pieces.
  std::vector<std::weak_ptr<std::vector<float>>> lent_;
  Parameters values_;
};

TEST_F(ReadingInPlaceTest, WhatComesWholeStaysWhereItLies) {
  Take(Answer(5), leave_);
  ExpectAll(5);
  EXPECT_EQ(NumKept(), 2);
  EXPECT_EQ(values_.Of(kWhole).data(), lent_[0].lock()->data());
  // The permission to keep values is kept along with the values.
  EXPECT_EQ(leave_.use_count(), 3);
  values_.Release();
  EXPECT_EQ(NumKept(), 0);
  EXPECT_EQ(leave_.use_count(), 1);
}

TEST_F(ReadingInPlaceTest, APullLetsGoOfWhatWasKept) {
  Take(Answer(5), leave_);
  Prepare(layout_, plan_, &values_);
  EXPECT_EQ(NumKept(), 0);
  Take(Answer(6), leave_);
  ExpectAll(6);
  EXPECT_EQ(leave_.use_count(), 3);
}

TEST_F(ReadingInPlaceTest, WithoutLeaveAllIsCopied) {
  Take(Answer(5), nullptr);
  ExpectAll(5);
  EXPECT_EQ(NumKept(), 0);
  // Repeatedly, in the order of arrival.
  Take(Answer(6), leave_);
  ExpectAll(6);
  Take(Answer(7), nullptr);
  ExpectAll(7);
  EXPECT_EQ(leave_.use_count(), 1);
}

TEST_F(ReadingInPlaceTest, WhatLiesAsNoFloatDoesIsCopied) {
  Take(Answer(5, /*offset=*/1), leave_);
  ExpectAll(5);
  EXPECT_EQ(NumKept(), 0);
}

TEST_F(ReadingInPlaceTest, WhatCameInPiecesIsCopied) {
  std::vector<TensorPiece> pieces = Answer(5);
  Buffer& data = pieces[kWhole].data;
  Buffer cut = data.Sub(0, 100);
  cut.Append(data.Sub(100, data.size() - 100));
  data = std::move(cut);
  Take(std::move(pieces), leave_);
  ExpectAll(5);
  EXPECT_EQ(NumKept(), 1);
}

TEST_F(ReadingInPlaceTest, TheCallersMemoryIsWrittenTo) {
  std::vector<float> own(kLent);
  values_.SetMemory({absl::MakeSpan(own)});
  Take(Answer(5), leave_);
  ExpectAll(5);
  EXPECT_EQ(values_.Of(kWhole).data(), own.data());
  EXPECT_EQ(NumKept(), 1);
}

TEST_F(ReadingInPlaceTest, OverTheNetworkAllIsCopied) {
  const Plan plan = PlanPull(layout_, 1 << 20, {false});
  Prepare(layout_, plan, &values_);
  ASSERT_EQ(TakeValues(layout_, plan, plan.parts[0][0], Reading::kAsDeclared,
                       Answer(5), leave_, &values_),
            absl::OkStatus());
  ExpectAll(5);
  EXPECT_EQ(NumKept(), 0);
}

}  // namespace
}  // namespace holdfast::client

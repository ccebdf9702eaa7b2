// SPDX-License-Identifier: Apache-2.0
#include "ps_server/shard/wanted_values.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/job/given_values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<float> Numbers(size_t n, float first) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + i;
  return values;
}

class WantedValuesTest : public testing::Test {
 protected:
  // Adds a variable that is given, cut before each of `cuts`; its slices are on
  // ps 0 and 1 in turn.
  void Add(const std::string& name, std::vector<float> values,
           const std::vector<uint64_t>& cuts = {}) {
    proto::Variable& variable = *declaration_.add_variables();
    variable.set_name(name);
    variable.add_shape(values.size());
    variable.set_dtype(proto::FLOAT32);
    *variable.mutable_initializer()->mutable_given() = GivenDigests(values);
    uint64_t begin = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const uint64_t end = i < cuts.size() ? cuts[i] : values.size();
      proto::Slice& slice = slices_.emplace_back();
      slice.set_variable(name);
      slice.set_begin(begin);
      slice.set_size(end - begin);
      slice.set_ps(i % 2);
      begin = end;
    }
    values_[name] = std::move(values);
  }

  WantedValues Make(uint32_t ps = 0) {
    auto store = DenseStore::Create(declaration_, slices_, ps, {{}});
    EXPECT_TRUE(store.ok()) << store.status();
    auto wanted = WantedValues::Of(*std::move(store));
    EXPECT_TRUE(wanted.ok()) << wanted.status();
    return *std::move(wanted);
  }

  TensorPiece Piece(const std::string& name, uint64_t begin,
                    uint64_t size) const {
    TensorPiece piece;
    piece.variable = name;
    piece.begin = begin;
    piece.data = Buffer::FromMemory(&values_.at(name)[begin],
                                    size * sizeof(float), nullptr);
    return piece;
  }

  // Gives all that is asked for, and returns how many calls that took.
  int GiveAll(WantedValues* wanted) const {
    int calls = 0;
    while (!wanted->complete()) {
      ++calls;
      for (const proto::ReadRange& range : wanted->Next()) {
        const absl::Status status =
            wanted->Add(Piece(range.variable(), range.begin(), range.size()));
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    return calls;
  }

  // The store's values of slice `i`.
  static std::vector<float> ValuesOf(const DenseStore& store, size_t i) {
    const StoredSlice& slice = store.slices()[i];
    std::vector<float> values(slice.size);
    store.Read(*store.newest(), i, slice.begin, slice.size)
        .CopyTo(values.data());
    return values;
  }

  absl::Span<const float> Part(const std::string& name, uint64_t begin,
                               uint64_t end) const {
    return absl::MakeConstSpan(values_.at(name)).subspan(begin, end - begin);
  }

  proto::Declaration declaration_;
  std::vector<proto::Slice> slices_;
  std::map<std::string, std::vector<float>> values_;
};

TEST_F(WantedValuesTest, IsCompleteOnceEachRangeIsHere_V1) {
  Add("a", Numbers(3, 1));
  Add("b", Numbers(kGivenRange + 1, 1));
  WantedValues wanted = Make();
  EXPECT_FALSE(wanted.complete());
  EXPECT_EQ(wanted.first_variable(), "a");
  EXPECT_THAT(wanted.Next(), SizeIs(3));
  EXPECT_TRUE(wanted.Add(Piece("b", kGivenRange, 1)).ok());
  EXPECT_TRUE(wanted.Add(Piece("b", kGivenRange, 1)).ok());
  EXPECT_TRUE(wanted.Add(Piece("a", 0, 3)).ok());
  EXPECT_FALSE(wanted.complete());
  EXPECT_EQ(wanted.first_variable(), "b");
  EXPECT_TRUE(wanted.Add(Piece("b", 0, kGivenRange)).ok());
  EXPECT_TRUE(wanted.complete());
  EXPECT_THAT(wanted.Next(), IsEmpty());
  const std::unique_ptr<DenseStore> store = wanted.TakeStore();
  EXPECT_EQ(ValuesOf(*store, 0), values_["a"]);
  EXPECT_EQ(ValuesOf(*store, 1), values_["b"]);
}

TEST_F(WantedValuesTest, OtherValuesAreRefusedWhoeverSendsThem_V2) {
  Add("a", Numbers(3, 1));
  WantedValues wanted = Make();
  values_["a"][1] = 5;
  const absl::Status status = wanted.Add(Piece("a", 0, 3));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(),
              HasSubstr("first values of variable \"a\": elements 0 to 2 are "
                        "not those that were declared"));
  EXPECT_FALSE(wanted.complete());
  values_["a"][1] = 2;
  EXPECT_TRUE(wanted.Add(Piece("a", 0, 3)).ok());
  EXPECT_TRUE(wanted.complete());
}

TEST_F(WantedValuesTest, SlicesTakeTheirShareOfARange) {
  // Cut inside ranges, and inside the store's chunks.
  const uint64_t n = 5 * kGivenRange + 7;
  const std::vector<uint64_t> cuts = {5, kGivenRange - 1, 2 * kGivenRange + 3,
                                      n - 2};
  Add("a", Numbers(n, 0), cuts);
  for (const uint32_t ps : {0, 1}) {
    WantedValues wanted = Make(ps);
    GiveAll(&wanted);
    const std::unique_ptr<DenseStore> store = wanted.TakeStore();
    std::vector<uint64_t> bounds = {0};
    bounds.insert(bounds.end(), cuts.begin(), cuts.end());
    bounds.push_back(n);
    for (size_t i = 0; i < store->slices().size(); ++i) {
      const size_t slice = 2 * i + ps;
      EXPECT_EQ(absl::MakeConstSpan(ValuesOf(*store, i)),
                Part("a", bounds[slice], bounds[slice + 1]))
          << "ps " << ps << ", slice " << slice;
    }
  }
}

TEST_F(WantedValuesTest, AsksForNothingThatIsOnOtherPs) {
  Add("a", Numbers(3 * kGivenRange, 0), {kGivenRange, 2 * kGivenRange});
  WantedValues wanted = Make(1);
  const auto ranges = wanted.Next();
  ASSERT_THAT(ranges, SizeIs(1));
  EXPECT_EQ(ranges[0].begin(), kGivenRange);
  // This value is not read, so it may be anything.
  values_["a"][0] = 7;
  EXPECT_TRUE(wanted.Add(Piece("a", 0, kGivenRange)).ok());
  EXPECT_FALSE(wanted.complete());
}

TEST_F(WantedValuesTest, AsksEachCallerForOthersUntilAllWereAskedFor) {
  Add("a", Numbers(6 * kGivenRange, 0));
  WantedValues wanted = Make();
  const auto begins = [&] {
    std::vector<uint64_t> begins;
    for (const proto::ReadRange& range : wanted.Next()) {
      begins.push_back(range.begin() / kGivenRange);
    }
    return begins;
  };
  // Three MiB and what surrounds them: a fourth is more than a part.
  EXPECT_THAT(begins(), ElementsAre(0, 1, 2));
  EXPECT_THAT(begins(), ElementsAre(3, 4, 5));
  EXPECT_TRUE(wanted.Add(Piece("a", 4 * kGivenRange, kGivenRange)).ok());
  EXPECT_THAT(begins(), ElementsAre(0, 1, 2));
  EXPECT_THAT(begins(), ElementsAre(3, 5, 0));
}

TEST_F(WantedValuesTest, ManySmallVariablesAreAskedForAtOnce) {
  for (size_t i = 0; i <= WantedValues::kMostRanges; ++i) {
    Add(absl::StrCat("v", i), {static_cast<float>(i)});
  }
  WantedValues wanted = Make();
  EXPECT_THAT(wanted.Next(), SizeIs(WantedValues::kMostRanges));
  EXPECT_EQ(GiveAll(&wanted), 2);
}

TEST_F(WantedValuesTest, WhatIsNoRangeIsRefused) {
  Add("a", Numbers(kGivenRange + 2, 0));
  proto::Variable& made = *declaration_.add_variables();
  made.set_name("made");
  made.set_dtype(proto::FLOAT32);
  made.mutable_initializer()->mutable_zeros();
  proto::Slice& slice = slices_.emplace_back();
  slice.set_variable("made");
  slice.set_size(1);
  WantedValues wanted = Make();
  const auto refused = [&](const TensorPiece& piece, const char* why) {
    const absl::Status status = wanted.Add(piece);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  TensorPiece other;
  other.variable = "made";
  refused(other, "variable \"made\": they are not given on this ps");
  other.variable = "none";
  refused(other, "variable \"none\": they are not given on this ps");
  refused(Piece("a", 1, 5), "variable \"a\": no range begins at element 1");
  TensorPiece beyond = Piece("a", 0, 1);
  beyond.begin = 2 * kGivenRange;
  refused(beyond, "no range begins at element 524288");
  beyond.begin = ~uint64_t{0} / kGivenRange * kGivenRange;
  refused(beyond, "no range begins at element");
  refused(
      Piece("a", 0, 3),
      "12 bytes from element 0, expected the range of 262144 elements, EXACT");
  refused(Piece("a", kGivenRange, 1), "4 bytes from element 262144");
  TensorPiece halves = Piece("a", kGivenRange, 2);
  halves.encoding = proto::FLOAT16;
  refused(halves, "EXACT");
  EXPECT_THAT(wanted.Next(), SizeIs(2));
}

TEST_F(WantedValuesTest, VariablesWithoutElementsLackNothing) {
  Add("empty", {});
  EXPECT_TRUE(Make().complete());
}

TEST_F(WantedValuesTest, NeedsADigestForEachRange) {
  Add("a", Numbers(3, 0));
  declaration_.mutable_variables(0)
      ->mutable_initializer()
      ->mutable_given()
      ->clear_sha256();
  auto store = DenseStore::Create(declaration_, slices_, 0, {{}});
  ASSERT_TRUE(store.ok());
  const absl::Status status = WantedValues::Of(*std::move(store)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("variable \"a\": "));
}

}  // namespace
}  // namespace holdfast

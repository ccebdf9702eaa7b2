// SPDX-License-Identifier: Apache-2.0
#include "common/trace/trace_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/validate.h"

namespace holdfast {
namespace {

using ::testing::SizeIs;

absl::Time At(int64_t ns) { return absl::FromUnixNanos(ns); }

TraceTrack TrackOf(const std::string& name, int spans) {
  TraceTrack track;
  track.name = name;
  for (int i = 0; i < spans; ++i) {
    track.spans.push_back({TraceKind::kWait,
                           absl::StrCat("span ", i),
                           At(1000 + i),
                           At(1005 + i),
                           {{"step", i}},
                           ""});
  }
  return track;
}

TEST(TracePartsTest, SmallOnesAreOnePart) {
  TraceTrack calls = TrackOf("calls", 1);
  calls.kind = TraceTrack::Kind::kOverlapping;
  calls.spans[0].error = "it \xff failed\n";
  const auto parts =
      ToTraceParts({TrackOf("training", 2), TrackOf("empty", 0), calls},
                   {absl::Nanoseconds(-7), absl::Nanoseconds(8)}, At(99));
  ASSERT_THAT(parts, SizeIs(1));
  const proto::TracePart& part = parts[0];
  EXPECT_TRUE(ValidateMessage(part).ok()) << ValidateMessage(part);
  EXPECT_TRUE(part.last());
  EXPECT_EQ(part.clock_offset_ns(), -7);
  EXPECT_EQ(part.clock_error_ns(), 8u);
  EXPECT_EQ(part.complete_from_ns(), 99);
  ASSERT_EQ(part.tracks_size(), 2);
  EXPECT_EQ(part.tracks(0).name(), "training");
  EXPECT_FALSE(part.tracks(0).overlapping());
  EXPECT_TRUE(part.tracks(1).overlapping());
  ASSERT_EQ(part.spans_size(), 3);
  const proto::TraceSpan& span = part.spans(1);
  EXPECT_EQ(span.name(), "span 1");
  EXPECT_EQ(span.track(), 0u);
  EXPECT_EQ(span.begin_ns(), 1001);
  EXPECT_EQ(span.duration_ns(), 5u);
  EXPECT_EQ(FromProto(span.kind()), TraceKind::kWait);
  EXPECT_EQ(span.args(0).name(), "step");
  EXPECT_EQ(span.args(0).value(), 1);
  EXPECT_EQ(part.spans(2).track(), 1u);
  EXPECT_EQ(part.spans(2).error(), "it ? failed?");
}

TEST(TracePartsTest, NothingIsAPartToo) {
  const auto parts = ToTraceParts({}, {}, std::nullopt);
  ASSERT_THAT(parts, SizeIs(1));
  EXPECT_TRUE(parts[0].last());
  EXPECT_FALSE(parts[0].has_complete_from_ns());
}

TEST(TracePartsTest, MoreSpansAreMoreParts) {
  const auto parts =
      ToTraceParts({TrackOf("a", 1500), TrackOf("b", kMaxClusterTraceSpans)},
                   {}, std::nullopt);
  ASSERT_THAT(parts, SizeIs(20));
  int64_t spans = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_TRUE(ValidateMessage(parts[i]).ok()) << ValidateMessage(parts[i]);
    EXPECT_EQ(parts[i].piece(), i);
    EXPECT_EQ(parts[i].last(), i == 19);
    spans += parts[i].spans_size();
  }
  EXPECT_EQ(spans, kMaxClusterTraceSpans);
}

// Names and errors are truncated to the lengths that the rules allow.
TEST(TracePartsTest, LongWordsAreCut) {
  TraceTrack track = TrackOf(std::string(100, 't'), 1);
  track.spans[0].name = std::string(100, 's');
  track.spans[0].error = std::string(1000, 'e');
  for (int i = 0; i < 20; ++i) track.spans[0].args.emplace_back("a", i);
  const auto parts = ToTraceParts({track}, {}, std::nullopt);
  EXPECT_TRUE(ValidateMessage(parts[0]).ok()) << ValidateMessage(parts[0]);
  EXPECT_EQ(parts[0].spans(0).args_size(), 8);
}

}  // namespace
}  // namespace holdfast

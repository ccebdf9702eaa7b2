// SPDX-License-Identifier: Apache-2.0
#include "ps_server/service/call_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "google/protobuf/text_format.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"

namespace holdfast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::FromUnixSeconds(100);
};

class CallRecorderTest : public ::testing::Test {
 protected:
  // The row with spans, which is the only one.
  TraceTrack RecordedRow() {
    TraceTrack found;
    for (const TraceTrack& track :
         tracer_.End(absl::InfinitePast(), absl::InfiniteFuture()).tracks) {
      if (track.spans.empty()) continue;
      EXPECT_EQ(found.name, "");
      found = track;
    }
    return found;
  }
  static std::vector<std::pair<std::string, int64_t>> Args(
      const TraceSpan& span) {
    return {span.args.begin(), span.args.end()};
  }
  template <typename Request>
  static Request Parse(const std::string& text) {
    Request request;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request));
    return request;
  }
  Reply<proto::PushResponse> Caller() {
    return [this](const absl::StatusOr<proto::PushResponse>& response) {
      answers_.push_back(response.status());
    };
  }

  FakeClock clock_;
  Tracer tracer_{{.on_demand = true, .clock = &clock_}};
  CallRecorder recorder_{&tracer_};
  std::vector<absl::Status> answers_;
};

TEST_F(CallRecorderTest, ACallLastsUntilItsAnswer) {
  tracer_.Begin();
  auto reply = recorder_.Record(
      Parse<proto::PushRequest>("sender { task { job: 'worker' index: 3 } } "
                                "sequence: 9 step: 8"),
      Caller());
  clock_.now += absl::Milliseconds(5);
  reply(proto::PushResponse());
  EXPECT_THAT(answers_, ElementsAre(absl::OkStatus()));
  const TraceTrack row = RecordedRow();
  EXPECT_EQ(row.name, "pushes");
  ASSERT_EQ(row.spans.size(), 1u);
  const TraceSpan& span = row.spans[0];
  EXPECT_EQ(span.name, "Push");
  EXPECT_EQ(span.kind, TraceKind::kRpc);
  EXPECT_EQ(span.end - span.begin, absl::Milliseconds(5));
  EXPECT_THAT(Args(span), ElementsAre(Pair("step", 8), Pair("sequence", 9),
                                      Pair("worker", 3)));
}

TEST_F(CallRecorderTest, FailuresAndChiefsAndSeats) {
  tracer_.Begin();
  Reply<proto::ContributeResponse> caller = [](const auto&) {};
  auto reply = recorder_.Record(
      Parse<proto::ContributeRequest>(
          "sender { task { job: 'chief' } } step: 8 seat: 1 sequence: 9"),
      std::move(caller));
  reply(absl::AbortedError("it is over"));
  const TraceTrack row = RecordedRow();
  EXPECT_EQ(row.name, "contributions");
  EXPECT_EQ(row.spans.at(0).error, "it is over");
  EXPECT_THAT(Args(row.spans[0]),
              ElementsAre(Pair("step", 8), Pair("seat", 1), Pair("sequence", 9),
                          Pair("chief", 0)));
}

TEST_F(CallRecorderTest, NothingIsRecordedWhileNobodyWantsIt) {
  auto reply = recorder_.Record(proto::PushRequest(), Caller());
  tracer_.Begin();
  reply(proto::PushResponse());
  // A call that is not part of a step.
  Reply<proto::GetStatusResponse> other = [](const auto&) {};
  recorder_.Record(proto::GetStatusRequest(),
                   std::move(other))(proto::GetStatusResponse());
  EXPECT_THAT(RecordedRow().spans, IsEmpty());
  EXPECT_EQ(answers_.size(), 1u);
  // Without a recorder.
  Recorded(nullptr, proto::PushRequest(), Caller())(proto::PushResponse());
  EXPECT_EQ(answers_.size(), 2u);
}

}  // namespace
}  // namespace holdfast

// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/trace_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;

class FakeClock : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::FromUnixSeconds(100);
};

constexpr absl::Duration kMs = absl::Milliseconds(1);

// The other clock is 7 s ahead; each test sets the times of the ways there and
// back.
class CompareClocksTest : public ::testing::Test {
 protected:
  struct Way {
    absl::Duration there;
    absl::Duration back;
    bool fails = false;
  };
  absl::StatusOr<ClockReading> Compare(const std::vector<Way>& ways) {
    size_t next = 0;
    return CompareClocks(clock_, static_cast<int>(ways.size()),
                         [&]() -> absl::StatusOr<absl::Time> {
                           const Way& way = ways[next++];
                           clock_.now += way.there;
                           const absl::Time other =
                               clock_.now + absl::Seconds(7);
                           clock_.now += way.back;
                           if (way.fails) return absl::UnavailableError("gone");
                           return other;
                         });
  }

  FakeClock clock_;
};

TEST_F(CompareClocksTest, BelievesTheShortestWay) {
  // The round trip takes 2 ms, the way there 0.4: the middle is off by 0.6.
  const auto reading = Compare({{10 * kMs, 2 * kMs},
                                {0.4 * kMs, 1.6 * kMs},
                                {3 * kMs, 0 * kMs},
                                {0 * kMs, 0 * kMs, /*fails=*/true}});
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_EQ(reading->error, 1 * kMs);
  EXPECT_EQ(reading->offset, absl::Seconds(7) - 0.6 * kMs);
}

TEST_F(CompareClocksTest, IsNeverFurtherOffThanItSays) {
  for (int there = 0; there <= 4; ++there) {
    const auto reading = Compare({{there * kMs, (4 - there) * kMs}});
    EXPECT_EQ(reading->error, 2 * kMs);
    EXPECT_THAT(reading->offset - absl::Seconds(7),
                AllOf(Ge(-2 * kMs), Le(2 * kMs)));
  }
}

TEST_F(CompareClocksTest, NobodyAnswers) {
  EXPECT_EQ(Compare({{kMs, kMs, true}, {kMs, kMs, true}}).status(),
            absl::UnavailableError("gone"));
}

TEST(SpanTest, HoldsBoth) {
  // The intervals are 8 to 12 and 11 to 19.
  const ClockReading span = Span({10 * kMs, 2 * kMs}, {15 * kMs, 4 * kMs});
  EXPECT_EQ(span.offset, 13.5 * kMs);
  EXPECT_EQ(span.error, 5.5 * kMs);
}

// A coordinator whose clock is 1 s ahead.
class TraceReporterTest : public ::testing::Test {
 protected:
  TraceReporterTest() {
    track_ = tracer_.AddTrack("training", Tracer::TrackKind::kNested);
    TraceReporter::Options options;
    options.tracer = &tracer_;
    options.clock = &clock_;
    options.sender = [] {
      proto::Sender sender;
      sender.set_incarnation(3);
      return sender;
    };
    options.call = [this](const proto::ReportTraceRequest& request,
                          absl::Time deadline,
                          proto::ReportTraceResponse* response) {
      return Answer(request, response);
    };
    options.linger = absl::ZeroDuration();
    reporter_ = std::make_unique<TraceReporter>(options);
  }

  absl::Status Answer(const proto::ReportTraceRequest& request,
                      proto::ReportTraceResponse* response) {
    absl::MutexLock lock(&mutex_);
    EXPECT_EQ(request.sender().incarnation(), 3u);
    if (!request.has_part()) {
      ++questions_;
      response->set_time_ns(ToTraceNanos(clock_.Now() + absl::Seconds(1)));
      return absl::OkStatus();
    }
    if (failures_ > 0) {
      --failures_;
      return failure_;
    }
    parts_.push_back(request);
    return absl::OkStatus();
  }

  static proto::RenewLeaseResponse Order(uint64_t trace, bool over = false) {
    proto::RenewLeaseResponse response;
    if (trace == 0) return response;
    response.mutable_trace()->set_trace(trace);
    response.mutable_trace()->set_over(over);
    // By the clock here: 50 s to 200 s.
    response.mutable_trace()->set_begin_ns(51'000'000'000);
    response.mutable_trace()->set_end_ns(201'000'000'000);
    return response;
  }
  void Record(const std::string& name, int64_t seconds) {
    const absl::Time begin = absl::FromUnixSeconds(seconds);
    tracer_.Add(track_, {TraceKind::kWait, name, begin, begin + kMs, {}, ""});
  }
  void AwaitQuestions(int times) {
    const auto asked = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return questions_ >= times;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&asked));
  }
  // Everything that was sent, once it is complete.
  std::vector<std::string> Sent() {
    reporter_->AwaitSent(SteadyNow() + absl::Seconds(60), /*ending=*/false);
    absl::MutexLock lock(&mutex_);
    std::vector<std::string> sent;
    for (const proto::ReportTraceRequest& request : parts_) {
      for (const proto::TraceSpan& span : request.part().spans()) {
        sent.push_back(absl::StrCat(request.trace(), ": ", span.name()));
      }
    }
    return sent;
  }

  FakeClock clock_;
  Tracer tracer_{{.max_spans = 5000, .on_demand = true, .clock = &clock_}};
  Tracer::Track track_;
  absl::Mutex mutex_;
  int questions_ ABSL_GUARDED_BY(mutex_) = 0;
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<proto::ReportTraceRequest> parts_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TraceReporter> reporter_;
};

TEST_F(TraceReporterTest, RecordsAndSends) {
  EXPECT_FALSE(reporter_->Hear(Order(0)));
  EXPECT_TRUE(reporter_->Hear(Order(7)));
  EXPECT_FALSE(reporter_->Hear(Order(7)));
  EXPECT_EQ(reporter_->recording(), 7u);
  AwaitQuestions(10);
  Record("too early", 49);
  Record("a", 50);
  Record("b", 200);
  Record("too late", 201);
  EXPECT_TRUE(reporter_->Hear(Order(7, /*over=*/true)));
  EXPECT_EQ(reporter_->recording(), 0u);
  EXPECT_FALSE(reporter_->Hear(Order(7, /*over=*/true)));
  EXPECT_THAT(Sent(), ElementsAre("7: a", "7: b"));
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(questions_, 20) << "before and after";
  EXPECT_EQ(parts_[0].part().clock_offset_ns(), 1'000'000'000);
  EXPECT_EQ(parts_[0].part().clock_error_ns(), 0u);
}

TEST_F(TraceReporterTest, SendsInPiecesAndAgainWhatWasLost) {
  reporter_->Hear(Order(7));
  AwaitQuestions(10);
  for (int i = 0; i < 2500; ++i) Record("s", 60);
  {
    absl::MutexLock lock(&mutex_);
    failures_ = 2;
    failure_ = absl::UnavailableError("try again");
  }
  reporter_->Hear(Order(7, /*over=*/true));
  EXPECT_EQ(Sent().size(), 2500u);
  absl::MutexLock lock(&mutex_);
  ASSERT_EQ(parts_.size(), 3u);
  EXPECT_TRUE(parts_[2].part().last());
}

TEST_F(TraceReporterTest, GivesUpWhatIsRefused) {
  reporter_->Hear(Order(7));
  AwaitQuestions(10);
  Record("a", 60);
  {
    absl::MutexLock lock(&mutex_);
    failures_ = 1;
    failure_ = absl::NotFoundError("the trace is not here");
  }
  reporter_->Hear(Order(7, /*over=*/true));
  EXPECT_THAT(Sent(), IsEmpty());
  // The next trace is sent like the first.
  reporter_->Hear(Order(8));
  AwaitQuestions(30);
  Record("b", 60);
  reporter_->Hear(Order(8, /*over=*/true));
  EXPECT_THAT(Sent(), ElementsAre("8: b"));
}

TEST_F(TraceReporterTest, OneThatNobodyWantsAnyMoreIsForgotten) {
  reporter_->Hear(Order(7));
  AwaitQuestions(10);
  Record("a", 60);
  EXPECT_TRUE(reporter_->Hear(Order(0)));
  EXPECT_FALSE(tracer_.recording());
  EXPECT_THAT(Sent(), IsEmpty());
  // A trace is over for which the task has never recorded.
  EXPECT_FALSE(reporter_->Hear(Order(9, /*over=*/true)));
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(TraceReporterTest, OneMayFollowAnother) {
  reporter_->Hear(Order(7));
  AwaitQuestions(10);
  Record("a", 60);
  EXPECT_TRUE(reporter_->Hear(Order(8)));
  EXPECT_EQ(reporter_->recording(), 8u);
  Record("b", 60);
  reporter_->Hear(Order(8, /*over=*/true));
  EXPECT_THAT(Sent(), ElementsAre("8: b"));
}

}  // namespace
}  // namespace holdfast

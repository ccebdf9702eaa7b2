// SPDX-License-Identifier: Apache-2.0
#include "common/process/json_log.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/process/log_event.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

using ::testing::EndsWith;
using ::testing::SizeIs;
using ::testing::StartsWith;

google::protobuf::Struct Parse(const std::string& json) {
  google::protobuf::Struct fields;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json, &fields).ok())
      << json;
  return fields;
}

std::string StringIn(const google::protobuf::Struct& fields,
                     const std::string& name) {
  const auto found = fields.fields().find(name);
  return found == fields.fields().end() ? "none" : found->second.string_value();
}

LogLine Line() {
  LogLine line;
  // 2024-05-17T10:00:00Z.
  line.time = absl::FromUnixSeconds(1715940000) + absl::Microseconds(42);
  line.severity = "INFO";
  line.file = "server.cc";
  line.line = 17;
  line.thread = 4711;
  line.message = "says \"hello\"";
  return line;
}

TEST(JsonLogLineTest, HasWhatIsKnown) {
  LogLine line = Line();
  EXPECT_EQ(FormatJsonLogLine(line),
            R"({"time":"2024-05-17T10:00:00.000042Z","severity":"INFO",)"
            R"("file":"server.cc:17","thread":4711,)"
            R"("message":"says \"hello\""})"
            "\n");
  line.task = "/job:ps/task:1";
  line.generation = 2;
  line.step = 1230;
  EXPECT_EQ(FormatJsonLogLine(line),
            R"({"time":"2024-05-17T10:00:00.000042Z","severity":"INFO",)"
            R"("task":"/job:ps/task:1","generation":2,"step":1230,)"
            R"("file":"server.cc:17","thread":4711,)"
            R"("message":"says \"hello\""})"
            "\n");
}

TEST(JsonLogLineTest, OfAnEventHasItsGenerationAndStep) {
  proto::Event event;
  event.set_kind(proto::Event::CHECKPOINT_FAILED);
  event.set_generation(3);
  event.set_step(1000);
  LogLine line = Line();
  line.generation = 2;
  line.step = 1230;
  line.event = &event;
  EXPECT_THAT(FormatJsonLogLine(line),
              ::testing::HasSubstr(R"("generation":3,"step":1000,)"));
  EXPECT_THAT(FormatJsonLogLine(line),
              EndsWith(R"(,"event":"checkpoint_failed"})"
                       "\n"));
  event.mutable_task()->set_job("worker");
  event.mutable_task()->set_index(1);
  EXPECT_THAT(
      FormatJsonLogLine(line),
      EndsWith(R"(,"event":"checkpoint_failed","about":"/job:worker/task:1"})"
               "\n"));
}

TEST(JsonLogTest, ReplacesTheTextOnStandardError) {
  google::InitGoogleLogging("json_log_test");
  StartJsonLog();
  SetLogTask({"worker", 3});
  SetLogGeneration(1);
  SetLogStep(20);
  proto::Event event;
  event.set_kind(proto::Event::LOST);
  event.set_text("/job:worker/task:1 is lost");
  event.set_generation(1);
  event.set_step(19);
  event.mutable_task()->set_job("worker");
  event.mutable_task()->set_index(1);

  ::testing::internal::CaptureStderr();
  LOG(INFO) << "two\nlines";
  LOG(ERROR) << "bytes: \xff";
  LogEvent(event);
  LOG(INFO) << "after the event";
  const std::vector<std::string> lines = absl::StrSplit(
      ::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(4));

  const auto first = Parse(lines[0]);
  EXPECT_EQ(StringIn(first, "message"), "two\nlines");
  EXPECT_EQ(StringIn(first, "severity"), "INFO");
  EXPECT_EQ(StringIn(first, "task"), "/job:worker/task:3");
  EXPECT_EQ(first.fields().at("step").number_value(), 20);
  EXPECT_EQ(StringIn(first, "event"), "none");
  EXPECT_THAT(StringIn(first, "file"), StartsWith("json_log_test.cc:"));
  EXPECT_EQ(StringIn(Parse(lines[1]), "severity"), "ERROR");

  const auto lost = Parse(lines[2]);
  EXPECT_EQ(StringIn(lost, "event"), "lost");
  EXPECT_EQ(StringIn(lost, "about"), "/job:worker/task:1");
  EXPECT_EQ(StringIn(lost, "severity"), "WARNING");
  EXPECT_EQ(StringIn(lost, "message"), event.text());
  EXPECT_EQ(lost.fields().at("step").number_value(), 19);
  EXPECT_THAT(StringIn(lost, "file"), StartsWith("json_log_test.cc:"));
  EXPECT_EQ(StringIn(Parse(lines[3]), "event"), "none");
}

}  // namespace
}  // namespace holdfast

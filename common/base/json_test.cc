// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <limits>

#include "gmock/gmock.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace holdfast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ToJsonTest, HasEveryFieldByItsOwnName) {
  proto::GetStatusResponse status;
  status.set_global_step(7);
  status.mutable_state()->set_phase(proto::TRAINING);
  status.mutable_evaluation()->set_loss(
      std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(
      ToJson(status),
      AllOf(HasSubstr(R"("global_step":"7")"),
            HasSubstr(R"("phase":"TRAINING")"), HasSubstr(R"("loss":"NaN")"),
            HasSubstr(R"("durable_step":"0")"),
            HasSubstr(R"("steps_per_second":0)"),
            HasSubstr(R"("waiting_for":"")"), HasSubstr(R"("tasks":[])"),
            Not(HasSubstr("\n"))));
}

TEST(ToJsonTest, LeavesOutWhatIsOptionalAndNotSet) {
  proto::GetStatusResponse status;
  status.add_tasks();
  EXPECT_THAT(ToJson(status),
              AllOf(Not(HasSubstr("train_loss")), Not(HasSubstr("evaluation")),
                    Not(HasSubstr("silent_seconds"))));
  status.set_train_loss(0);
  EXPECT_THAT(ToJson(status), HasSubstr(R"("train_loss":0)"));
}

TEST(JsonStringTest, IsReadBackAsItWas) {
  for (const std::string text :
       {"", "plain", "\"quoted\" and \\", "lines\nand\ttabs\r", "\x01\x7f",
        "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa2",
        "\xc2\x9b \xe2\x80\xae \xf3\xa0\x81\x81"}) {
    google::protobuf::Value value;
    ASSERT_TRUE(
        google::protobuf::util::JsonStringToMessage(JsonString(text), &value)
            .ok())
        << JsonString(text);
    EXPECT_EQ(value.string_value(), text);
    EXPECT_THAT(JsonString(text), Not(HasSubstr("\n")));
  }
}

TEST(JsonStringTest, EscapesWhatIsNotPrintable) {
  EXPECT_EQ(JsonString("\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\x81"),
            R"("\u009b\u202e\udb40\udc41")");
}

TEST(JsonStringTest, ReplacesWhatIsNotUtf8) {
  // A lone continuation byte, a lead byte without one, an overlong '/', a
  // surrogate, and a code point above U+10FFFF.
  EXPECT_EQ(JsonString("a\x80z"), R"("a\ufffdz")");
  EXPECT_EQ(JsonString("a\xc3"), R"("a\ufffd")");
  EXPECT_EQ(JsonString("\xc0\xaf"), R"("\ufffd\ufffd")");
  EXPECT_EQ(JsonString("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");
  EXPECT_EQ(JsonString("\xf4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
}

}  // namespace
}  // namespace holdfast

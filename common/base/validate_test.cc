// SPDX-License-Identifier: Apache-2.0
#include "common/base/validate.h"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"
#include "proto/shard.pb.h"
#include "proto/trace.pb.h"
#include "proto/training.pb.h"

namespace holdfast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(ValidateMessageTest, NamesTypeAndPaths) {
  proto::PushRequest request;
  EXPECT_EQ(
      Message(ValidateMessage(request)),
      "PushRequest: sender: must be set; sequence: must be at least 1, is "
      "0 or not set; num_parts: must be at least 1, is 0 or not set");
  request.mutable_sender()->mutable_task()->set_job("worker");
  request.set_sequence(1);
  request.set_num_parts(1);
  EXPECT_TRUE(ValidateMessage(request).ok());
  request.add_tensors()->set_variable("v");
  request.add_tensors()->set_dtype(static_cast<proto::DataType>(99));
  EXPECT_EQ(Message(ValidateMessage(request)),
            "PushRequest: tensors[1].variable: must be set; tensors[1].dtype: "
            "must be DATA_TYPE_UNSPECIFIED or FLOAT32, is 99");
}

TEST(ValidateMessageTest, ElementsOfRepeatedNumbers) {
  proto::Variable variable;
  variable.set_name("v");
  variable.set_dtype(proto::FLOAT32);
  variable.mutable_initializer()->mutable_zeros();
  variable.add_shape(3);
  variable.add_shape(-1);
  EXPECT_EQ(Message(ValidateMessage(variable)),
            "Variable: shape[1]: must be at least 0, is -1");
  variable.clear_shape();
  variable.clear_dtype();
  EXPECT_EQ(Message(ValidateMessage(variable)), "Variable: dtype: must be set");
}

TEST(ValidateMessageTest, Sizes) {
  proto::TracePart part;
  proto::TraceSpan& span = *part.add_spans();
  span.set_name(std::string(64, 'n'));
  for (int i = 0; i < 8; ++i) span.add_args()->set_name("a");
  EXPECT_TRUE(ValidateMessage(part).ok()) << ValidateMessage(part);
  span.add_args();
  span.mutable_name()->push_back('n');
  EXPECT_EQ(Message(ValidateMessage(part)),
            absl::StrCat("TracePart: spans[0].name: must have at most 64 "
                         "bytes, has 65, is \"",
                         std::string(59, 'n'),
                         "...; spans[0].args: must have at most 8 values, has "
                         "9"));
}

TEST(ValidateMessageTest, NotFinite) {
  proto::Initializer initializer;
  initializer.mutable_constant()->set_value(
      std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(Message(ValidateMessage(initializer)),
            "Initializer: constant.value: must be finite, is nan");
}

TEST(ValidateMessageTest, NotFiniteWhereItMayBe) {
  proto::EvaluationResult result;
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity(), 1.0}) {
    result.set_loss(loss);
    EXPECT_EQ(ValidateMessage(result), absl::OkStatus()) << loss;
  }
  result.set_accuracy(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(Message(ValidateMessage(result)),
            "EvaluationResult: accuracy: must be finite, is -inf");
}

TEST(ValidateMessageTest, RulesBetweenFields) {
  proto::Initializer::Uniform uniform;
  EXPECT_EQ(Message(ValidateMessage(uniform)),
            "Uniform: high: must be above low, which is 0, is 0");
}

TEST(ValidateMessageTest, ADeclarationHasVariablesOrTables) {
  constexpr char kNeither[] =
      "variables: must have at least one, unless there are tables";
  proto::Declaration declaration;
  EXPECT_THAT(Message(ValidateMessage(declaration)), HasSubstr(kNeither));
  declaration.add_tables();
  EXPECT_THAT(Message(ValidateMessage(declaration)),
              Not(HasSubstr("variables")));
  declaration.clear_tables();
  declaration.add_variables();
  EXPECT_THAT(Message(ValidateMessage(declaration)), Not(HasSubstr(kNeither)));
}

// The error for an optimizer of learning rate 1, with this text added.
std::string OptimizerFaults(const std::string& text) {
  proto::Optimizer optimizer;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "learning_rate: 1 " + text, &optimizer))
      << text;
  return Message(ValidateMessage(optimizer));
}

TEST(ValidateMessageTest, PiecesRise) {
  const auto faults = [](const std::vector<uint64_t>& steps) {
    std::string pieces;
    for (const uint64_t step : steps) {
      absl::StrAppend(&pieces, "pieces { from_step: ", step, " } ");
    }
    return OptimizerFaults("sgd {} schedule { piecewise { " + pieces + "} }");
  };
  EXPECT_EQ(faults({0}), "");
  EXPECT_EQ(faults({7}), "");
  EXPECT_EQ(faults({0, 1, 20, 1000}), "");
  EXPECT_EQ(faults({3, 3}),
            "Optimizer: schedule.piecewise.pieces[1].from_step: must be above "
            "that of the previous piece, which is 3, is 3");
  EXPECT_EQ(faults({1, 5, 4}),
            "Optimizer: schedule.piecewise.pieces[2].from_step: must be above "
            "that of the previous piece, which is 5, is 4");
  EXPECT_EQ(faults({0, 0, 5, 2}),
            "Optimizer: schedule.piecewise.pieces[1].from_step: must be above "
            "that of the previous piece, which is 0, is 0; "
            "schedule.piecewise.pieces[3].from_step: must be above that of the "
            "previous piece, which is 5, is 2");
  proto::LearningRateSchedule::Piecewise many;
  for (int i = 0; i < 1000; ++i) many.add_pieces();
  EXPECT_THAT(FindBrokenRules(many), SizeIs(kMaxBrokenRulesTold + 1));
}

TEST(ValidateMessageTest, WeightDecayIsNotToldTwice) {
  EXPECT_EQ(OptimizerFaults("adam {} weight_decay: 0.1"), "");
  EXPECT_EQ(OptimizerFaults("adamw { weight_decay: 0.1 }"), "");
  EXPECT_EQ(OptimizerFaults("adamw {} weight_decay: 0"), "");
  EXPECT_EQ(OptimizerFaults("adamw {} weight_decay: 0.125"),
            "Optimizer: weight_decay: must be 0 with adamw, which has its own, "
            "is 0.125");
}

TEST(ValidateMessageTest, LossScale) {
  struct {
    const char* scale;
    const char* error;
  } tests[] = {
      {"", ""},
      {"initial: 1 growth_interval: 1", ""},
      {"initial: 16777216", ""},
      {"initial: 48", "LossScale: initial: must be a power of two, is 48"},
      {"initial: 0.5", "LossScale: initial: must be at least 1, is 0.5"},
      {"growth_interval: 0",
       "LossScale: growth_interval: must be at least 1, is 0"},
  };
  for (const auto& test : tests) {
    SCOPED_TRACE(test.scale);
    proto::LossScale scale;
    ASSERT_TRUE(
        google::protobuf::TextFormat::ParseFromString(test.scale, &scale));
    EXPECT_EQ(ValidateMessage(scale).message(), test.error);
  }
}

TEST(ValidateMessageTest, Compression) {
  const struct {
    std::string text;
    std::string message;
  } kCases[] = {
      {"", ""},
      {"push: TOP_K top_k: 0.5 pull: BFLOAT16", ""},
      {"push: INT8 pull: FLOAT16", ""},
      {"pull: INT8",
       "Compression: pull: must be EXACT, FLOAT16 or BFLOAT16, is INT8"},
      {"pull: TOP_K",
       "Compression: pull: must be EXACT, FLOAT16 or BFLOAT16, is TOP_K"},
      {"push: INT8 top_k: 0.1", "Compression: top_k: needs push: TOP_K"},
      {"push: TOP_K top_k: 0", "Compression: top_k: must be above 0, is 0"},
      {"push: TOP_K top_k: 0.6",
       "Compression: top_k: must be at most 0.5, is 0.6"},
      {"push: TOP_K top_k: nan", "Compression: top_k: must be finite, is nan"},
  };
  for (const auto& test : kCases) {
    proto::Compression compression;
    ASSERT_TRUE(
        google::protobuf::TextFormat::ParseFromString(test.text, &compression));
    EXPECT_EQ(Message(ValidateMessage(compression)), test.message) << test.text;
  }
  proto::Compression compression;
  compression.set_push(static_cast<proto::Encoding>(5));
  EXPECT_EQ(
      Message(ValidateMessage(compression)),
      "Compression: push: must be EXACT or FLOAT16 or BFLOAT16 or INT8 or "
      "TOP_K, is 5");
}

TEST(ValidateMessageTest, AdagradDividesByMoreThan0) {
  EXPECT_EQ(OptimizerFaults("adagrad {}"), "");
  EXPECT_EQ(OptimizerFaults("adagrad { initial_accumulator_value: 0 }"), "");
  EXPECT_EQ(OptimizerFaults("adagrad { epsilon: 0 }"), "");
  EXPECT_EQ(
      OptimizerFaults("adagrad { initial_accumulator_value: 0 epsilon: 0 }"),
      "Optimizer: adagrad.epsilon: must be above 0 if "
      "initial_accumulator_value is 0, is 0");
}

TEST(ValidateMessageTest, LongAndStrangeNamesAreCutAndEscaped) {
  proto::Variable variable;
  variable.set_name(std::string(1000, '\n'));
  const std::string message = Message(ValidateMessage(variable));
  EXPECT_THAT(message, HasSubstr("\\n\\n"));
  EXPECT_LT(message.size(), 300);
}

TEST(ValidateMessageTest, AtMostTwenty) {
  proto::PushRequest request;
  for (int i = 0; i < 1000; ++i) request.add_tensors();
  const std::vector<std::string> parts =
      absl::StrSplit(Message(ValidateMessage(request)), "; ");
  EXPECT_THAT(parts, SizeIs(21));
  EXPECT_EQ(parts.back(), "and more");
}

TEST(ValidateMessageTest, FactsAreShort) {
  std::map<std::string, std::string> agreed;
  const auto fault = [&agreed] {
    proto::Declaration declaration;
    declaration.mutable_agreed()->insert(agreed.begin(), agreed.end());
    for (const BrokenRule& broken : FindBrokenRules(declaration)) {
      if (broken.path == "agreed") return broken.what;
    }
    return std::string();
  };
  agreed[std::string(256, 'n')] = std::string(256, 'v');
  EXPECT_EQ(fault(), "");
  agreed["\x1b"] = std::string(257, 'v');
  EXPECT_EQ(fault(),
            "names and values must have at most 256 bytes, \"\\x1b\" has 1 and "
            "its value 257");
  agreed.clear();
  agreed[""] = "1";
  EXPECT_EQ(fault(), "a name is empty");
  agreed.clear();
  for (int i = 0; i < 10'001; ++i) agreed[std::to_string(i)] = "";
  EXPECT_EQ(fault(), "must have at most 10000 values, has 10001");
}

}  // namespace
}  // namespace holdfast

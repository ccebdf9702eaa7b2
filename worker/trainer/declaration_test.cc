#include "worker/trainer/declaration.h"

#include <vector>

#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace holdfast {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

// 2 passes over 1000 examples, 300 a step: 6.67 steps, rounded up.
TEST(MakeDeclarationTest, HoldsWhatTheJobSays) {
  const auto job = Parse<proto::Job>(
      R"pb(name: "example"
           batch_size: 100
           epochs: 2
           optimizer {
             learning_rate: 0.5
             sgd {}
           }
           placement: GREEDY_BY_BYTES
           seed: 9
           timeouts { step_seconds: 60 })pb");
  const std::vector<proto::Variable> variables = {
      Parse<proto::Variable>(
          "name: \"w\" shape: [2, 3] dtype: FLOAT32 initializer { he {} }"),
      Parse<proto::Variable>(
          "name: \"b\" shape: 3 dtype: FLOAT32 initializer { zeros {} }")};
  const auto expected = Parse<proto::Declaration>(
      R"pb(variables {
             name: "w"
             shape: [ 2, 3 ]
             dtype: FLOAT32
             initializer { he {} }
           }
           variables {
             name: "b"
             shape: 3
             dtype: FLOAT32
             initializer { zeros {} }
           }
           optimizers {
             learning_rate: 0.5
             sgd {}
           }
           consistency {
             synchronous { replicas_to_aggregate: 2 total_num_replicas: 3 }
           }
           placement: GREEDY_BY_BYTES
           seed: 9
           total_steps: 7
           timeouts { step_seconds: 60 })pb");
  const proto::Declaration declaration = MakeDeclaration(
      job, variables, Replicas{.to_aggregate = 2, .total = 3}, 1000);
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equals(declaration, expected))
      << declaration.DebugString();
}

}  // namespace
}  // namespace holdfast

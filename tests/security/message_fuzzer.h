// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_TESTS_SECURITY_MESSAGE_FUZZER_H_
#define HOLDFAST_TESTS_SECURITY_MESSAGE_FUZZER_H_

#include <cstdint>
#include <random>
#include <string>

#include "google/protobuf/message.h"

namespace holdfast {

// Makes random requests by reflection over their messages, and bytes that do
// not parse as any. The same seed gives the same sequence.
//
// Thread-compatible.
class MessageFuzzer {
 public:
  explicit MessageFuzzer(uint32_t seed) : random_(seed) {}

  // Sets each field with some probability: to extreme values, and to names that
  // a job has or lacks; and repeats fields up to some hundred times.
  void Fill(google::protobuf::Message* message) { Fill(message, 0); }
  // Changes some fields at any depth.
  void Mutate(google::protobuf::Message* message);
  // Flips, cuts, repeats and inserts bytes.
  std::string Damage(std::string bytes);
  std::string Garbage();

  // 0 to `below` - 1.
  uint32_t Number(uint32_t below) { return random_() % below; }

 private:
  void Fill(google::protobuf::Message* message, int depth);
  void SetField(google::protobuf::Message* message,
                const google::protobuf::FieldDescriptor* field, int depth);
  void SetOne(google::protobuf::Message* message,
              const google::protobuf::FieldDescriptor* field, int depth);
  uint64_t Integer();
  double Real();
  std::string Text();

  std::mt19937 random_;
};

}  // namespace holdfast

#endif  // HOLDFAST_TESTS_SECURITY_MESSAGE_FUZZER_H_

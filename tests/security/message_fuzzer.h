#ifndef HOLDFAST_TESTS_SECURITY_MESSAGE_FUZZER_H_
#define HOLDFAST_TESTS_SECURITY_MESSAGE_FUZZER_H_

#include <cstdint>
#include <random>
#include <string>

#include "google/protobuf/message.h"

namespace holdfast {

// Makes requests that nobody meant, by reflection over their messages, and
// bytes that are none. The same for the same seed.
//
// Thread-compatible.
class MessageFuzzer {
 public:
  explicit MessageFuzzer(uint32_t seed) : random_(seed) {}

  // Sets each field with a probability: to values at the edge of what can be,
  // to names that a job has and that it has not; and repeats it up to some
  // hundred times.
  void Fill(google::protobuf::Message* message) { Fill(message, 0); }
  // Changes some fields, wherever they are.
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

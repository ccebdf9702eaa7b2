// SPDX-License-Identifier: Apache-2.0
#include "tests/security/message_fuzzer.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

namespace holdfast {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 5;

constexpr uint64_t kIntegers[] = {0,
                                  1,
                                  2,
                                  3,
                                  7,
                                  64,
                                  4095,
                                  4096,
                                  1 << 20,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x100000000,
                                  uint64_t{1} << 52,
                                  uint64_t{1} << 62,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  0xffffffffffffffff};
const double kReals[] = {0,
                         -0.0,
                         1,
                         0.5,
                         -1,
                         1e-45,
                         1e30,
                         1e300,
                         std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity(),
                         std::nan("")};
const char* const kTexts[] = {
    "",      "w",      "b",         "frozen", "tail",       "ps",   "worker",
    "chief", "client", "evaluator", "test",   "a/b",        "../x", "\xc3\xa4",
    "%s%n",  "j",      "d",         "nobody", "127.0.0.1:1"};

// Fields that say how long a call may be parked are left out, because a test
// would have to wait.
bool IsWait(const FieldDescriptor& field) { return field.name() == "wait_ms"; }

}  // namespace

uint64_t MessageFuzzer::Integer() {
  switch (Number(4)) {
    case 0:
      return random_() | uint64_t{random_()} << 32;
    case 1:
      return Number(10);
    default:
      return kIntegers[Number(std::size(kIntegers))];
  }
}

double MessageFuzzer::Real() {
  if (Number(3) == 0) return static_cast<int32_t>(random_()) / 1e6;
  return kReals[Number(std::size(kReals))];
}

std::string MessageFuzzer::Text() {
  switch (Number(10)) {
    case 0:
      return std::string(Number(70000), 'x');
    case 1:
      return Garbage();
    default:
      return kTexts[Number(std::size(kTexts))];
  }
}

std::string MessageFuzzer::Garbage() {
  std::string bytes(Number(Number(20) == 0 ? 100000 : 200), '\0');
  for (char& c : bytes) c = static_cast<char>(random_());
  return bytes;
}

void MessageFuzzer::SetOne(Message* message, const FieldDescriptor* field,
                           int depth) {
  const Reflection& reflection = *message->GetReflection();
  const bool more = field->is_repeated();
#define HOLDFAST_SET(Type, value)                      \
  more ? reflection.Add##Type(message, field, (value)) \
       : reflection.Set##Type(message, field, (value))
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      HOLDFAST_SET(Int32, static_cast<int32_t>(Integer()));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      HOLDFAST_SET(Int64, static_cast<int64_t>(Integer()));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      HOLDFAST_SET(UInt32, static_cast<uint32_t>(Integer()));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      HOLDFAST_SET(UInt64, IsWait(*field) ? Number(3) : Integer());
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      HOLDFAST_SET(Double, Real());
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      HOLDFAST_SET(Float, static_cast<float>(Real()));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      HOLDFAST_SET(Bool, Number(2) == 1);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      HOLDFAST_SET(EnumValue,
                   static_cast<int>(Number(5) == 0 ? Integer() : Number(8)));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      HOLDFAST_SET(String, field->type() == FieldDescriptor::TYPE_BYTES
                               ? Garbage()
                               : Text());
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      Fill(more ? reflection.AddMessage(message, field)
                : reflection.MutableMessage(message, field),
           depth + 1);
      break;
  }
#undef HOLDFAST_SET
}

void MessageFuzzer::SetField(Message* message, const FieldDescriptor* field,
                             int depth) {
  uint32_t times = 1;
  if (field->is_repeated()) {
    times = Number(4);
    if (depth < 2 && Number(40) == 0) times = Number(500);
  }
  for (uint32_t i = 0; i < times; ++i) SetOne(message, field, depth);
}

void MessageFuzzer::Fill(Message* message, int depth) {
  if (depth > kMaxDepth) return;
  const auto& descriptor = *message->GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    if (Number(4) != 0) SetField(message, descriptor.field(i), depth);
  }
}

void MessageFuzzer::Mutate(Message* message) {
  Message* at = message;
  // Descends some levels.
  for (int depth = 0; depth < kMaxDepth && Number(3) != 0; ++depth) {
    std::vector<const FieldDescriptor*> set;
    at->GetReflection()->ListFields(*at, &set);
    std::vector<Message*> children;
    for (const FieldDescriptor* field : set) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      const Reflection& reflection = *at->GetReflection();
      if (!field->is_repeated()) {
        children.push_back(reflection.MutableMessage(at, field));
      } else {
        const int size = reflection.FieldSize(*at, field);
        children.push_back(
            reflection.MutableRepeatedMessage(at, field, Number(size)));
      }
    }
    if (children.empty()) break;
    at = children[Number(children.size())];
  }
  const auto& descriptor = *at->GetDescriptor();
  if (descriptor.field_count() == 0) return;
  const FieldDescriptor* field =
      descriptor.field(Number(descriptor.field_count()));
  if (Number(4) == 0) at->GetReflection()->ClearField(at, field);
  SetField(at, field, 1);
}

std::string MessageFuzzer::Damage(std::string bytes) {
  for (uint32_t times = 1 + Number(4); times > 0; --times) {
    const size_t at = bytes.empty() ? 0 : Number(bytes.size());
    switch (Number(5)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= 1 << Number(8);
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, Number(50)));
        break;
      case 3:  // a length or number that is far too large
        bytes.insert(at, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
        break;
      default:
        bytes.insert(at, Garbage().substr(0, 20));
        break;
    }
  }
  return bytes;
}

}  // namespace holdfast

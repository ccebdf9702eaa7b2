// SPDX-License-Identifier: Apache-2.0
#include "common/base/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "proto/cluster.pb.h"
#include "proto/rules.pb.h"
#include "proto/training.pb.h"

namespace holdfast {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::DynamicCastToGenerated;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;
using ::google::protobuf::TextFormat;

void CheckMessage(const Message& message, std::vector<BrokenRule>* broken);

bool IsFull(const std::vector<BrokenRule>& broken) {
  return broken.size() > kMaxBrokenRulesTold;
}

bool IsName(absl::string_view text) {
  return absl::ascii_isalnum(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' ||
                  c == '/';
         });
}

// The value at `index` as textproto, truncated if it is long.
std::string ValueText(const Message& message, const FieldDescriptor& field,
                      int index) {
  constexpr size_t kMax = 60;
  std::string text;
  TextFormat::PrintFieldValueToString(message, &field, index, &text);
  if (text.size() > kMax) text.replace(kMax, text.npos, "...");
  return text;
}

// These functions say what a value must be and is not, or return "".

std::string NumberFault(double number, const proto::FieldRule& rule) {
  if (!std::isfinite(number) && !rule.allow_non_finite()) {
    return "must be finite";
  }
  if (rule.has_min() &&
      (number < rule.min() || (rule.exclusive_min() && number == rule.min()))) {
    return absl::StrFormat("must be %s %.15g",
                           rule.exclusive_min() ? "above" : "at least",
                           rule.min());
  }
  if (rule.has_max() &&
      (number > rule.max() || (rule.exclusive_max() && number == rule.max()))) {
    return absl::StrFormat("must be %s %.15g",
                           rule.exclusive_max() ? "below" : "at most",
                           rule.max());
  }
  return "";
}

std::string EnumFault(int value, const EnumDescriptor& type) {
  if (type.FindValueByNumber(value) != nullptr) return "";
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    names.push_back(type.value(i)->name());
  }
  return absl::StrCat("must be ", absl::StrJoin(names, " or "));
}

// For a string or a repeated field.
std::string SizeFault(size_t size, absl::string_view unit,
                      const proto::FieldRule& rule) {
  if (!rule.has_max_size() || size <= rule.max_size()) return "";
  return absl::StrCat("must have at most ", rule.max_size(), " ", unit,
                      ", has ", size);
}

// An empty string counts as not set, which `required` covers.
std::string StringFault(absl::string_view text, const proto::FieldRule& rule) {
  if (std::string fault = SizeFault(text.size(), "bytes", rule);
      !fault.empty()) {
    return fault;
  }
  if (!rule.name() || text.empty() || IsName(text)) return "";
  return "must consist of letters, digits and _-./, and begin with a letter or "
         "digit";
}

// For the value at `index` of `field`, which is not a message. An index of -1
// means the only value of a field that is not repeated.
std::string ScalarFault(const Message& message, const FieldDescriptor& field,
                        int index, const proto::FieldRule& rule) {
  const Reflection& reflection = *message.GetReflection();
#define HOLDFAST_GET(Type)                           \
  (index < 0 ? reflection.Get##Type(message, &field) \
             : reflection.GetRepeated##Type(message, &field, index))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return NumberFault(HOLDFAST_GET(Int32), rule);
    case FieldDescriptor::CPPTYPE_INT64:
      return NumberFault(HOLDFAST_GET(Int64), rule);
    case FieldDescriptor::CPPTYPE_UINT32:
      return NumberFault(HOLDFAST_GET(UInt32), rule);
    case FieldDescriptor::CPPTYPE_UINT64:
      return NumberFault(HOLDFAST_GET(UInt64), rule);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberFault(HOLDFAST_GET(Float), rule);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberFault(HOLDFAST_GET(Double), rule);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumFault(HOLDFAST_GET(EnumValue), *field.enum_type());
    case FieldDescriptor::CPPTYPE_STRING:
      return StringFault(HOLDFAST_GET(String), rule);
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
#undef HOLDFAST_GET
  return "";
}

// Checks the value at `index` of `field`, or its only value if `index` is -1.
// Paths are written only for broken rules, since every request to a daemon is
// checked.
void CheckValue(const Message& message, const FieldDescriptor& field, int index,
                const proto::FieldRule& rule, std::vector<BrokenRule>* broken) {
  const Reflection& reflection = *message.GetReflection();
  const size_t before = broken->size();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    CheckMessage(index < 0
                     ? reflection.GetMessage(message, &field)
                     : reflection.GetRepeatedMessage(message, &field, index),
                 broken);
  } else if (const std::string fault = ScalarFault(message, field, index, rule);
             !fault.empty()) {
    const bool unset = index < 0 && !reflection.HasField(message, &field);
    broken->push_back(
        {"", absl::StrCat(fault, ", is ", ValueText(message, field, index),
                          unset ? " or not set" : "")});
  }
  for (size_t i = before; i < broken->size(); ++i) {
    std::string& path = (*broken)[i].path;
    path = absl::StrCat(field.name(),
                        index < 0 ? "" : absl::StrCat("[", index, "]"),
                        path.empty() ? "" : ".", path);
  }
}

// Whether the field can have an invalid value. Most fields of most requests
// cannot.
bool CanBreak(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_ENUM:
      return true;
    default:
      return field.options().HasExtension(proto::rule);
  }
}

void CheckField(const Message& message, const FieldDescriptor& field,
                std::vector<BrokenRule>* broken) {
  const proto::FieldRule& rule = field.options().GetExtension(proto::rule);
  const Reflection& reflection = *message.GetReflection();
  const int size = field.is_repeated() ? reflection.FieldSize(message, &field)
                                       : reflection.HasField(message, &field);
  if (size == 0 && rule.required()) {
    broken->push_back({field.name(), field.is_repeated()
                                         ? "must have at least one"
                                         : "must be set"});
  } else if (std::string fault = SizeFault(size, "values", rule);
             field.is_repeated() && !fault.empty()) {
    broken->push_back({field.name(), std::move(fault)});
  } else if (field.is_repeated()) {
    for (int i = 0; i < size && !IsFull(*broken); ++i) {
      CheckValue(message, field, i, rule, broken);
    }
  } else if (size > 0 || !field.has_presence()) {
    CheckValue(message, field, -1, rule, broken);
  }
}

// Rules between fields.

void CheckUniform(const proto::Initializer::Uniform& uniform,
                  std::vector<BrokenRule>* broken) {
  if (uniform.low() >= uniform.high()) {
    broken->push_back(
        {"high", absl::StrCat("must be above low, which is ", uniform.low(),
                              ", is ", uniform.high())});
  }
}

void CheckPiecewise(const proto::LearningRateSchedule::Piecewise& piecewise,
                    std::vector<BrokenRule>* broken) {
  for (int i = 1; i < piecewise.pieces_size() && !IsFull(*broken); ++i) {
    const uint64_t before = piecewise.pieces(i - 1).from_step();
    const uint64_t step = piecewise.pieces(i).from_step();
    if (step > before) continue;
    broken->push_back(
        {absl::StrCat("pieces[", i, "].from_step"),
         absl::StrCat("must be above that of the previous piece, which is ",
                      before, ", is ", step)});
  }
}

void CheckAdagrad(const proto::Optimizer::Adagrad& adagrad,
                  std::vector<BrokenRule>* broken) {
  // If a gradient has always been 0, the update would be 0 / 0.
  if (adagrad.has_initial_accumulator_value() &&
      adagrad.initial_accumulator_value() == 0 && adagrad.has_epsilon() &&
      adagrad.epsilon() == 0) {
    broken->push_back(
        {"epsilon", "must be above 0 if initial_accumulator_value is 0, is 0"});
  }
}

void CheckOptimizer(const proto::Optimizer& optimizer,
                    std::vector<BrokenRule>* broken) {
  if (optimizer.has_adamw() && optimizer.weight_decay() > 0) {
    broken->push_back(
        {"weight_decay",
         absl::StrCat("must be 0 with adamw, which has its own, is ",
                      optimizer.weight_decay())});
  }
}

void CheckCompression(const proto::Compression& compression,
                      std::vector<BrokenRule>* broken) {
  if (compression.pull() == proto::INT8 || compression.pull() == proto::TOP_K) {
    broken->push_back(
        {"pull", absl::StrCat("must be EXACT, FLOAT16 or BFLOAT16, is ",
                              proto::Encoding_Name(compression.pull()))});
  }
  if (compression.has_top_k() && compression.push() != proto::TOP_K) {
    broken->push_back({"top_k", "needs push: TOP_K"});
  }
}

void CheckLossScale(const proto::LossScale& scale,
                    std::vector<BrokenRule>* broken) {
  int exponent;
  if (scale.has_initial() && std::frexp(scale.initial(), &exponent) != 0.5f) {
    broken->push_back({"initial", absl::StrCat("must be a power of two, is ",
                                               scale.initial())});
  }
}

void CheckDeclaration(const proto::Declaration& declaration,
                      std::vector<BrokenRule>* broken) {
  if (declaration.variables().empty() && declaration.tables().empty()) {
    broken->push_back(
        {"variables", "must have at least one, unless there are tables"});
  }
  constexpr size_t kMaxBytes = 256;
  for (const auto& [name, value] : declaration.agreed()) {
    if (IsFull(*broken)) return;
    if (name.empty()) broken->push_back({"agreed", "a name is empty"});
    if (name.size() <= kMaxBytes && value.size() <= kMaxBytes) continue;
    broken->push_back(
        {"agreed",
         absl::StrCat("names and values must have at most ", kMaxBytes,
                      " bytes, \"",
                      absl::Utf8SafeCHexEscape(name.substr(0, 60)), "\" has ",
                      name.size(), " and its value ", value.size())});
  }
}

void CheckMessage(const Message& message, std::vector<BrokenRule>* broken) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count() && !IsFull(*broken); ++i) {
    if (CanBreak(*type.field(i))) CheckField(message, *type.field(i), broken);
  }
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& choice = *type.oneof_decl(i);
    if (!choice.options().GetExtension(proto::choice).required() ||
        message.GetReflection()->HasOneof(message, &choice)) {
      continue;
    }
    std::vector<std::string> names;
    for (int j = 0; j < choice.field_count(); ++j) {
      names.push_back(choice.field(j)->name());
    }
    broken->push_back(
        {"", absl::StrCat("needs ", absl::StrJoin(names, " or "))});
  }
  if (const auto* uniform =
          DynamicCastToGenerated<proto::Initializer::Uniform>(&message)) {
    CheckUniform(*uniform, broken);
  }
  if (const auto* piecewise =
          DynamicCastToGenerated<proto::LearningRateSchedule::Piecewise>(
              &message)) {
    CheckPiecewise(*piecewise, broken);
  }
  if (const auto* adagrad =
          DynamicCastToGenerated<proto::Optimizer::Adagrad>(&message)) {
    CheckAdagrad(*adagrad, broken);
  }
  if (const auto* optimizer =
          DynamicCastToGenerated<proto::Optimizer>(&message)) {
    CheckOptimizer(*optimizer, broken);
  }
  if (const auto* compression =
          DynamicCastToGenerated<proto::Compression>(&message)) {
    CheckCompression(*compression, broken);
  }
  if (const auto* scale = DynamicCastToGenerated<proto::LossScale>(&message)) {
    CheckLossScale(*scale, broken);
  }
  if (const auto* declaration =
          DynamicCastToGenerated<proto::Declaration>(&message)) {
    CheckDeclaration(*declaration, broken);
  }
}

}  // namespace

std::vector<BrokenRule> FindBrokenRules(const Message& message) {
  std::vector<BrokenRule> broken;
  CheckMessage(message, &broken);
  return broken;
}

absl::Status ValidateMessage(const Message& message) {
  std::vector<std::string> parts;
  for (const BrokenRule& broken : FindBrokenRules(message)) {
    if (parts.size() == kMaxBrokenRulesTold) {
      parts.push_back("and more");
      break;
    }
    parts.push_back(absl::StrCat(broken.path, broken.path.empty() ? "" : ": ",
                                 broken.what));
  }
  if (parts.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      message.GetDescriptor()->name(), ": ", absl::StrJoin(parts, "; ")));
}

}  // namespace holdfast

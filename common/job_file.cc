#include "common/job_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/sha256.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "proto/rules.pb.h"

namespace holdfast {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::OneofDescriptor;
using ::google::protobuf::Reflection;
using ::google::protobuf::TextFormat;
using ::google::protobuf::io::ArrayInputStream;
using ::google::protobuf::io::Tokenizer;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxProblems = 20;
// Of messages in messages. A job has 7 at most; protobuf's parser recurses.
constexpr int kMaxDepth = 100;
constexpr uint64_t kMaxSteps = 1'000'000'000'000'000;

// "a, b or c".
std::string Alternatives(const std::vector<std::string>& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::vector<std::string> head(names.begin(), names.end() - 1);
  return absl::StrCat(absl::StrJoin(head, ", "), " or ", names.back());
}

// ---------------------------------------------------------------------------
// Rules. What breaks them is a Problem, with the path of its field.

// Where a field is in a message of messages. Put into words only when there is
// something to say of it, since every request to a daemon is tested.
struct Path {
  // Null of the outermost message, which has no field either.
  const Path* parent = nullptr;
  const FieldDescriptor* field = nullptr;
  // Of an element of a repeated field.
  int index = -1;

  // "model.sequential.layers[2]"; "" of the outermost message.
  std::string ToString() const {
    if (field == nullptr) return "";
    std::string text = parent->ToString();
    if (!text.empty()) text += '.';
    text += field->name();
    if (index >= 0) absl::StrAppend(&text, "[", index, "]");
    return text;
  }
};

struct Problem {
  std::string path;
  std::string what;
};

// The first problems, one more than are told: it tells that there are more.
class Problems {
 public:
  // `inner`, where it is not empty, is the field of the message at `path` that
  // is at fault.
  void Add(const Path& path, std::string what, absl::string_view inner = "") {
    if (found_.size() > kMaxProblems) return;
    std::string text = path.ToString();
    if (!text.empty() && !inner.empty()) text += '.';
    absl::StrAppend(&text, inner);
    found_.push_back({std::move(text), std::move(what)});
  }
  const std::vector<Problem>& found() const { return found_; }

 private:
  std::vector<Problem> found_;
};

// Bounds are written in the proto as doubles, most of them whole.
std::string NumberText(double number) {
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return absl::StrCat(static_cast<int64_t>(number));
  }
  return absl::StrCat(number);
}

bool IsName(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool inner = i > 0 && (text[i] == '_' || text[i] == '-' ||
                                 text[i] == '.' || text[i] == '/');
    if (!absl::ascii_isalnum(text[i]) && !inner) return false;
  }
  return !text.empty();
}

// For a message to people: escaped, and not long.
std::string Quote(const std::string& text) {
  constexpr size_t kMax = 60;
  return absl::StrCat("\"", absl::CEscape(text.substr(0, kMax)),
                      text.size() > kMax ? "..." : "", "\"");
}

std::string EnumNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    names.push_back(type.value(i)->name());
  }
  return Alternatives(names);
}

std::string MemberNames(const OneofDescriptor& choice) {
  std::vector<std::string> names;
  for (int i = 0; i < choice.field_count(); ++i) {
    names.push_back(choice.field(i)->name());
  }
  return Alternatives(names);
}

// Tests a number. `unset`: it is also what the field holds when nobody set it.
template <typename Number>
void CheckNumber(Number value, const proto::FieldRule& rule, bool unset,
                 const Path& path, Problems* problems) {
  const double number = static_cast<double>(value);
  const auto add = [&](absl::string_view must, absl::string_view bound) {
    problems->Add(path, absl::StrCat("must be ", must, bound, ", is ", value,
                                     unset ? " or not set" : ""));
  };
  if (!std::isfinite(number)) {
    add("finite", "");
  } else if (rule.has_min() &&
             (number < rule.min() ||
              (rule.exclusive_min() && number == rule.min()))) {
    add(rule.exclusive_min() ? "above " : "at least ", NumberText(rule.min()));
  } else if (rule.has_max() &&
             (number > rule.max() ||
              (rule.exclusive_max() && number == rule.max()))) {
    add(rule.exclusive_max() ? "below " : "at most ", NumberText(rule.max()));
  }
}

// Tests a value of `field`, which is no message: the element at path.index, or
// the only one.
void CheckScalar(const Message& message, const FieldDescriptor& field,
                 const proto::FieldRule& rule, const Path& path,
                 Problems* problems) {
  const Reflection& reflection = *message.GetReflection();
  // Of such a field nobody can tell whether it was set to its default.
  const bool implicit = !field.is_repeated() && !field.has_presence();
  const auto check_number = [&](auto value) {
    const bool unset = implicit && value == 0;
    if (unset && rule.required()) {
      problems->Add(path, "must be set");
    } else {
      CheckNumber(value, rule, unset, path, problems);
    }
  };
#define HOLDFAST_GET(Type)                                         \
  (field.is_repeated()                                             \
       ? reflection.GetRepeated##Type(message, &field, path.index) \
       : reflection.Get##Type(message, &field))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return check_number(HOLDFAST_GET(Int32));
    case FieldDescriptor::CPPTYPE_INT64:
      return check_number(HOLDFAST_GET(Int64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return check_number(HOLDFAST_GET(UInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return check_number(HOLDFAST_GET(UInt64));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return check_number(HOLDFAST_GET(Float));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return check_number(HOLDFAST_GET(Double));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int value = HOLDFAST_GET(EnumValue);
      if (implicit && value == 0 && rule.required()) {
        problems->Add(path, "must be set");
      } else if (field.enum_type()->FindValueByNumber(value) == nullptr) {
        problems->Add(path,
                      absl::StrCat("must be ", EnumNames(*field.enum_type()),
                                   ", is ", value));
      }
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = HOLDFAST_GET(String);
      if (implicit && text.empty()) {
        if (rule.required()) problems->Add(path, "must be set");
      } else if (rule.name() && !IsName(text)) {
        problems->Add(path, absl::StrCat("must be letters, digits and _-./, "
                                         "and begin with a letter or digit, "
                                         "is ",
                                         Quote(text)));
      }
      return;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
#undef HOLDFAST_GET
}

// Rules between fields. `path` is that of the message.
using CrossCheck = void (*)(const Message& message, const Path& path,
                            Problems* problems);

void CheckUniform(const Message& message, const Path& path,
                  Problems* problems) {
  const auto& uniform =
      static_cast<const proto::Initializer::Uniform&>(message);
  if (uniform.low() >= uniform.high()) {
    problems->Add(path,
                  absl::StrCat("must be above low, which is ", uniform.low(),
                               ", is ", uniform.high()),
                  "high");
  }
}

void CheckSynchronous(const Message& message, const Path& path,
                      Problems* problems) {
  const auto& sync =
      static_cast<const proto::Consistency::Synchronous&>(message);
  if (!sync.has_replicas_to_aggregate() || !sync.has_total_num_replicas()) {
    return;
  }
  const uint32_t n = sync.replicas_to_aggregate();
  const uint32_t m = sync.total_num_replicas();
  if (m > 0 && n > m && n % m != 0) {
    problems->Add(path,
                  absl::StrCat("must be at most total_num_replicas, which is ",
                               m, ", or a multiple of it, is ", n),
                  "replicas_to_aggregate");
  }
}

void CheckDense(const Message& message, const Path& path, Problems* problems) {
  const auto& dense = static_cast<const proto::Layer::Dense&>(message);
  if (dense.has_use_bias() && !dense.use_bias() &&
      dense.has_bias_initializer()) {
    problems->Add(path, "has no bias to initialize: use_bias is false",
                  "bias_initializer");
  }
}

void CheckSequential(const Message& message, const Path& path,
                     Problems* problems) {
  const auto& model = static_cast<const proto::Sequential&>(message);
  const std::vector<std::string> names = LayerNames(model);
  std::map<std::string, int> first;
  for (int i = 0; i < model.layers_size(); ++i) {
    if (names[i].empty()) continue;
    const auto [same, fresh] = first.emplace(names[i], i);
    if (fresh) continue;
    problems->Add(path,
                  absl::StrCat("has the name ", Quote(names[i]), ", as layers[",
                               same->second, "] has: give it another"),
                  absl::StrCat("layers[", i, "]"));
  }
}

void CheckJob(const Message& message, const Path& path, Problems* problems) {
  const auto& job = static_cast<const proto::Job&>(message);
  if (job.has_evaluation() && job.has_data() && !job.data().has_test()) {
    problems->Add(path, "needs data.test", "evaluation");
  }
  const auto& sync = job.consistency().synchronous();
  if (job.local().has_workers() && sync.has_total_num_replicas() &&
      job.local().workers() != sync.total_num_replicas()) {
    problems->Add(
        path,
        absl::StrCat("must be total_num_replicas, which is ",
                     sync.total_num_replicas(), ", is ", job.local().workers()),
        "local.workers");
  }
}

// All rules between fields, by the message that they hold in.
struct CrossRule {
  const Descriptor* type;
  CrossCheck check;
};
const std::vector<CrossRule>& CrossRules() {
  static const auto* const rules = new std::vector<CrossRule>{
      {proto::Initializer::Uniform::descriptor(), CheckUniform},
      {proto::Consistency::Synchronous::descriptor(), CheckSynchronous},
      {proto::Layer::Dense::descriptor(), CheckDense},
      {proto::Sequential::descriptor(), CheckSequential},
      {proto::Job::descriptor(), CheckJob},
  };
  return *rules;
}

// Whether a value of the field can be wrong. Most fields of most requests
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

// Adds what is wrong in `message`, which is at `path`, to `problems`.
void Check(const Message& message, const Path& path, Problems* problems) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!CanBreak(field)) continue;
    const proto::FieldRule& rule = field.options().GetExtension(proto::rule);
    const bool is_message =
        field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    Path at{&path, &field};
    if (field.is_repeated()) {
      const int size = reflection.FieldSize(message, &field);
      if (rule.required() && size == 0) {
        problems->Add(at, "must have one at least");
      }
      for (at.index = 0; at.index < size; ++at.index) {
        if (is_message) {
          Check(reflection.GetRepeatedMessage(message, &field, at.index), at,
                problems);
        } else {
          CheckScalar(message, field, rule, at, problems);
        }
      }
    } else if (field.has_presence() && !reflection.HasField(message, &field)) {
      if (rule.required()) problems->Add(at, "must be set");
    } else if (is_message) {
      Check(reflection.GetMessage(message, &field), at, problems);
    } else {
      CheckScalar(message, field, rule, at, problems);
    }
  }
  for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
    const OneofDescriptor& choice = *type.oneof_decl(i);
    if (choice.options().GetExtension(proto::choice).required() &&
        !reflection.HasOneof(message, &choice)) {
      problems->Add(path, absl::StrCat("needs ", MemberNames(choice)));
    }
  }
  for (const CrossRule& rule : CrossRules()) {
    if (rule.type == &type) rule.check(message, path, problems);
  }
}

// ---------------------------------------------------------------------------
// Places in a textproto.

// As protobuf counts them: from 0, a tab reaching to the next multiple of 8.
struct Position {
  int line = 0;
  int column = 0;

  friend bool operator<(const Position& a, const Position& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  }
};

class NoErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// The fields of a textproto and where they stand, found without judging them.
// Paths are those of Problem.
class Outline {
 public:
  struct Field {
    std::string path;
    // Of the message around it.
    std::string parent;
    // Null if that message has no such field.
    const FieldDescriptor* descriptor = nullptr;
    // Where the name, the value, and whatever follows begin.
    Position begin;
    Position value;
    Position end;
    // Has braces, or an element with braces.
    bool is_message = false;
  };

  Outline(absl::string_view text, const Descriptor* type) {
    ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
    NoErrors errors;
    Tokenizer tokenizer(&stream, &errors);
    tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer.set_allow_f_after_float(true);
    tokenizer.set_require_space_after_number(false);
    int depth = 0;
    while (tokenizer.Next()) {
      tokens_.push_back(tokenizer.current());
      if (Opens(tokens_.back())) ++depth;
      if (Closes(tokens_.back())) depth = std::max(depth - 1, 0);
      too_deep_ |= depth > kMaxDepth;
    }
    tokens_.push_back(tokenizer.current());
    if (!too_deep_) ReadFields("", type);
  }

  // Whether brackets stand in brackets more than kMaxDepth times.
  bool too_deep() const { return too_deep_; }

  // Whether `at` is the end of the text.
  bool IsEnd(Position at) const { return !(at < PositionOf(tokens_.back())); }

  // The innermost field that `at` is in, or null. The end of the text is in
  // every message that is not closed.
  const Field* At(Position at) const {
    const Field* innermost = nullptr;
    for (const Field& field : fields_) {
      if (at < field.begin) break;
      const bool open = IsEnd(at) && !(field.end < at) &&
                        (field.is_message || !(field.value < at));
      if (at < field.end || open) innermost = &field;
    }
    return innermost;
  }

  // The field that ends where `at` begins, or null.
  const Field* Before(Position at) const {
    const Field* before = nullptr;
    for (const Field& field : fields_) {
      if (!(field.end < at) && !(at < field.end)) before = &field;
    }
    return before;
  }

  // Where the field at `path` begins, or else the nearest message around it
  // that stands in the text.
  std::optional<Position> Find(std::string path) const {
    while (!path.empty()) {
      for (const Field& field : fields_) {
        if (field.path == path) return field.begin;
      }
      const size_t dot = path.rfind('.');
      path.resize(dot == std::string::npos ? 0 : dot);
    }
    return std::nullopt;
  }

 private:
  using Token = Tokenizer::Token;

  static bool Opens(const Token& token) {
    return token.text == "{" || token.text == "<" || token.text == "[";
  }
  static bool Closes(const Token& token) {
    return token.text == "}" || token.text == ">" || token.text == "]";
  }
  static Position PositionOf(const Token& token) {
    return {token.line, token.column};
  }

  // The last token is the end, and is never passed.
  const Token& Next() const { return tokens_[next_]; }
  bool AtEnd() const { return next_ + 1 == tokens_.size(); }
  void Pass() { next_ += AtEnd() ? 0 : 1; }
  bool Skip(absl::string_view text) {
    if (Next().text != text) return false;
    Pass();
    return true;
  }

  // The fields of a message, up to the bracket that closes it.
  void ReadFields(const std::string& parent, const Descriptor* type) {
    std::map<std::string, int> counts;
    while (!AtEnd() && !Closes(Next())) {
      const std::string name = Next().text;
      if (Next().type != Tokenizer::TYPE_IDENTIFIER) {
        Pass();
        continue;
      }
      Field& field = fields_.emplace_back();
      field.parent = parent;
      field.descriptor =
          type == nullptr ? nullptr : type->FindFieldByName(name);
      field.begin = PositionOf(Next());
      Pass();
      Skip(":");
      field.value = PositionOf(Next());
      int* const count =
          field.descriptor != nullptr && field.descriptor->is_repeated()
              ? &counts[name]
              : nullptr;
      ReadValue(&field, parent.empty() ? name : absl::StrCat(parent, ".", name),
                count);
      if (!Skip(";")) Skip(",");
      field.end = PositionOf(Next());
    }
  }

  // The value of `field`, which is element *count of the repeated field at
  // `path`, or the field itself where `count` is null.
  void ReadValue(Field* field, const std::string& path, int* count) {
    field->path =
        count == nullptr ? path : absl::StrCat(path, "[", *count, "]");
    if (Skip("[")) {
      // A list; those of its elements that are messages count as fields, too.
      while (!AtEnd() && !Closes(Next())) {
        if (!Opens(Next())) {
          Pass();
          continue;
        }
        field->is_message = true;
        Field& element = fields_.emplace_back(*field);
        element.begin = element.value = PositionOf(Next());
        ReadValue(&element, path, count);
        element.end = PositionOf(Next());
      }
      Skip("]");
      return;
    }
    if (count != nullptr) ++*count;
    if (Opens(Next())) {
      field->is_message = true;
      Pass();
      ReadFields(field->path, field->descriptor == nullptr
                                  ? nullptr
                                  : field->descriptor->message_type());
      if (Closes(Next())) Pass();
      return;
    }
    // A number, a word, or strings side by side.
    Skip("-");
    const Tokenizer::TokenType type = Next().type;
    if (type == Tokenizer::TYPE_SYMBOL) return;
    do {
      Pass();
    } while (type == Tokenizer::TYPE_STRING && Next().type == type);
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  bool too_deep_ = false;
  // In the order of their beginnings. A deque, since references to the fields
  // around the one that is read must hold.
  std::deque<Field> fields_;
};

// ---------------------------------------------------------------------------
// Reading.

// What protobuf's parser says of a text, in its words, with the place of each.
class Complaints : public google::protobuf::io::ErrorCollector {
 public:
  struct Complaint {
    Position at;
    std::string said;
  };

  // What ends the parse.
  void AddError(int line, int column, const std::string& said) override {
    if (!error_.has_value()) error_ = Complaint{{line, column}, said};
  }
  // Unknown fields, which are passed over.
  void AddWarning(int line, int column, const std::string& said) override {
    if (warnings_.size() <= kMaxProblems) {
      warnings_.push_back({{line, column}, said});
    }
  }

  const std::optional<Complaint>& error() const { return error_; }
  const std::vector<Complaint>& warnings() const { return warnings_; }

 private:
  std::optional<Complaint> error_;
  std::vector<Complaint> warnings_;
};

// What a complaint is about.
enum class Fault {
  // A field that its message does not have.
  kUnknownField,
  // A field's value; or that the field is there.
  kValue,
  // A value that is a word. The parser tells it at the token after the word.
  kWord,
  // The text: it can be trusted no further.
  kSyntax,
};

Fault FaultOf(const std::string& said) {
  if (absl::StrContains(said, "has no field named") ||
      absl::StartsWith(said, "Ignoring extension")) {
    return Fault::kUnknownField;
  }
  for (const char* start :
       {"Unknown enumeration value", "Invalid value for boolean"}) {
    if (absl::StartsWith(said, start)) return Fault::kWord;
  }
  for (const char* start :
       {"Expected integer", "Expected double", "Expected string",
        "Integer out of range", "Expect a decimal number", "Non-repeated field",
        "Field \""}) {
    if (absl::StartsWith(said, start)) return Fault::kValue;
  }
  return Fault::kSyntax;
}

// " (there are: a, b)": the fields that a message has.
std::string FieldNames(const std::string& type_name) {
  const Descriptor* const type =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
          type_name);
  if (type == nullptr || type->field_count() == 0) return "";
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) {
    names.push_back(type->field(i)->name());
  }
  return absl::StrCat(" (there are: ", absl::StrJoin(names, ", "), ")");
}

// A complaint in our words. `field` is the field that it is about, or null.
std::string Reworded(const std::string& said, const FieldDescriptor* field) {
  const std::vector<std::string> quoted = absl::StrSplit(said, '"');
  if (absl::StrContains(said, "has no field named") && quoted.size() > 3) {
    return absl::StrCat("no field named ", Quote(quoted[3]),
                        FieldNames(quoted[1]));
  }
  if (absl::StartsWith(said, "Ignoring extension") && quoted.size() > 1) {
    return absl::StrCat("no field named [", quoted[1], "]");
  }
  if (absl::StartsWith(said, "Non-repeated field")) return "is set twice";
  if (absl::StartsWith(said, "Field \"") && quoted.size() > 3) {
    return absl::StrCat("cannot be set along with ", Quote(quoted[3]));
  }
  if (FaultOf(said) == Fault::kWord && field != nullptr && quoted.size() > 3) {
    return field->enum_type() == nullptr
               ? absl::StrCat("must be true or false, is ", quoted[3])
               : absl::StrCat("must be ", EnumNames(*field->enum_type()),
                              ", is ", quoted[1]);
  }
  std::string text(absl::StripSuffix(said, "."));
  text[0] = absl::ascii_tolower(text[0]);
  for (const char* nothing : {", got: ", ", found \"\""}) {
    if (!absl::EndsWith(text, nothing)) continue;
    return absl::StrCat(absl::StripSuffix(text, nothing),
                        ", got the end of the file");
  }
  return text;
}

// The problems of a job file, in its order.
class Report {
 public:
  Report(absl::string_view filename, const Outline& outline)
      : filename_(filename), outline_(outline) {}

  bool empty() const { return lines_.empty(); }
  bool full() const { return lines_.size() > kMaxProblems; }

  // Adds what the parser said. Returns the field whose value is at fault, or
  // null for other faults.
  const Outline::Field* Add(const Complaints::Complaint& complaint) {
    const Fault fault = FaultOf(complaint.said);
    const Outline::Field* field =
        fault == Fault::kWord ? outline_.Before(complaint.at) : nullptr;
    if (field == nullptr) field = outline_.At(complaint.at);
    // The parser tells faults of a field when it has read its name; where it
    // begins is the better place.
    Position at = complaint.at;
    std::string path;
    std::string what = Reworded(complaint.said,
                                field == nullptr ? nullptr : field->descriptor);
    if (field != nullptr) {
      path = field->path;
      const bool unknown =
          fault == Fault::kUnknownField && field->descriptor == nullptr;
      const bool unclosed = fault == Fault::kSyntax && field->is_message &&
                            outline_.IsEnd(complaint.at);
      if (unknown) path = field->parent;
      if (unclosed) what = "is not closed";
      if (unknown || unclosed || fault == Fault::kValue ||
          fault == Fault::kWord) {
        at = field->begin;
      }
    }
    lines_.emplace_back(
        at, absl::StrCat(filename_, ":", at.line + 1, ":", at.column + 1, ": ",
                         Prefix(path), what));
    return fault == Fault::kValue || fault == Fault::kWord ? field : nullptr;
  }

  // Adds a broken rule.
  void Add(const Problem& problem) {
    const std::optional<Position> at = outline_.Find(problem.path);
    const std::string line =
        at.has_value() ? absl::StrCat(":", at->line + 1) : "";
    lines_.emplace_back(at.value_or(Position{0, -1}),
                        absl::StrCat(filename_, line, ": ",
                                     Prefix(problem.path), problem.what));
  }

  absl::Status ToStatus() {
    std::stable_sort(
        lines_.begin(), lines_.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> lines;
    for (const auto& [at, line] : lines_) {
      if (lines.size() == kMaxProblems) {
        lines.push_back(absl::StrCat(filename_, ": and more"));
        break;
      }
      lines.push_back(line);
    }
    return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  }

 private:
  static std::string Prefix(const std::string& path) {
    return path.empty() ? "" : absl::StrCat(path, ": ");
  }

  const std::string filename_;
  const Outline& outline_;
  std::vector<std::pair<Position, std::string>> lines_;
};

// Overwrites with spaces what stands between the two positions. Returns whether
// that changed anything.
bool Blank(Position begin, Position end, std::string* text) {
  bool changed = false;
  Position at;
  for (char& c : *text) {
    if (c == '\n') {
      at = {at.line + 1, 0};
    } else if (c == '\t') {
      at.column += 8 - at.column % 8;
    } else {
      if (!(at < begin) && at < end && c != ' ') {
        c = ' ';
        changed = true;
      }
      ++at.column;
    }
  }
  return changed;
}

// Parses `text`; reports what is wrong. The parser stops at its first error; so
// a field whose value is at fault is taken out and the rest parsed again, until
// nothing is left to find. Where the syntax is broken, that alone is told:
// unknown fields may be its consequence. Returns whether `job` is what the text
// says, unknown fields aside.
bool ParseAll(std::string text, proto::Job* job, Report* report) {
  bool whole = true;
  while (true) {
    Complaints complaints;
    TextFormat::Parser parser;
    parser.RecordErrorsTo(&complaints);
    parser.AllowUnknownField(true);
    parser.ParseFromString(text, job);
    if (!complaints.error().has_value()) {
      for (const auto& warning : complaints.warnings()) report->Add(warning);
      return whole;
    }
    whole = false;
    const Outline::Field* const field = report->Add(*complaints.error());
    if (field == nullptr || report->full()) return false;
    if (!Blank(field->begin, field->end, &text)) return false;
  }
}

void ResolvePath(absl::string_view folder, std::string* path) {
  if (!path->empty() && !absl::StartsWith(*path, "/")) {
    *path = absl::StrCat(folder, *path);
  }
}

void ResolveData(absl::string_view filename, proto::Data* data) {
  // With its slash; empty where the file's name has none.
  const absl::string_view folder = filename.substr(0, filename.rfind('/') + 1);
  const auto resolve = [folder](proto::Dataset* dataset) {
    if (!dataset->has_idx()) return;
    ResolvePath(folder, dataset->mutable_idx()->mutable_images());
    ResolvePath(folder, dataset->mutable_idx()->mutable_labels());
  };
  if (data->has_train()) resolve(data->mutable_train());
  if (data->has_test()) resolve(data->mutable_test());
}

}  // namespace

absl::StatusOr<proto::Job> ParseJobFile(absl::string_view text,
                                        absl::string_view filename) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        filename, ": a job file has at most ", kMaxFileBytes, " bytes"));
  }
  const Outline outline(text, proto::Job::descriptor());
  if (outline.too_deep()) {
    return absl::InvalidArgumentError(
        absl::StrCat(filename, ": messages nested deeper than ", kMaxDepth));
  }
  proto::Job job;
  Report report(filename, outline);
  if (ParseAll(std::string(text), &job, &report)) {
    Problems problems;
    Check(job, Path(), &problems);
    for (const Problem& problem : problems.found()) report.Add(problem);
  }
  if (!report.empty()) return report.ToStatus();
  ResolveData(filename, job.mutable_data());
  return job;
}

absl::StatusOr<proto::Job> LoadJobFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // One byte more than may be, which ParseJobFile refuses.
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(&text[0], static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (!file.eof() && text.size() <= kMaxFileBytes) {
    return absl::NotFoundError(absl::StrCat("cannot read job file \"", path,
                                            "\": ", std::strerror(errno)));
  }
  return ParseJobFile(text, path);
}

absl::Status ValidateMessage(const Message& message) {
  Problems problems;
  Check(message, Path(), &problems);
  if (problems.found().empty()) return absl::OkStatus();
  std::vector<std::string> parts;
  for (const Problem& problem : problems.found()) {
    if (parts.size() == kMaxProblems) {
      parts.push_back("and more");
      break;
    }
    parts.push_back(problem.path.empty()
                        ? problem.what
                        : absl::StrCat(problem.path, ": ", problem.what));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      message.GetDescriptor()->name(), ": ", absl::StrJoin(parts, "; ")));
}

std::string JobDigest(const proto::Job& job) {
  proto::Job shared = job;
  shared.clear_local();
  for (proto::Dataset* dataset : {shared.mutable_data()->mutable_train(),
                                  shared.mutable_data()->mutable_test()}) {
    if (!dataset->has_idx()) continue;
    dataset->mutable_idx()->clear_images();
    dataset->mutable_idx()->clear_labels();
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    shared.SerializeToCodedStream(&out);
  }
  return Sha256::Hex(bytes);
}

std::vector<std::string> LayerNames(const proto::Sequential& model) {
  std::vector<std::string> names;
  std::map<int, int> counts;
  for (const proto::Layer& layer : model.layers()) {
    const int count = counts[layer.kind_case()]++;
    const FieldDescriptor* const kind =
        proto::Layer::descriptor()->FindFieldByNumber(layer.kind_case());
    if (!layer.name().empty()) {
      names.push_back(layer.name());
    } else if (kind == nullptr) {
      names.push_back("");
    } else if (count == 0) {
      names.push_back(kind->name());
    } else {
      names.push_back(absl::StrCat(kind->name(), "_", count));
    }
  }
  return names;
}

uint64_t TotalSteps(const proto::Job& job, uint64_t num_examples,
                    uint32_t seats) {
  if (job.length_case() == proto::Job::kSteps) {
    return std::clamp<uint64_t>(job.steps(), 1, kMaxSteps);
  }
  const double per_step =
      static_cast<double>(seats) * static_cast<double>(job.batch_size());
  const double steps =
      job.epochs() * static_cast<double>(num_examples) / per_step;
  // 0.1 epochs of 30 examples are 3, and not the step more that a rounding
  // error of 0.1 would make of it.
  const double nearest = std::floor(steps + 0.5);
  const double whole =
      std::abs(steps - nearest) <= 1e-9 * nearest ? nearest : std::ceil(steps);
  return static_cast<uint64_t>(
      std::clamp(whole, 1.0, static_cast<double>(kMaxSteps)));
}

absl::StatusOr<Replicas> ResolveConsistency(
    const proto::Consistency& consistency, uint32_t replicas) {
  const auto& sync = consistency.synchronous();
  Replicas result;
  result.total =
      sync.has_total_num_replicas() ? sync.total_num_replicas() : replicas;
  result.to_aggregate = sync.has_replicas_to_aggregate()
                            ? sync.replicas_to_aggregate()
                            : result.total;
  if (result.total != replicas) {
    return absl::InvalidArgumentError(absl::StrCat(
        "total_num_replicas is ", result.total, ", but the cluster has ",
        replicas, replicas == 1 ? " worker" : " workers",
        " (the chief included): set total_num_replicas to ", replicas,
        ", or start a cluster of ", result.total));
  }
  if (result.total == 0 || result.to_aggregate == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas_to_aggregate is ", result.to_aggregate, " of ",
                     result.total, " workers: both must be at least 1"));
  }
  if (result.to_aggregate > result.total &&
      result.to_aggregate % result.total != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas_to_aggregate is ", result.to_aggregate,
                     " and there are ", result.total,
                     " workers: above their number it must be a multiple of "
                     "it; set it to ",
                     result.to_aggregate / result.total * result.total,
                     ", or change the number of workers"));
  }
  return result;
}

absl::StatusOr<Replicas> ResolveConsistency(const proto::Job& job,
                                            uint32_t replicas) {
  return ResolveConsistency(job.consistency(), replicas);
}

}  // namespace holdfast

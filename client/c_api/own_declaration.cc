// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/own_declaration.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/declaration_change.h"
#include "common/tensor/shape.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace holdfast::c_api {
namespace {

// Collects the first error in a text, with its position.
class ErrorCollector final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;  // the first error suffices
    text_ =
        absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::StatusOr<proto::Declaration> ParseDeclaration(const std::string& text) {
  ErrorCollector errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  proto::Declaration declaration;
  if (parser.ParseFromString(text, &declaration)) return declaration;
  return absl::InvalidArgumentError(
      absl::StrCat("the declaration cannot be read: ", errors.text()));
}

bool IsGiven(const proto::Variable& variable) {
  return variable.initializer().has_given();
}

}  // namespace

Error OwnDeclaration::Take(const std::string& text,
                           absl::Span<const float* const> first_values) {
  absl::MutexLock lock(&mutex_);
  if (text_.has_value()) {
    if (*text_ == text) return Error();
    if (!given_up_) {
      return Error(HOLDFAST_REFUSED,
                   "this worker has already declared something else");
    }
  }
  absl::StatusOr<proto::Declaration> parsed = ParseDeclaration(text);
  if (!parsed.ok()) return Invalid(std::string(parsed.status().message()));
  if (absl::Status status = TakeFirstValues(first_values, &*parsed);
      !status.ok()) {
    return Invalid(std::string(status.message()));
  }
  declaration_ = *std::move(parsed);
  facts_.swap(*declaration_.mutable_agreed());
  declaration_.clear_agreed();
  text_ = text;
  given_up_ = false;
  return Error();
}

void OwnDeclaration::Withdraw() {
  absl::MutexLock lock(&mutex_);
  text_.reset();
  facts_.clear();
}

void OwnDeclaration::GiveUp() {
  absl::MutexLock lock(&mutex_);
  given_up_ = true;
}

absl::Status OwnDeclaration::TakeFirstValues(
    absl::Span<const float* const> values, proto::Declaration* declaration) {
  first_values_.clear();
  if (!is_chief_) return absl::OkStatus();
  const size_t count = declaration->variables_size();
  if (!values.empty() && values.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first values are given for ", values.size(), " of ", count,
        " variables: pass NULL for one with an initializer"));
  }
  bool any = false;
  std::vector<std::vector<float>> copies(count);
  for (size_t i = 0; i < count; ++i) {
    const proto::Variable& variable = declaration->variables(i);
    const float* const from = values.empty() ? nullptr : values[i];
    if (IsGiven(variable) != (from != nullptr)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variable \"", variable.name(), "\": ",
          from != nullptr
              ? "first values are given, but its initializer is not `given`"
              : "its initializer is `given`, but no first values are"));
    }
    if (from == nullptr) continue;
    HOLDFAST_ASSIGN_OR_RETURN(const auto elements,
                              NumElements(variable.shape()));
    copies[i].assign(from, from + elements);
    any = true;
  }
  if (!any) return absl::OkStatus();
  first_values_ = std::move(copies);
  return DigestFirstValues(
      [this](size_t i) { return absl::MakeConstSpan(first_values_[i]); },
      declaration);
}

AgreedFacts OwnDeclaration::facts() const {
  absl::MutexLock lock(&mutex_);
  return facts_;
}

void OwnDeclaration::AddFacts(const AgreedFacts& facts) {
  absl::MutexLock lock(&mutex_);
  holdfast::AddFacts(facts, &facts_);
}

FirstValues OwnDeclaration::first_values() const {
  if (first_values_.empty()) return nullptr;
  return [this](size_t i) { return absl::MakeConstSpan(first_values_[i]); };
}

absl::Status OwnDeclaration::CheckStanding(
    const proto::Declaration& standing) const {
  HOLDFAST_RETURN_IF_ERROR(CheckAgreed(task_, facts(), standing));
  if (!taken()) return absl::OkStatus();
  const std::string change =
      FirstChange(standing, declaration_, Declarer::kOther);
  if (change.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      task_, " declares a different job than was declared before: ", change,
      WaysOutOfChange(standing)));
}

}  // namespace holdfast::c_api

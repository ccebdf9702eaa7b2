// SPDX-License-Identifier: Apache-2.0
#include "client/c_api/variable_facts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/shape.h"

namespace holdfast::c_api {

VariableFacts::VariableFacts(const proto::Variable& variable)
    : name(variable.name()),
      shape(variable.shape().begin(), variable.shape().end()),
      // The declaration has been validated.
      elements(static_cast<size_t>(NumElements(shape).value_or(0))),
      trainable(!variable.has_trainable() || variable.trainable()),
      moving_average(variable.has_moving_average()) {}

void VariableFacts::CopyTo(const float* data,
                           holdfast_variable* variable) const {
  variable->name = name.c_str();
  variable->shape = shape.empty() ? nullptr : shape.data();
  variable->rank = shape.size();
  variable->elements = elements;
  variable->trainable = trainable;
  variable->moving_average = moving_average;
  variable->data = data;
}

Error VariableFacts::CheckElements(size_t given) const {
  if (given == elements) return Error();
  return Invalid(absl::StrCat("variable \"", name, "\" has ", elements,
                              " elements, not ", given));
}

Declared::Declared(proto::Declaration of_job)
    : declaration(std::move(of_job)),
      variables(declaration.variables().begin(),
                declaration.variables().end()) {}

void Declared::CopyTable(size_t index, holdfast_table* table) const {
  const proto::EmbeddingTable& from =
      declaration.tables(static_cast<int>(index));
  *table = {};
  table->name = from.name().c_str();
  table->row_length = from.row_length();
  table->max_rows_per_push = from.max_rows_per_push();
}

}  // namespace holdfast::c_api

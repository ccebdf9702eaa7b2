// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_CLIENT_C_API_VARIABLE_FACTS_H_
#define HOLDFAST_CLIENT_C_API_VARIABLE_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/c_api/error.h"
#include "client/c_api/holdfast.h"
#include "proto/cluster.pb.h"

namespace holdfast::c_api {

// A variable as the C API describes it; keeps name and shape at the addresses
// that the API promises.
struct VariableFacts {
  VariableFacts() = default;
  explicit VariableFacts(const proto::Variable& variable);
  // `data`: may be null.
  void CopyTo(const float* data, holdfast_variable* variable) const;
  // Returns INVALID, naming the variable, unless the variable has `elements`
  // elements.
  Error CheckElements(size_t elements) const;

  std::string name;
  std::vector<int64_t> shape;
  size_t elements = 0;
  bool trainable = true;
  bool moving_average = false;
};

// A declaration, and facts about its variables and tables.
struct Declared {
  explicit Declared(proto::Declaration declaration);
  // Describes a declared table; its name stays where it is.
  void CopyTable(size_t index, holdfast_table* table) const;

  const proto::Declaration declaration;
  // Indexed by variable.
  const std::vector<VariableFacts> variables;
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_VARIABLE_FACTS_H_

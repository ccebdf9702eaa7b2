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

// A variable as the C API tells it: name and shape with the addresses that it
// promises.
struct VariableFacts {
  VariableFacts() = default;
  explicit VariableFacts(const proto::Variable& variable);
  // `data`: may be null.
  void CopyTo(const float* data, holdfast_variable* variable) const;
  // INVALID, naming the variable, unless it has this many.
  Error CheckElements(size_t elements) const;

  std::string name;
  std::vector<int64_t> shape;
  size_t elements = 0;
  bool trainable = true;
  bool moving_average = false;
};

// What was declared.
struct Declared {
  explicit Declared(proto::Declaration declaration);

  const proto::Declaration declaration;
  // By variable.
  const std::vector<VariableFacts> variables;
};

}  // namespace holdfast::c_api

#endif  // HOLDFAST_CLIENT_C_API_VARIABLE_FACTS_H_

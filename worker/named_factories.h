// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_NAMED_FACTORIES_H_
#define HOLDFAST_WORKER_NAMED_FACTORIES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace holdfast {

// Factories for the user's own parts of a worker binary, such as models, keyed
// by the names that job files use.
//
// Thread-compatible.
template <typename Product, typename Context>
class NamedFactories {
 public:
  // Makes a product, or returns an error that says what is wrong with the
  // context, usually with its options. An unknown option should be an error.
  using Factory =
      std::function<absl::StatusOr<std::unique_ptr<Product>>(const Context&)>;

  // Adds a factory. Errors: ALREADY_EXISTS when the name is taken.
  absl::Status Register(absl::string_view name, Factory factory) {
    const bool added =
        factories_.emplace(std::string(name), std::move(factory)).second;
    if (added) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat("a ", kind_, " is registered as \"", name, "\" already"));
  }

  // Makes a product with the factory of this name. Errors: NOT_FOUND, listing
  // the registered names; those of the factory, with `name` added.
  absl::StatusOr<std::unique_ptr<Product>> Create(
      absl::string_view name, const Context& context) const {
    const auto found = factories_.find(name);
    if (found == factories_.end()) {
      const std::string known = absl::StrJoin(
          factories_, ", ", [](std::string* out, const auto& entry) {
            absl::StrAppend(out, "\"", entry.first, "\"");
          });
      return absl::NotFoundError(absl::StrCat(
          "no ", kind_, " is registered as \"", name,
          "\" in this binary; it has ",
          known.empty() ? "none of the user's own" : known,
          "; run a worker that is linked with it, as ", example_, " is"));
    }
    absl::StatusOr<std::unique_ptr<Product>> product = found->second(context);
    if (!product.ok()) {
      return absl::Status(
          product.status().code(),
          absl::StrCat(kind_, " \"", name, "\": ", product.status().message()));
    }
    return product;
  }

 protected:
  // Both arguments are for messages: `kind` says what a product is, and
  // `example` names a folder with an example of one.
  NamedFactories(const char* kind, const char* example)
      : kind_(kind), example_(example) {}

 private:
  const char* kind_;
  const char* example_;
  std::map<std::string, Factory, std::less<>> factories_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_NAMED_FACTORIES_H_

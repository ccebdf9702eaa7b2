// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_WORKER_INPUT_HOOKED_SOURCE_H_
#define HOLDFAST_WORKER_INPUT_HOOKED_SOURCE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "common/data/example_source.h"

namespace holdfast {

// The examples of another source. Calls a function before each example is read.
//
// Thread-safe if the function is.
class HookedSource final : public ExampleSource {
 public:
  // `source` must outlive this.
  HookedSource(const ExampleSource* source, std::function<void()> before_read)
      : source_(*source), before_read_(std::move(before_read)) {}

  int64_t num_examples() const override { return source_.num_examples(); }
  const ExampleSpec& spec() const override { return source_.spec(); }
  absl::Status Read(int64_t index, const ExampleMemory& to) const override {
    before_read_();
    return source_.Read(index, to);
  }

 private:
  const ExampleSource& source_;
  const std::function<void()> before_read_;
};

}  // namespace holdfast

#endif  // HOLDFAST_WORKER_INPUT_HOOKED_SOURCE_H_

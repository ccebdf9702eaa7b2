// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_LIBSVM_LINE_H_
#define HOLDFAST_COMMON_DATA_LIBSVM_LINE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace holdfast {

// The parts of a line of a libsvm file, from left to right:
//
//   line    = [label] *( blank feature ) [comment]
//   feature = index ":" value
//   comment = "#" *any
//
// with spaces and tabs as blanks, also around the line. An index is a whole
// number from 0 to below 2^64, a value a number in the range of float32.
//
// Thread-compatible. The text must outlive this object.
class LibsvmLine {
 public:
  enum class Result {
    kFeature,
    kEnd,
    // What part() returns is not a feature.
    kFault,
  };

  explicit LibsvmLine(absl::string_view line);

  // The line without the comment and surrounding blanks; empty if the line has
  // no example.
  absl::string_view text() const { return text_; }
  // The line's label; empty if the line begins with a feature.
  absl::string_view label() const { return label_; }

  // Reads the next feature.
  Result Next(uint64_t* index, float* value);

  // The text of the feature that Next() read last.
  absl::string_view part() const { return part_; }

 private:
  // Cuts the next part off rest_; empty at the end.
  absl::string_view Cut();

  absl::string_view text_;
  absl::string_view label_;
  absl::string_view part_;
  absl::string_view rest_;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_LIBSVM_LINE_H_

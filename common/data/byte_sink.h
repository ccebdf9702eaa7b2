// SPDX-License-Identifier: Apache-2.0
#ifndef HOLDFAST_COMMON_DATA_BYTE_SINK_H_
#define HOLDFAST_COMMON_DATA_BYTE_SINK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

// A destination for a sequence of bytes.
class ByteSink {
 public:
  virtual ~ByteSink() = default;

  // Errors: those of the system, if the bytes are written to a file.
  virtual absl::Status Append(absl::Span<const uint8_t> bytes) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_BYTE_SINK_H_

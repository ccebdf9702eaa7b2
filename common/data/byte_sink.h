#ifndef HOLDFAST_COMMON_DATA_BYTE_SINK_H_
#define HOLDFAST_COMMON_DATA_BYTE_SINK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace holdfast {

// Where bytes go one after the other.
class ByteSink {
 public:
  virtual ~ByteSink() = default;

  // Errors: of the system, where they are written.
  virtual absl::Status Append(absl::Span<const uint8_t> bytes) = 0;
};

}  // namespace holdfast

#endif  // HOLDFAST_COMMON_DATA_BYTE_SINK_H_

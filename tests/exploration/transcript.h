// SPDX-License-Identifier: Apache-2.0

// Formats the messages of a schedule as readable lines:
//
//   who -> whom: Method {fields}
//   who -> whom: answer to Method {fields}
#ifndef HOLDFAST_TESTS_EXPLORATION_TRANSCRIPT_H_
#define HOLDFAST_TESTS_EXPLORATION_TRANSCRIPT_H_

#include <string>

#include "tests/world/message.h"

namespace holdfast::exploration {

// Omits everything that is not relevant to the protocol: the life of the
// sender, how long calls may be parked, the declaration, and all bytes that
// prove something.
std::string TranscriptLine(const sim::Message& message);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_TRANSCRIPT_H_

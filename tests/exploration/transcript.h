// What passes in a schedule as lines for people:
//
//   who -> whom: Method {fields}
//   who -> whom: answer to Method {fields}
#ifndef HOLDFAST_TESTS_EXPLORATION_TRANSCRIPT_H_
#define HOLDFAST_TESTS_EXPLORATION_TRANSCRIPT_H_

#include <string>

#include "tests/world/message.h"

namespace holdfast::exploration {

// Without what says nothing about the protocol: who sends it in which life, how
// long calls may be parked, what is declared, and all bytes that prove
// something.
std::string TranscriptLine(const sim::Message& message);

}  // namespace holdfast::exploration

#endif  // HOLDFAST_TESTS_EXPLORATION_TRANSCRIPT_H_
